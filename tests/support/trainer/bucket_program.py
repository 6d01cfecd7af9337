"""A training by `fit` of tf_keras whose backups and model are in TFTRAINING_DIR, which may be a bucket."""

import os
import sys
import time

import tensorflow as tf

from tftraining.paths import write_filepath

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import tf_keras as keras  # noqa: E402  after the strategy

directory = os.environ["TFTRAINING_DIR"]
data = tf.data.Dataset.from_tensors((tf.ones((8,)), tf.ones((1,)))).repeat().batch(8)
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")


class Follow(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells each epoch, and leaves the test the time to see it."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        print(f"epoch {epoch} begins", flush=True)
        time.sleep(0.5)


callbacks = [keras.callbacks.BackupAndRestore(f"{directory}/backup"), Follow()]
model.fit(data, epochs=int(sys.argv[1]), steps_per_epoch=5, callbacks=callbacks, verbose=0)
model.save(write_filepath(f"{directory}/model.keras"))

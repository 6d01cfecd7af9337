"""A program as a newcomer writes it after TensorFlow's guide to multi-worker training, with one mistake.

    TFTRAINING_DIR=/a/directory/that/all/share python newcomer.py

All workers save, the chief into the directory, the others into `workertemp_<index>` beside; but nobody makes that, so
their save fails, after `fit`. It knows nothing of us, but notes what it does: each epoch that it trains in
`epochs-<index>`, and in `ends-<index>`, as JSON, what it has whenever `fit` is over.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

EPOCHS, STEPS = 4, 5
DIRECTORY = Path(os.environ["TFTRAINING_DIR"])
INDEX = json.loads(os.environ["TF_CONFIG"])["task"]["index"]


def note(name: str, line: str) -> None:
    with (DIRECTORY / f"{name}-{INDEX}").open("a") as file:
        file.write(line + "\n")


class Note(tf_keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        note("epochs", str(epoch))


def make_model() -> Any:
    layers = tf_keras.layers
    model = tf_keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, "relu"), layers.BatchNormalization(), layers.Dense(1)]
    )
    model.compile("adam", "mse", metrics=["mae"])
    return model


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf_keras.utils.set_random_seed(1)
    x = np.random.rand(64, 4).astype("f")
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(16).repeat()
    with strategy.scope():
        model = make_model()
    backup = tf_keras.callbacks.BackupAndRestore(str(DIRECTORY / "backup"))
    history = model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=[backup, Note()], verbose=0)
    weights = [round(float(np.abs(each).sum()), 5) for each in model.get_weights()]
    note("ends", json.dumps([history.history, history.epoch, weights, int(model.optimizer.iterations.numpy())]))
    print(f"trained to a loss of {history.history['loss'][-1]:.4f}", flush=True)
    where = DIRECTORY if INDEX == 0 else DIRECTORY / f"workertemp_{INDEX}"
    model.save_weights(str(where / "model.h5"))


if __name__ == "__main__":
    main()

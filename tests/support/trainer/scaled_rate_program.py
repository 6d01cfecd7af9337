"""`fit` with the learning rate of docs/disruptions.md in a gang of changing size; prints the rate and the workers of
each epoch."""

import os

import tensorflow as tf
import tf_keras as keras

import tftraining

strategy = tf.distribute.MultiWorkerMirroredStrategy()
workers = strategy.num_replicas_in_sync


def show(epoch: int, logs: dict[str, float]) -> None:
    """One line for each epoch."""
    rate = float(model.optimizer.learning_rate.numpy())
    print(f"rate {rate:.4f} with {workers} workers", flush=True)


with strategy.scope():
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
data = tf.data.Dataset.from_tensors((tf.zeros(8), tf.zeros(1))).repeat().batch(4 * workers)
callbacks = [
    keras.callbacks.BackupAndRestore(f"{os.environ['TFTRAINING_DIR']}/backup"),
    keras.callbacks.LearningRateScheduler(lambda epoch: tftraining.scaled(0.1)),
    keras.callbacks.LambdaCallback(on_epoch_end=show),
]
model.fit(data, epochs=int(os.environ["EPOCHS"]), steps_per_epoch=50, callbacks=callbacks, verbose=0)

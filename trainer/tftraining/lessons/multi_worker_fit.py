"""Multi-worker training with Keras `fit`. Every worker runs this program; TF_CONFIG tells each its task.

`tftj run examples/lessons/multi-worker-fit.yaml --kill worker-1@epoch=3` reaches a test accuracy of 0.98.
"""

import os

import tensorflow as tf
import tf_keras as keras  # Keras 2: `fit` of Keras 3 with several workers needs launchers (keras issue 20585)
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

# The workers connect here, and wait for each other. No other call of TensorFlow may come first.
strategy = tf.distribute.MultiWorkerMirroredStrategy()

DIRECTORY = os.environ.get("TFTRAINING_DIR", "training/lesson-multi-worker-fit")
EPOCHS, STEPS_PER_EPOCH = 10, 40
# Each worker trains on its share of the global batch, so the batch grows with the number of workers.
GLOBAL_BATCH_SIZE = 64 * strategy.num_replicas_in_sync


def make_datasets():
    """Batches for all workers together: endless ones for the training, and those of the validation."""
    images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
    images = images.reshape(-1, 8, 8, 1) / 16
    train = tf.data.Dataset.from_tensor_slices((images[:1500], labels[:1500]))
    validation = tf.data.Dataset.from_tensor_slices((images[1500:], labels[1500:])).batch(GLOBAL_BATCH_SIZE)
    # The data are in memory, not in files: each worker reads all of them and keeps its share of each batch.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    train = train.shuffle(1500, seed=1).repeat().batch(GLOBAL_BATCH_SIZE)
    return train.with_options(options), validation.with_options(options)


def make_model():
    """A small convolutional network, compiled."""
    layers = keras.layers
    model = keras.Sequential([layers.Input((8, 8, 1)), layers.Conv2D(32, 3, activation="relu"), layers.Flatten()])
    model.add(layers.Dense(128, activation="relu"))
    model.add(layers.Dense(10))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=keras.optimizers.SGD(0.1), metrics=["accuracy"])
    return model


def write_filepath(path):
    """The path to save to: every worker must save, and only the file of worker 0, the chief, is kept."""
    directory, name = os.path.split(path)
    if task_id != 0:
        directory = os.path.join(directory, f"workertemp_{task_id}")
    tf.io.gfile.makedirs(directory)
    return os.path.join(directory, name)


task_id = strategy.cluster_resolver.task_id or 0  # None without TF_CONFIG
train, validation = make_datasets()
with strategy.scope():
    model = make_model()
best = f"{DIRECTORY}/best.keras"
try:  # the ModelCheckpoint of a restarted program has forgotten the accuracy of the best model, so measure it again
    best_accuracy = keras.models.load_model(best).evaluate(validation, verbose=0)[1]
except (OSError, ValueError, tf.errors.NotFoundError):  # no model yet, or one that a killed program has not completed
    best_accuracy = None
callbacks = [
    # A restarted program resumes from the backup. Both callbacks keep the chief's files by themselves.
    keras.callbacks.BackupAndRestore(f"{DIRECTORY}/backup"),
    keras.callbacks.ModelCheckpoint(best, "val_accuracy", save_best_only=True, initial_value_threshold=best_accuracy),
]
model.fit(
    train, epochs=EPOCHS, steps_per_epoch=STEPS_PER_EPOCH, validation_data=validation, callbacks=callbacks, verbose=2
)
model.save(write_filepath(f"{DIRECTORY}/model.keras"))
if task_id == 0:
    # Outside the scope and with other programs, the saved model is an ordinary one.
    loss, accuracy = keras.models.load_model(f"{DIRECTORY}/model.keras").evaluate(validation, verbose=0)
    print(f"test loss {loss:.4f} test accuracy {accuracy:.4f}", flush=True)

"""TensorFlow's tutorial "Multi-worker training with Keras", its cells in order as one program, in words of our own.

With docs/programs.md's table: the model's file has the ending that Keras 3 wants, and the chief alone loads it. The
paths are in TFTRAINING_DIR; the pictures come from a file, for nothing is downloaded. Nothing of the program knows the
launcher.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: PTH118, PTH120  # paths as the tutorial makes them

import json
import os

import numpy as np
import tensorflow as tf

DIRECTORY = os.environ.get("TFTRAINING_DIR", "/tmp")
WORKER_BATCH = 64
EPOCHS, STEPS = 3, 70


def make_dataset(batch_size):
    with np.load(os.environ["MNIST"]) as pictures:
        images, labels = pictures["x_train"] / np.float32(255), pictures["y_train"].astype(np.int64)
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(60000).repeat().batch(batch_size)


def make_model():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(input_shape=(28, 28)),
            tf.keras.layers.Reshape(target_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=tf.keras.optimizers.SGD(learning_rate=0.001), metrics=["accuracy"])
    return model


def is_chief(task_type, task_id):
    return task_type is None or (task_type == "worker" and task_id == 0)


def write_filepath(path, task_type, task_id):
    folder, name = os.path.split(path)
    if not is_chief(task_type, task_id):
        folder = os.path.join(folder, f"workertemp_{task_id}")
        tf.io.gfile.makedirs(folder)
    return os.path.join(folder, name)


workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task_type, task_id = strategy.cluster_resolver.task_type, strategy.cluster_resolver.task_id

# One worker alone, to see that model and data work.
alone = make_dataset(WORKER_BATCH)
make_model().fit(alone, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=2)

# All workers.
with strategy.scope():
    model = make_model()
dataset = make_dataset(WORKER_BATCH * workers)
told = model.fit(dataset, epochs=EPOCHS, steps_per_epoch=STEPS, verbose=2).history["accuracy"]
print("accuracies of all workers:", *told, flush=True)

options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
dataset = make_dataset(WORKER_BATCH)
print("without sharding:", dataset.with_options(options).element_spec[0].shape)

# The model saved; then loaded and trained on by the chief, which has written it.
model_path = f"{DIRECTORY}/keras-model.keras"
write_model_path = write_filepath(model_path, task_type, task_id)
model.save(write_model_path)
if not is_chief(task_type, task_id):
    tf.io.gfile.rmtree(os.path.dirname(write_model_path))
else:
    tf.keras.models.load_model(model_path).fit(alone, epochs=2, steps_per_epoch=20, verbose=2)

# A checkpoint, and on from it.
checkpoint_dir = f"{DIRECTORY}/ckpt"
checkpoint = tf.train.Checkpoint(model=model)
write_checkpoint_dir = write_filepath(checkpoint_dir, task_type, task_id)
checkpoint_manager = tf.train.CheckpointManager(checkpoint, directory=write_checkpoint_dir, max_to_keep=1)
checkpoint_manager.save()
if not is_chief(task_type, task_id):
    tf.io.gfile.rmtree(write_checkpoint_dir)
checkpoint.restore(tf.train.latest_checkpoint(checkpoint_dir))
model.fit(dataset, epochs=2, steps_per_epoch=20, verbose=2)

# BackupAndRestore, at the end of each epoch and each 30 steps.
for save_freq in ("epoch", 30):
    callbacks = [tf.keras.callbacks.BackupAndRestore(f"{DIRECTORY}/backup", save_freq=save_freq)]
    with strategy.scope():
        model = make_model()
    told = model.fit(dataset, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=callbacks, verbose=2).history["accuracy"]
    print(f"accuracies with a backup each {save_freq}:", *told, flush=True)

"""TensorFlow's tutorial "Custom training with tf.distribute.Strategy", its cells in order as one program, in words of
our own, with what docs/programs.md says of old tutorials: `keras.Input`, `optimizer.build`, `reset_state`.

The paths are in TFTRAINING_DIR, the pictures come from a file, and the environment says how many. Nothing of the
program knows the launcher.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: PTH118  # paths as the tutorial makes them

import os

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
print(f"Number of devices: {strategy.num_replicas_in_sync}")

with np.load(os.environ["MNIST"]) as pictures:
    images, labels = pictures["x_train"][..., None] / np.float32(255), pictures["y_train"].astype(np.int64)
EPOCHS, GLOBAL_BATCH_SIZE = int(os.environ.get("EPOCHS", "10")), 64 * strategy.num_replicas_in_sync
TRAIN, TEST = int(os.environ.get("TRAIN", "50000")), int(os.environ.get("TEST", "10000"))
train = tf.data.Dataset.from_tensor_slices((images[:TRAIN], labels[:TRAIN])).shuffle(TRAIN).batch(GLOBAL_BATCH_SIZE)
test = tf.data.Dataset.from_tensor_slices((images[-TEST:], labels[-TEST:])).batch(GLOBAL_BATCH_SIZE)
train_batches, test_batches = map(strategy.experimental_distribute_dataset, (train, test))
DIRECTORY = os.path.join(os.environ.get("TFTRAINING_DIR", "."), "training_checkpoints")


def make_model():
    decay = tf.keras.regularizers.L2(1e-4)
    return tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(32, 3, activation="relu", kernel_regularizer=decay),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(64, 3, activation="relu", kernel_regularizer=decay),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu", kernel_regularizer=decay),
            tf.keras.layers.Dense(10, kernel_regularizer=decay),
        ]
    )


with strategy.scope():
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    test_loss = tf.keras.metrics.Mean(name="test_loss")
    train_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="train_accuracy")
    test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(learning_rate=0.001)
    optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def train_step(inputs):
    batch, truth = inputs
    with tf.GradientTape() as tape:
        predictions = model(batch, training=True)
        loss = tf.nn.compute_average_loss(loss_object(truth, predictions))
        loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    train_accuracy.update_state(truth, predictions)
    return loss


def test_step(inputs):
    batch, truth = inputs
    predictions = model(batch, training=False)
    test_loss.update_state(loss_object(truth, predictions))
    test_accuracy.update_state(truth, predictions)


@tf.function
def distributed_train_step(inputs):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)


@tf.function
def distributed_test_step(inputs):
    strategy.run(test_step, args=(inputs,))


@tf.function
def distributed_train_epoch(batches):
    total, count = 0.0, 0
    for inputs in batches:
        total += strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=(inputs,)), axis=None)
        count += 1
    return total / tf.cast(count, tf.float32)


for epoch in range(EPOCHS):
    total, count = 0.0, 0
    for inputs in train_batches:
        total += distributed_train_step(inputs)
        count += 1
    for inputs in test_batches:
        distributed_test_step(inputs)
    if epoch % 2 == 0:
        checkpoint.save(os.path.join(DIRECTORY, "ckpt"))
    told = [
        float(each) for each in (total / count, train_accuracy.result(), test_loss.result(), test_accuracy.result())
    ]
    print(f"Epoch {epoch + 1}, loss, accuracy, test loss, test accuracy", *told, flush=True)
    for metric in (train_accuracy, test_loss, test_accuracy):
        metric.reset_state()

# The last checkpoint, in a model without a strategy.
restored, accuracy = make_model(), tf.keras.metrics.SparseCategoricalAccuracy(name="eval_accuracy")
tf.train.Checkpoint(optimizer=tf.keras.optimizers.Adam(), model=restored).restore(
    tf.train.latest_checkpoint(DIRECTORY)
).expect_partial()
for batch, truth in test:
    accuracy.update_state(truth, restored(batch, training=False))
print("accuracy of the restored model", float(accuracy.result()), flush=True)

# The other ways to go through the data: an iterator, and a whole epoch inside a tf.function.
iterator = iter(train_batches)
print("ten steps", float(sum(distributed_train_step(next(iterator)) for _ in range(10)) / 10), flush=True)
print("an epoch in a function", float(distributed_train_epoch(train_batches)), flush=True)

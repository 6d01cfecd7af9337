"""A custom loop on all GPUs of a machine, or on two parts of its CPU, with losses and metrics of Keras 3.

`tftj run examples/lessons/mirrored-custom-loop.yaml` reaches a test accuracy of 0.98.
"""

import os

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

if not tf.config.list_physical_devices("GPU"):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
strategy = tf.distribute.MirroredStrategy([device.name for device in devices])

DIRECTORY = os.environ.get("TFTRAINING_DIR", "training/lesson-mirrored-custom-loop")
EPOCHS, GLOBAL_BATCH_SIZE = 10, 32 * strategy.num_replicas_in_sync
images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images = images.reshape(-1, 8, 8, 1) / 16
train = tf.data.Dataset.from_tensor_slices((images[:1500], labels[:1500])).shuffle(1500)
test = tf.data.Dataset.from_tensor_slices((images[1500:], labels[1500:]))
train_batches = strategy.experimental_distribute_dataset(train.batch(GLOBAL_BATCH_SIZE, drop_remainder=True))
test_batches = strategy.experimental_distribute_dataset(test.batch(GLOBAL_BATCH_SIZE))

with strategy.scope():
    # In the scope every variable has a copy on each device: those of the model, the optimizer and the metrics.
    convolution = keras.layers.Conv2D(32, 3, activation="relu", kernel_regularizer=keras.regularizers.L2(0.0001))
    model = keras.Sequential([keras.Input((8, 8, 1)), convolution, keras.layers.Flatten(), keras.layers.Dense(10)])
    optimizer = keras.optimizers.Adam(0.003)
    optimizer.build(model.trainable_variables)  # a checkpoint restores only variables that exist
    # No reduction: Keras would divide by the number of examples of a replica, not by that of the global batch.
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    test_loss = keras.metrics.Mean()
    train_accuracy, test_accuracy = (keras.metrics.SparseCategoricalAccuracy() for _ in range(2))


@tf.function
def distributed_train_step(inputs):
    def train_step(features, labels):
        with tf.GradientTape() as tape:
            predictions = model(features, training=True)
            loss = tf.nn.compute_average_loss(loss_object(labels, predictions), global_batch_size=GLOBAL_BATCH_SIZE)
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))  # divides by the number of replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))  # sums over the replicas
        train_accuracy.update_state(labels, predictions)
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(train_step, args=inputs), axis=None)


@tf.function
def distributed_test_step(inputs):
    def test_step(features, labels):
        predictions = model(features, training=False)
        test_loss.update_state(loss_object(labels, predictions))  # counts the examples: a smaller batch weighs less
        test_accuracy.update_state(labels, predictions)

    strategy.run(test_step, args=inputs)


epoch = tf.Variable(0, trainable=False)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, f"{DIRECTORY}/checkpoints", max_to_keep=2)
if manager.restore_or_initialize():
    print(f"resumed after epoch {epoch.numpy()}", flush=True)
while epoch < EPOCHS:
    for metric in (train_accuracy, test_loss, test_accuracy):
        metric.reset_state()
    loss = sum(distributed_train_step(batch) for batch in train_batches) / (1500 // GLOBAL_BATCH_SIZE)
    for batch in test_batches:
        distributed_test_step(batch)
    epoch.assign_add(1)
    manager.save()
    results = f"loss {loss:.4f} accuracy {train_accuracy.result():.4f} test loss {test_loss.result():.4f}"
    print(f"epoch {epoch.numpy()}: {results} test accuracy {test_accuracy.result():.4f}", flush=True)
model.save(f"{DIRECTORY}/model.keras")

"""Multi-worker training with a custom loop and Keras 3. Every worker runs this program; TF_CONFIG tells each its task.

`tftj run examples/lessons/multi-worker-custom-loop.yaml` reaches a test accuracy of 0.97.
"""

import os

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle

# The workers connect here, and wait for each other. No other call of TensorFlow may come first.
strategy = tf.distribute.MultiWorkerMirroredStrategy()

DIRECTORY = os.environ.get("TFTRAINING_DIR", "training/lesson-multi-worker-custom-loop")
EPOCHS, STEPS_PER_EPOCH = 10, 40
# Each worker trains on its share of the global batch, so the batch grows with the number of workers.
GLOBAL_BATCH_SIZE = 64 * strategy.num_replicas_in_sync
images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
train = tf.data.Dataset.from_tensor_slices((images[:1500] / 16, labels[:1500]))
train = train.shuffle(1500, seed=1).repeat().batch(GLOBAL_BATCH_SIZE)
test = tf.data.Dataset.from_tensor_slices((images[1500:] / 16, labels[1500:])).batch(GLOBAL_BATCH_SIZE)
options = tf.data.Options()  # the data are in memory, not in files: each worker keeps its share of each batch
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
iterator = iter(strategy.experimental_distribute_dataset(train.with_options(options)))
test_batches = strategy.experimental_distribute_dataset(test.with_options(options))

with strategy.scope():
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])
    optimizer = keras.optimizers.Adam(0.001)
    optimizer.build(model.trainable_variables)  # a checkpoint restores only variables that exist
    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    accuracy = keras.metrics.SparseCategoricalAccuracy()


def step_fn(features, labels):
    """One step of one replica on its share of a batch. The optimizer sums the gradients of all replicas."""
    with tf.GradientTape() as tape:
        losses = loss_object(labels, model(features, training=True))
        loss = tf.nn.compute_average_loss(losses, global_batch_size=GLOBAL_BATCH_SIZE)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


@tf.function
def train_epoch(iterator):
    """The mean loss of an epoch, all of whose steps run without a return to Python."""
    total_loss = 0.0
    for _ in tf.range(STEPS_PER_EPOCH):
        per_replica_losses = strategy.run(step_fn, args=next(iterator))
        total_loss += strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica_losses, axis=None)
    return total_loss / STEPS_PER_EPOCH


@tf.function
def test_step(inputs):
    strategy.run(lambda features, labels: accuracy.update_state(labels, model(features)), args=inputs)


# All workers must save, and only the checkpoints of worker 0, the chief, are kept.
task_id = strategy.cluster_resolver.task_id or 0
checkpoints = f"{DIRECTORY}/checkpoints"
own = checkpoints if task_id == 0 else f"{DIRECTORY}/workertemp_{task_id}"
epoch = tf.Variable(0, trainable=False)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, own, max_to_keep=2)
if latest := tf.train.latest_checkpoint(checkpoints):
    checkpoint.restore(latest)
    print(f"resumed after epoch {epoch.numpy()}", flush=True)
while epoch < EPOCHS:
    loss = train_epoch(iterator)
    accuracy.reset_state()
    for batch in test_batches:
        test_step(batch)
    epoch.assign_add(1)
    manager.save()
    print(f"epoch {epoch.numpy()}: loss {loss:.4f} test accuracy {accuracy.result():.4f}", flush=True)
model.save(f"{DIRECTORY if task_id == 0 else own}/model.keras")

"""Train a convolutional network with a training loop of its own, on all GPUs of a machine or on parts of its CPU.

    python -m tftraining.examples.mirrored_custom_loop --data fashion_mnist --logical-devices 2

MirroredStrategy keeps a copy of the model on every device and gives each its part of every batch. The loop comes in
three styles that train the same: `dataset` walks over the data, `iterator` takes a fixed number of steps from an
iterator, and `epoch` does a whole epoch inside one tf.function, with the fewest returns to Python.

Every second epoch a checkpoint goes to `<directory>/checkpoints`, and a program that is started again goes on from the
last one. At the end it is restored without any strategy and measured on the test data, as whoever uses it will do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import tensorflow as tf
import tf_keras as keras

from tftraining import data, machine
from tftraining.data import Examples
from tftraining.journal import Journal, say
from tftraining.loop import Replica, evaluate, metrics_of_test, metrics_of_training, scaling_optimizer
from tftraining.options import Defaults, check_packages, make_directory, make_parser, positive, run_program
from tftraining.pipeline import epoch_batches, order_of, test_batches

DEFAULTS = Defaults(10, 64, 0.001, batch="for each device", optimizer="Adam")
STYLES = ("dataset", "iterator", "epoch")
CHECKPOINTS_KEPT = 3
TEST_BATCH = 500


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the options; SystemExit(2) if they are wrong."""
    parser = make_parser("mirrored_custom_loop", __doc__, DEFAULTS)
    group = parser.add_argument_group("this program")
    group.add_argument("--logical-devices", type=positive, metavar="N", help="train on N parts of the CPU, not on GPUs")
    group.add_argument("--style", choices=STYLES, default="epoch", help="of the loop (epoch)")
    group.add_argument("--weight-decay", type=float, default=0.0, metavar="L2", help="a loss of the weights (none)")
    group.add_argument(
        "--save-every", type=positive, default=2, metavar="EPOCHS", help="a checkpoint every so many epochs (2)"
    )
    return parser.parse_args(argv)


def make_model(shape: tuple[int, ...], weight_decay: float = 0.0) -> keras.Model:
    """The network of TensorFlow's tutorial on custom training, from images of `shape` (height, width, 1) to logits."""
    # The tutorial's images are 28 x 28; those of digits would shrink to nothing without padding.
    layer = partial(keras.layers.Conv2D, padding="valid" if min(shape[:2]) >= 16 else "same", activation="relu")
    decay = keras.regularizers.L2(weight_decay) if weight_decay else None
    return keras.Sequential(
        [
            keras.layers.Input(shape),
            layer(32, 3, kernel_regularizer=decay),
            keras.layers.MaxPooling2D(),
            layer(64, 3, kernel_regularizer=decay),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu", kernel_regularizer=decay),
            keras.layers.Dense(data.CLASSES, kernel_regularizer=decay),
            keras.layers.Activation("linear", dtype="float32"),
        ]
    )


class Training:
    """A model under a strategy, and the ways to take it through an epoch."""

    def __init__(self, strategy: tf.distribute.Strategy, shape: tuple[int, ...], options: argparse.Namespace) -> None:
        self.strategy = strategy
        with strategy.scope():
            model = make_model(shape, options.weight_decay)
            optimizer = scaling_optimizer(keras.optimizers.Adam(options.learning_rate), options.precision, keras)
            optimizer.build(model.trainable_variables)
        batch_size = options.batch_size * strategy.num_replicas_in_sync
        self.replica = Replica(model, optimizer, batch_size, jit=options.jit)
        self._step = tf.function(self._all_replicas)
        self._epoch = tf.function(self._whole_epoch)
        self._test_step = tf.function(self._test_all_replicas)

    def _all_replicas(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return self._sum(self.strategy.run(self.replica.train, batch))

    def _test_all_replicas(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return self._sum(self.strategy.run(self.replica.test, batch))

    def _sum(self, parts: tf.Tensor) -> tf.Tensor:
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)

    def _whole_epoch(self, batches: tf.distribute.DistributedIterator, steps: tf.Tensor) -> tf.Tensor:
        told = tf.zeros(3)
        for _ in tf.range(steps):
            told += self._all_replicas(next(batches))
        return told

    def train(self, style: str, batches: tf.data.Dataset, steps: int) -> tf.Tensor:
        """Train on `steps` batches; the sum of what the steps told."""
        distributed = self.strategy.experimental_distribute_dataset(batches)
        if style == "dataset":
            return sum((self._step(batch) for batch in distributed), tf.zeros(3))
        iterator = iter(distributed)
        if style == "iterator":
            return sum((self._step(next(iterator)) for _ in range(steps)), tf.zeros(3))
        return self._epoch(iterator, tf.constant(steps))

    def test(self, batches: tf.data.Dataset) -> dict[str, float]:
        """Loss and accuracy over all batches, on all devices."""
        distributed = self.strategy.experimental_distribute_dataset(batches)
        return metrics_of_test(sum((self._test_step(batch) for batch in distributed), tf.zeros(3)))


def train(options: argparse.Namespace, training: Training, examples: data.Data, journal: Journal) -> str:
    """Train to the last epoch, from the last checkpoint if there is one; the path of the last checkpoint."""
    order = order_of(options, training.strategy.num_replicas_in_sync)
    steps = order.steps(len(examples.train))
    done = tf.Variable(0, trainable=False, dtype=tf.int64)
    replica = training.replica
    checkpoint = tf.train.Checkpoint(model=replica.model, optimizer=replica.optimizer, epoch=done)
    manager = tf.train.CheckpointManager(checkpoint, checkpoints_in(options.directory), CHECKPOINTS_KEPT)
    checkpoint.restore(manager.latest_checkpoint)
    journal.resume(int(done), int(replica.optimizer.iterations.numpy()))
    for epoch in range(int(done), options.epochs):
        journal.begin()
        told = training.train(options.style, epoch_batches(examples.train, order, epoch), steps)
        tested = training.test(test_batches(examples.test, TEST_BATCH))
        journal.end(epoch + 1, metrics_of_training(told, steps) | tested)
        done.assign_add(1)
        if (epoch + 1) % options.save_every == 0 or epoch + 1 == options.epochs:
            manager.save(checkpoint_number=epoch + 1)
    return str(manager.latest_checkpoint)


def checkpoints_in(directory: str) -> str:
    """Where the checkpoints of a job are."""
    return str(Path(directory) / "checkpoints")


def restored(checkpoint: str, shape: tuple[int, ...]) -> keras.Model:
    """The model of a checkpoint in this process, under no strategy, whatever it was trained under."""
    model = make_model(shape)
    tf.train.Checkpoint(model=model).restore(checkpoint).expect_partial().assert_existing_objects_matched()
    return model


def measure(model: keras.Model, examples: Examples) -> dict[str, float]:
    """The loss and accuracy of a model that is under no strategy."""
    return evaluate(Replica(model, None, len(examples)), test_batches(examples, TEST_BATCH))


def run(options: argparse.Namespace) -> None:
    """The whole program."""
    check_packages(options)
    examples = data.load(options.data, options.data_dir)
    devices = machine.prepare(options, options.logical_devices)
    make_directory(options.directory)
    strategy = tf.distribute.MirroredStrategy(devices)
    say(f"{len(examples.train)} images of {options.data} on {', '.join(devices)}, into {options.directory}")
    journal = Journal(options.epochs, options)
    shape = examples.train.images.shape[1:]
    checkpoint = train(options, Training(strategy, shape, options), examples, journal)
    measured = measure(restored(checkpoint, shape), examples.test)
    journal.finish(
        {"accuracy": measured["test_accuracy"], "loss": measured["test_loss"], "devices": len(devices)},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and measured; 2 with one line for what cannot be done."""
    options = parse(argv)
    return run_program("mirrored_custom_loop", lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())

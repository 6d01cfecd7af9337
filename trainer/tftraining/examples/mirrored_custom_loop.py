"""Train a convolutional network with a training loop of its own, on all GPUs of a machine or on parts of its CPU.

    python -m tftraining.examples.mirrored_custom_loop --data fashion_mnist --logical-devices 2

MirroredStrategy keeps a copy of the model on every device and gives each its part of every batch. The loop comes in
three styles that train the same: `dataset` walks over the data, `iterator` takes a fixed number of steps from an
iterator, and `epoch` does a whole epoch inside one tf.function, with the fewest returns to Python.

Every second epoch a checkpoint goes to `<directory>/checkpoints`, and a program that is started again goes on from the
last one. At the end it is restored without any strategy, saved to `<directory>/model` and measured on the test data, as
whoever uses it will do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tftraining.lib.options import (
    STYLES,
    Defaults,
    add_devices,
    add_schedule,
    check_accumulation,
    check_early,
    make_directory,
    make_parser,
    positive,
    run_program,
)

DEFAULTS = Defaults(10, 64, 0.001, batch="for each device", optimizer="Adam")
TEST_BATCH = 500


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; SystemExit(2) if they are invalid."""
    parser = make_parser("mirrored_custom_loop", __doc__, DEFAULTS)
    group = parser.add_argument_group("this program")
    add_devices(group)
    add_schedule(group)
    group.add_argument("--style", choices=STYLES, default="epoch", help="how the loop iterates over the data (epoch)")
    group.add_argument("--weight-decay", type=float, default=0.0, metavar="L2", help="L2 loss of the weights (none)")
    group.add_argument(
        "--save-every", type=positive, default=2, metavar="EPOCHS", help="epochs between checkpoints (2)"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    # Answer --help and invalid options before the import of TensorFlow, which takes seconds.
    check_early("mirrored_custom_loop", parse(None), check_accumulation)

import tensorflow as tf
import tf_keras as keras

from tftraining.lib import data, device_setup
from tftraining.lib.checkpoints import State, restored
from tftraining.lib.custom_loop import Training
from tftraining.lib.input_pipeline import as_tensors, epoch_batches, order_of, plain_batches
from tftraining.lib.schedule import learning_rate
from tftraining.lib.train_step import TrainStep, evaluate, metrics_of_training, scaling_optimizer
from tftraining.lib.training_log import TrainingLog, say


def make_model(shape: tuple[int, ...], weight_decay: float = 0.0) -> keras.Model:
    """The network of TensorFlow's tutorial on custom training, from images of `shape` (height, width, 1) to logits."""
    # The tutorial's images are 28 x 28; the 8 x 8 digits would shrink to nothing without padding.
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


def make_training(strategy: tf.distribute.Strategy, examples: data.Examples, options: argparse.Namespace) -> Training:
    """The network for these examples and its optimizer under a strategy, for --batch-size examples on each replica."""
    order = order_of(options, strategy.num_replicas_in_sync)
    steps = options.epochs * order.steps(len(examples))
    with strategy.scope():
        model = make_model(examples.images.shape[1:], options.weight_decay)
        adam = keras.optimizers.Adam(learning_rate(options, steps, keras))
        optimizer = scaling_optimizer(adam, options.precision, keras)
    train_step = TrainStep(model, optimizer, order.batch_size, jit=options.jit, accumulate=options.accumulate)
    return Training(strategy, train_step)


def train(options: argparse.Namespace, training: Training, examples: data.Data, training_log: TrainingLog) -> str:
    """Train to the last epoch, from the last checkpoint if there is one; the path of the last checkpoint."""
    order = order_of(options, training.strategy.num_replicas_in_sync)
    steps = order.steps(len(examples.train))
    state = State(training.train_step, options.directory)
    training_log.weights = training.train_step.model.trainable_variables
    training_log.start(state.epoch, state.step, steps)
    tensors, tests = as_tensors(examples.train), training.distributed(plain_batches(examples.test, TEST_BATCH))
    for epoch in range(state.epoch, options.epochs):
        training_log.begin()
        tallies = training.train(options.style, epoch_batches(tensors, order, epoch), steps, training_log.follow)
        tested = training.test(tests)
        training_log.end(epoch + 1, metrics_of_training(tallies, steps) | tested)
        if (epoch + 1) % options.save_every == 0 or epoch + 1 == options.epochs:
            state.save(epoch + 1)
        else:
            state.reach(epoch + 1)
    state.done()
    return state.latest


def run(options: argparse.Namespace) -> None:
    """Run the whole program."""
    check_accumulation(options)
    examples = data.load(options.data, options.data_dir)
    devices = device_setup.chosen(device_setup.prepare(options, options.logical_devices), options.devices)
    make_directory("mirrored_custom_loop", options, "data", "precision")
    strategy = tf.distribute.MirroredStrategy(devices)
    say(f"{len(examples.train)} images of {options.data} on {', '.join(devices)}, into {options.directory}")
    training_log = TrainingLog(options.epochs, options)
    shape = examples.train.images.shape[1:]
    checkpoint = train(options, make_training(strategy, examples.train, options), examples, training_log)
    alone = restored(make_model(shape), checkpoint)
    alone.save(str(Path(options.directory) / "model"))
    measured = evaluate(alone, plain_batches(examples.test, TEST_BATCH))
    training_log.finish(
        {"accuracy": measured["test_accuracy"], "loss": measured["test_loss"], "devices": len(devices)},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and measured; 2, with one line, for a request that cannot be fulfilled."""
    return run_program("mirrored_custom_loop", parse(argv), run)


if __name__ == "__main__":
    sys.exit(main())

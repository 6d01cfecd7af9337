"""Train a MobileNetV2 or a ResNet-50 on a directory of pictures in folders named after their classes.

    python -m tftraining.examples.transfer_learning --make-folders --data mnist
    python -m tftraining.examples.transfer_learning --folders FOLDER --weights imagenet --directory head
    python -m tftraining.examples.transfer_learning --folders FOLDER --weights head/best/weights --fine-tune

With weights at hand (--weights FILE or imagenet) the network below the last layers stays as it is and only these are
trained; with --fine-tune, and without weights, all of it is. The pictures are split into training and validation,
decoded and resized by tf.data on all cores, and trained on under MirroredStrategy on all GPUs or on the CPU. In a job
of several workers, MultiWorkerMirroredStrategy joins them, and each reads only its share of the pictures.

The best model so far is kept in `<directory>/best`, measured by its accuracy on the validation, and saved to
`<directory>/model` at the end; the state after each epoch is in `<directory>/checkpoints`, from which a program that is
started again goes on.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tftraining.cluster import Task, full_gang, task_from_environment
from tftraining.lib.options import (
    Defaults,
    UsageError,
    add_devices,
    add_schedule,
    check_accumulation,
    check_early,
    check_weights,
    make_directory,
    make_parser,
    positive,
    run_program,
)

DEFAULTS = Defaults(5, 32, 0.005, batch="for each device", optimizer="Adam")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; SystemExit(2) if they are invalid."""
    parser = make_parser("transfer_learning", __doc__, DEFAULTS)
    group = parser.add_argument_group("this program")
    add = group.add_argument
    add(
        "--folders",
        metavar="FOLDER",
        help="folder with the pictures, one folder per class, or with train/CLASS and test/CLASS"
        " (default DIRECTORY/pictures)",
    )
    add("--make-folders", action="store_true", help="create these folders from --data if they are missing")
    add("--pictures", type=positive, metavar="N", help="number of pictures for --make-folders (all)")
    add("--validation", type=float, default=0.2, metavar="PART", help="fraction of the pictures for validation (0.2)")
    add("--skip-unreadable", action="store_true", help="leave out the pictures that cannot be decoded")
    add("--network", choices=("mobilenet_v2", "resnet50"), default="mobilenet_v2", help="the network (mobilenet_v2)")
    add("--size", type=positive, default=32, metavar="PIXELS", help="height and width of the network input (32)")
    add("--width", type=float, default=0.35, help="width of MobileNetV2: 0.35, 0.5, 0.75, 1.0, 1.3 or 1.4 (0.35)")
    add(
        "--head",
        choices=("linear", "dense"),
        default="linear",
        help="new last layers: one with logits, or average pooling, 512 units and softmax (linear)",
    )
    add(
        "--weights",
        default="none",
        metavar="FILE",
        help="initial weights: a file, another run's best/weights, imagenet, or none (none)",
    )
    add("--fine-tune", action="store_true", help="train all layers, pretrained ones included")
    add_devices(group)
    add_schedule(group)
    return parser.parse_args(argv)


def check(options: argparse.Namespace, task: Task) -> None:
    """UsageError for numbers out of range, and for options that cannot work for this task."""
    if not 0 < options.validation < 1:
        raise UsageError(f"--validation {options.validation} is not between 0 and 1")
    if options.size < 32:
        raise UsageError(f"--size {options.size}: the network needs 32 pixels at least")
    if task.type not in ("chief", "worker"):
        raise UsageError(f"this program supports the roles chief and worker, not {task.name}")
    if task.workers > 1 and (options.devices or options.logical_devices):
        raise UsageError("--devices and --logical-devices are for one worker, and this job has several")
    check_weights(options.weights)
    check_accumulation(options)


if __name__ == "__main__":
    # Answer --help and invalid options before the import of TensorFlow, which takes seconds.
    check_early("transfer_learning", parse(None), lambda options: check(options, task_from_environment()))

import tensorflow as tf
import tf_keras as keras
from tqdm import tqdm

from tftraining import paths
from tftraining.lib import device_setup
from tftraining.lib.checkpoints import State, restored
from tftraining.lib.custom_loop import Batches, Training
from tftraining.lib.image_folders import Pictures, naming_unreadable, picture_batches, pictures_of, shared_batches
from tftraining.lib.image_network import losses_of, make_network
from tftraining.lib.input_pipeline import Order, order_of, sharded
from tftraining.lib.schedule import learning_rate
from tftraining.lib.train_step import TrainStep, evaluate, metrics_of_training, scaling_optimizer
from tftraining.lib.training_log import TrainingLog, read_history, say


def make_strategy(devices: Sequence[str], task: Task) -> tf.distribute.Strategy:
    """The strategy for these devices or, in a job of several workers, for all workers; waits for the others."""
    if task.workers > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    if len(devices) == 1 and devices[0].endswith(":0"):
        # The default strategy. MirroredStrategy would take a quarter more time for each step on the same device.
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(devices)


def make_order(options: argparse.Namespace, replicas: int, pictures: int, task: Task) -> Order:
    """The order of the pictures. UsageError if they are fewer than the workers need for a step.

    Several workers make the same number of steps, so an epoch leaves out the last pictures that fill no batch. An epoch
    has as many steps as in the full gang while members are missing: a schedule of the learning rate counts the steps.
    """
    order, full = order_of(options, replicas), full_gang(task.workers)
    if full == 1:
        return order
    if pictures < order.batch_size:
        raise UsageError(
            f"{pictures} pictures for training are fewer than one batch of all workers, {order.batch_size}:"
            " choose a smaller --batch-size"
        )
    batch_of_all = order.batch_size // task.workers * full
    return replace(order, steps_per_epoch=options.steps_per_epoch or max(pictures // batch_of_all, 1))


def make_training(strategy: tf.distribute.Strategy, classes: int, options: argparse.Namespace, steps: int) -> Training:
    """The network and its optimizer under a strategy, for a training of `steps` steps."""
    with strategy.scope():
        model = make_network(classes, options)
        adam = keras.optimizers.Adam(learning_rate(options, steps, keras))
        optimizer = scaling_optimizer(adam, options.precision, keras)
    batch_size, losses = options.batch_size * strategy.num_replicas_in_sync, losses_of(options.head, classes)
    train_step = TrainStep(model, optimizer, batch_size, jit=options.jit, losses=losses, accumulate=options.accumulate)
    return Training(strategy, train_step)


class PictureTraining:
    """A training on pictures, with the best model so far. All workers of a job make the same calls."""

    def __init__(
        self,
        options: argparse.Namespace,
        task: Task,
        training: Training,
        parts: tuple[Pictures, Pictures],
        order: Order,
    ) -> None:
        self.options, self.task, self.training, self.order = options, task, training, order
        self.pictures, self.validation = parts
        tests = picture_batches(self.validation, order, options.size, None)
        self._validation_batches = training.distributed(sharded(tests, "data"))
        self.steps = order.steps(len(self.pictures))
        self.state = State(training.train_step, options.directory, task)
        self._saver = tf.train.Checkpoint(model=training.train_step.model)
        self._own_best = paths.write_filepath(best_of(options), task)
        self.speeds: list[float] = []

    def batches(self, epoch: int) -> Batches:
        """The batches of an epoch."""
        make = picture_batches if self.task.workers == 1 else shared_batches
        batches: Batches = make(self.pictures, self.order, self.options.size, epoch)
        return batches

    def train(self, training_log: TrainingLog) -> None:
        """Train to the last epoch, from the last checkpoint if there is one."""
        options, state = self.options, self.state
        training_log.weights = self.training.train_step.model.trainable_variables
        training_log.start(state.epoch, state.step, self.steps)
        best = best_accuracy(options, state.epoch)
        epochs = tqdm(range(state.epoch, options.epochs), "epochs", options.epochs, initial=state.epoch, **self._bars())
        for epoch in epochs:
            metrics = self._epoch(epoch, training_log)
            if metrics["test_accuracy"] > best:
                best = metrics["test_accuracy"]
                self._saver.write(self._own_best)
            training_log.end(epoch + 1, metrics)
            state.save(epoch + 1)
        state.done()

    def _epoch(self, epoch: int, training_log: TrainingLog) -> dict[str, float]:
        training_log.begin()
        bar = tqdm(desc=f"epoch {epoch + 1}", total=self.steps, leave=False, unit="step", **self._bars())
        began = time.monotonic()
        style = "dataset" if self.task.workers == 1 else "iterator"  # the batches of several workers have no end
        tallies = self.training.train(style, self.batches(epoch), self.steps, partial(watched, bar, training_log))
        metrics = metrics_of_training(tallies, self.steps)
        self.speeds.append(self.order.span(len(self.pictures)) / (time.monotonic() - began))
        return metrics | self.training.test(self._validation_batches)

    def _bars(self) -> dict[str, Any]:
        return {"file": sys.stderr, "disable": not self.task.is_chief}


def best_of(options: argparse.Namespace) -> str:
    """The path of the best checkpoint."""
    return str(Path(options.directory) / "best" / "weights")


def best_accuracy(options: argparse.Namespace, epochs: int) -> float:
    """The best accuracy on the validation in the epochs completed before. All workers read it from the chief's file."""
    records = read_history(Path(options.directory) / "history.json")
    return max((record["test_accuracy"] for record in records if record["epoch"] <= epochs), default=-1.0)


def watched(bar: tqdm, training_log: TrainingLog, batches: Iterable[Any]) -> Iterator[Any]:
    """The batches; the bar and the launcher count each completed one."""
    with bar:
        for batch in training_log.follow(batches):
            yield batch
            bar.update()


def finish(training: PictureTraining, training_log: TrainingLog) -> None:
    """Save and measure the best model without a strategy. All workers do so, and only the chief's model is kept."""
    options, task = training.options, training.task
    names = training.pictures.names
    best = restored(make_network(len(names), options), best_of(options))
    best.save(paths.write_filepath(str(Path(options.directory) / "model"), task))
    batches = picture_batches(training.validation, training.order, options.size, None)
    measured = evaluate(best, batches, losses_of(options.head, len(names)))
    if not task.is_chief:
        return
    values = {"accuracy": measured["test_accuracy"], "loss": measured["test_loss"], "classes": len(names)}
    if training.speeds:
        values["images_per_second"] = statistics.median(training.speeds[1:] or training.speeds)  # the first traces
    training_log.finish({**values, "devices": training.training.strategy.num_replicas_in_sync})


def run(options: argparse.Namespace) -> None:
    """Run the whole program for one process of the job."""
    task = task_from_environment()
    check(options, task)
    devices = device_setup.chosen(device_setup.prepare(options, options.logical_devices), options.devices)
    make_directory("transfer_learning", options, "network", "width", "head", "precision")
    strategy = make_strategy(devices, task)  # before any operation: TensorFlow refuses collectives after one
    parts = pictures_of(options)
    names, replicas = parts[0].names, strategy.num_replicas_in_sync
    places = ", ".join(devices) if task.workers == 1 else f"{task.workers} workers"
    say(f"{len(parts[0])} pictures of {len(names)} classes on {places}, into {options.directory}")
    order = make_order(options, replicas, len(parts[0]), task)
    steps = options.epochs * order.steps(len(parts[0]))
    training_log = TrainingLog(options.epochs, options if task.is_chief else None)
    with naming_unreadable(*parts):
        training = PictureTraining(options, task, make_training(strategy, len(names), options, steps), parts, order)
        training.train(training_log)
        finish(training, training_log)
    if "TFTRAINING_DIR" not in os.environ:
        for directory in (options.directory, str(Path(best_of(options)).parent)):
            paths.remove_own_temporary_directory(directory, task)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and measured; 2, with one line, for a request that cannot be fulfilled."""
    return run_program("transfer_learning", parse(argv), run)


if __name__ == "__main__":
    sys.exit(main())

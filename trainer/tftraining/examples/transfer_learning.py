"""Train a MobileNetV2 on a directory of pictures in folders named after their classes.

    python -m tftraining.examples.transfer_learning --make-folders --data mnist
    python -m tftraining.examples.transfer_learning --folders FOLDER --weights imagenet --directory head
    python -m tftraining.examples.transfer_learning --folders FOLDER --weights head/best/weights --fine-tune

With weights at hand (--weights FILE or imagenet) the network below the last layer stays as it is and only the last one
is trained; with --fine-tune, and without weights, all of it is. The pictures are split into training and validation,
decoded and resized by tf.data on all cores, and trained on under MirroredStrategy on all GPUs or on the CPU.

The best model so far is kept in `<directory>/best`, measured by its accuracy on the validation, and saved to
`<directory>/model` at the end; the state after each epoch is in `<directory>/checkpoints`, from which a program that is
started again goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tftraining.lib.options import (
    Defaults,
    UsageError,
    add_devices,
    check_early,
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
    add("--size", type=positive, default=32, metavar="PIXELS", help="height and width of the network input (32)")
    add("--width", type=float, default=0.35, help="width of the network: 0.35, 0.5, 0.75, 1.0, 1.3 or 1.4 (0.35)")
    add(
        "--weights",
        default="none",
        metavar="FILE",
        help="initial weights: a file, another run's best/weights, imagenet, or none (none)",
    )
    add("--fine-tune", action="store_true", help="train all layers, pretrained ones included")
    add("--skip-unreadable", action="store_true", help="leave out the pictures that cannot be decoded")
    add_devices(group)
    return parser.parse_args(argv)


def check(options: argparse.Namespace) -> None:
    """UsageError for numbers out of range and missing files."""
    if not 0 < options.validation < 1:
        raise UsageError(f"--validation {options.validation} is not between 0 and 1")
    if options.size < 32:
        raise UsageError(f"--size {options.size}: MobileNetV2 needs 32 pixels at least")
    known = options.weights in ("none", "imagenet") or Path(options.weights).is_file()
    if not known and not is_checkpoint(options.weights):
        raise UsageError(f"no weights file {options.weights}: choose another, imagenet or none")


def is_checkpoint(path: str) -> bool:
    """Whether the path is a checkpoint, such as `<directory>/best/weights` of another run."""
    return Path(f"{path}.index").is_file()


if __name__ == "__main__":
    # Answer --help and invalid options before the import of TensorFlow, which takes seconds.
    check_early("transfer_learning", parse(None), check)

import tensorflow as tf
import tf_keras as keras
from tqdm import tqdm

from tftraining.lib import data, device_setup
from tftraining.lib.checkpoints import State, restored
from tftraining.lib.custom_loop import Training
from tftraining.lib.image_folders import (
    Pictures,
    find_parts,
    naming_unreadable,
    picture_batches,
    unreadable,
    write_folders,
)
from tftraining.lib.input_pipeline import order_of
from tftraining.lib.train_step import TrainStep, evaluate, metrics_of_training, scaling_optimizer
from tftraining.lib.training_log import TrainingLog, say


def make_model(classes: int, options: argparse.Namespace) -> keras.Model:
    """MobileNetV2 from (size, size, 3) to logits, with a new last layer. UsageError if the weights do not fit."""
    none, ours = options.weights == "none", is_checkpoint(options.weights)
    try:
        base = keras.applications.MobileNetV2(
            input_shape=(options.size, options.size, 3),
            alpha=options.width,
            include_top=False,
            weights=None if none or ours else options.weights,
            pooling="avg",
        )
    except Exception as error:  # h5py, the download and Keras each raise their own errors
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"cannot load --weights {options.weights}: {reason}") from error
    base.trainable = none or options.fine_tune
    for layer in base.layers:
        # With the default of 0.999, inference needs thousands of training steps before it works.
        if none and isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9
    head = [keras.layers.Dropout(0.2), keras.layers.Dense(classes), keras.layers.Activation("linear", dtype="float32")]
    model = keras.Sequential([base, *head])
    return restored(model, options.weights) if ours else model


def train(
    options: argparse.Namespace, training: Training, parts: tuple[Pictures, Pictures], training_log: TrainingLog
) -> Path:
    """Train to the last epoch, from the last checkpoint if there is one; the path of the best checkpoint."""
    order = order_of(options, training.strategy.num_replicas_in_sync)
    steps, state = order.steps(len(parts[0])), State(training.train_step, options.directory)
    training_log.weights = training.train_step.model.trainable_variables
    training_log.start(state.epoch, state.step, steps)
    best = Path(options.directory) / "best" / "weights"
    saver = tf.train.Checkpoint(model=training.train_step.model)
    epochs = range(state.epoch, options.epochs)
    for epoch in tqdm(epochs, "epochs", options.epochs, initial=state.epoch, file=sys.stderr):
        training_log.begin()
        bar = tqdm(desc=f"epoch {epoch + 1}", total=steps, leave=False, file=sys.stderr, unit="step")
        batches = picture_batches(parts[0], order, options.size, epoch)
        tallies = training.train("dataset", batches, steps, partial(watched, bar, training_log))
        tested = training.test(picture_batches(parts[1], order, options.size, None))
        if tested["test_accuracy"] > max((record["test_accuracy"] for record in training_log.history), default=-1.0):
            saver.write(str(best))
        training_log.end(epoch + 1, metrics_of_training(tallies, steps) | tested)
        state.save(epoch + 1)
    return best


def watched(bar: tqdm, training_log: TrainingLog, batches: Iterable[Any]) -> Iterator[Any]:
    """The batches; the bar and the launcher count each completed one."""
    with bar:
        for batch in training_log.follow(batches):
            yield batch
            bar.update()


def make_training(strategy: tf.distribute.Strategy, classes: int, options: argparse.Namespace) -> Training:
    """The network and its optimizer under a strategy."""
    with strategy.scope():
        model = make_model(classes, options)
        optimizer = scaling_optimizer(keras.optimizers.Adam(options.learning_rate), options.precision, keras)
    batch_size = options.batch_size * strategy.num_replicas_in_sync
    return Training(strategy, TrainStep(model, optimizer, batch_size, jit=options.jit))


def pictures_of(options: argparse.Namespace) -> tuple[Pictures, Pictures]:
    """The images for training and for the test; --make-folders writes them first."""
    folder = Path(options.folders or Path(options.directory) / "pictures")
    if options.make_folders and not folder.exists():
        count = write_folders(data.load(options.data, options.data_dir).train, folder, options.pictures)
        say(f"wrote {count} pictures of {options.data} into {folder}")
    parts = find_parts(folder, options.validation, options.seed)
    if not options.skip_unreadable:
        return parts
    bad = {file for part in parts for file in unreadable(part)}
    for file in sorted(bad):
        say(f"skipped {file}: it cannot be decoded")
    train, test = (part.without(bad) for part in parts)
    return train, test


def run(options: argparse.Namespace) -> None:
    """Run the whole program."""
    check(options)
    devices = device_setup.chosen(device_setup.prepare(options, options.logical_devices), options.devices)
    make_directory("transfer_learning", options, "width", "precision")
    parts = pictures_of(options)
    names = parts[0].names
    say(f"{len(parts[0])} pictures of {len(names)} classes on {', '.join(devices)}, into {options.directory}")
    training_log = TrainingLog(options.epochs, options)
    training = make_training(tf.distribute.MirroredStrategy(devices), len(names), options)
    with naming_unreadable(*parts):
        checkpoint = train(options, training, parts, training_log)
    best = restored(make_model(len(names), options), str(checkpoint))
    best.save(str(Path(options.directory) / "model"))
    order = order_of(options, len(devices))
    measured = evaluate(best, picture_batches(parts[1], order, options.size, None))
    values = {"accuracy": measured["test_accuracy"], "loss": measured["test_loss"], "classes": len(names)}
    training_log.finish({**values, "devices": len(devices)})


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and measured; 2, with one line, for a request that cannot be fulfilled."""
    return run_program("transfer_learning", parse(argv), run)


if __name__ == "__main__":
    sys.exit(main())

"""How much of a training's time goes into its input, beside the same training with a batch that never changes.

`python -m benchmarks.input_pipeline --data mnist --data-dir FOLDER`: steps per second of the custom loop under
MirroredStrategy with one constant batch (no input at all), with our pipeline, and with our pipeline without prefetch.
With `--pictures` it is the network of the program transfer_learning, fed with PNG files that are decoded and resized on
the cores that also train. They train in turns of about a second, so that what else the machine does hits all kinds; the
first steps of a turn, which find a filled buffer, do not count. Figures are medians, the share that of the shares of
the turns with a bootstrap's interval of 95 %; the CPU share, which a busy machine disturbs less, is of the CPU seconds
a step. The last line is JSON. It asserts nothing: the figures of a busy machine are noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.overhead import interval
from tftraining.examples import mirrored_custom_loop, transfer_learning
from tftraining.lib import data, device_setup, image_folders
from tftraining.lib.custom_loop import Training
from tftraining.lib.input_pipeline import Order, as_tensors, epoch_batches
from tftraining.lib.options import DATA_SETS

UNCOUNTED = 10  # steps at the start of a turn
PICTURES = 2000

Sources = dict[str, Callable[[], tf.data.Dataset]]
Pair = tuple[tf.Tensor, tf.Tensor]


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(prog="benchmarks.input_pipeline", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=DATA_SETS, default="digits")
    parser.add_argument("--data-dir")
    parser.add_argument("--pictures", action="store_true", help="PNG files, for the network of transfer_learning")
    parser.add_argument("--devices", type=int, default=1, help="number of logical CPU devices")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64, help="batch size of all devices together")
    return parser.parse_args()


def constant(batch: Pair, steps: int) -> tf.data.Dataset:
    """The same batch `steps` times."""
    return tf.data.Dataset.from_tensors(batch).cache().repeat(steps)


def array_sources(examples: data.Examples, order: Order) -> Sources:
    """The pipelines of the programs with data in memory."""
    tensors, steps = as_tensors(examples), order.steps(len(examples))
    batch = next(iter(epoch_batches(tensors, order, 0)))
    return {
        "constant": lambda: constant(batch, steps),
        "pipeline": lambda: epoch_batches(tensors, order, 0),
        "no_prefetch": lambda: epoch_batches(tensors, order, 0, prefetch=False),
    }


def picture_sources(examples: data.Examples, order: Order, size: int, folder: Path) -> Sources:
    """The pipelines of transfer_learning, from files that this function writes."""
    image_folders.write_folders(examples, folder, PICTURES)
    pictures = image_folders.find_pictures(folder)
    batch = next(iter(image_folders.picture_batches(pictures, order, size, 0)))
    return {
        "constant": lambda: constant(batch, order.steps(len(pictures))),
        "pipeline": lambda: image_folders.picture_batches(pictures, order, size, 0),
    }


def take_turn(training: Training, batches: tf.distribute.DistributedIterator, steps: int) -> tuple[float, float]:
    """Steps per second, and CPU seconds of the whole process per step."""
    training.take(batches, UNCOUNTED).numpy()
    began, cpu = time.monotonic(), time.process_time()
    training.take(batches, steps).numpy()
    return steps / (time.monotonic() - began), (time.process_time() - cpu) / steps


def measure(training: Training, sources: Sources, options: argparse.Namespace) -> dict[str, Any]:
    """Steps per second of each kind, and the ratio of our pipeline to the constant batch."""
    iterators = {kind: training.begin(make()) for kind, make in sources.items()}
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in sources}
    for number in range(options.rounds + 1):
        for kind in sorted(sources, reverse=bool(number % 2)):
            turn = take_turn(training, iterators[kind], options.steps)
            if number:  # the first round traces
                found[kind].append(turn)
    speeds = {kind: round(statistics.median(speed for speed, _ in turns), 2) for kind, turns in found.items()}
    pairs = list(zip(found["pipeline"], found["constant"], strict=True))
    shares = [ours[0] / best[0] for ours, best in pairs]
    return {
        **{f"{kind}_steps_per_s": speed for kind, speed in speeds.items()},
        "pipeline_share": round(statistics.median(shares), 3),
        "pipeline_share_interval": [round(each, 3) for each in interval(shares)],
        "pipeline_cpu_share": round(statistics.median(best[1] / ours[1] for ours, best in pairs), 3),
    }


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Set up one program and measure it."""
    program = transfer_learning if options.pictures else mirrored_custom_loop
    per_device = str(options.batch_size // options.devices)
    arguments = program.parse(["--batch-size", per_device, "--logical-devices", str(options.devices)])
    devices = device_setup.prepare(arguments, options.devices)
    examples = data.load(options.data, options.data_dir).train
    strategy = tf.distribute.MirroredStrategy(devices)
    order = Order(options.batch_size, seed=1, steps_per_epoch=(options.rounds + 1) * (options.steps + UNCOUNTED))
    if options.pictures:
        training = transfer_learning.make_training(strategy, data.CLASSES, arguments, steps=1)
        return measure(training, picture_sources(examples, order, arguments.size, folder), options)
    training = mirrored_custom_loop.make_training(strategy, examples, arguments)
    return measure(training, array_sources(examples, order), options)


def main() -> None:
    """Measure and print."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        measured = run(options, Path(folder))
    described = {"data": options.data, "pictures": options.pictures, "devices": options.devices}
    print(json.dumps(described | measured | {"load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

"""How fast the training programs are fed and trained, beside a training that is never fed anew.

`python -m benchmarks.training --data mnist --data-dir FOLDER`: steps per second of the custom loop under
MirroredStrategy with one constant batch (no input at all), with our pipeline, and with our pipeline without prefetch;
rounds alternate, figures are medians. The last line is JSON. It must never judge: the figures of a busy machine are
noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

import tensorflow as tf

from tftraining import data, machine
from tftraining.examples import mirrored_custom_loop as program
from tftraining.mirrored import Training
from tftraining.pipeline import Order, as_tensors, epoch_batches

KINDS = ("constant", "pipeline", "no_prefetch")


def parse() -> tuple[argparse.Namespace, argparse.Namespace]:
    """The options of the benchmark, and those of the program that it times."""
    parser = argparse.ArgumentParser(prog="benchmarks.training", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", choices=data.NAMES, default="digits")
    parser.add_argument("--data-dir")
    parser.add_argument("--devices", type=int, default=1, help="parts of the CPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=64, help="for all devices together")
    options = parser.parse_args()
    per_device = options.batch_size // options.devices
    return options, program.parse(["--batch-size", str(per_device), "--logical-devices", str(options.devices)])


def batches_of(kind: str, examples: data.Examples, order: Order) -> tf.data.Dataset:
    """The batches of an epoch: one again and again, or ours."""
    if kind == "constant":
        batch = (examples.images[: order.batch_size], examples.labels[: order.batch_size])
        return tf.data.Dataset.from_tensors(batch).cache().repeat(order.steps(len(examples)))
    return epoch_batches(examples, order, 0, prefetch=kind == "pipeline")


def steps_per_second(training: Training, batches: tf.data.Dataset, steps: int) -> float:
    """Of one epoch, from its first batch to its last."""
    began = time.monotonic()
    training.train("epoch", batches, steps).numpy()
    return steps / (time.monotonic() - began)


def main() -> None:
    """Measure and print."""
    options, program_options = parse()
    devices = machine.prepare(program_options, options.devices)
    examples = as_tensors(data.load(options.data, options.data_dir).train)
    strategy = tf.distribute.MirroredStrategy(devices)
    training = program.make_training(strategy, examples.images.shape[1:], program_options)
    order = Order(options.batch_size, seed=1, steps_per_epoch=options.steps)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds + 1):
        for kind in KINDS:
            speed = steps_per_second(training, batches_of(kind, examples, order), options.steps)
            if number:  # the first round traces
                found[kind].append(speed)
    medians = {f"{kind}_steps_per_s": round(statistics.median(speeds), 2) for kind, speeds in found.items()}
    share = statistics.median(ours / best for ours, best in zip(found["pipeline"], found["constant"], strict=True))
    result = {"data": options.data, "devices": options.devices, **medians, "pipeline_share": round(share, 3)}
    print(json.dumps(result | {"load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

"""The time of an epoch of each example program, beside the lesson that teaches the same training.

`python -m benchmarks.lesson_speed` runs the lesson and the program in turns, as bare processes without a launcher, with
the same network, batch and data. A lesson is copied with longer epochs and, where it differs, the network of the
program: `PAIRS` has each changed line. An epoch is the time between the ends of two epochs, with its evaluation and its
save; the first two, which trace, do not count. `speed` is the median time of an epoch of the lesson divided by that of
the program, so 1 is as fast, with a bootstrap's interval of 95 %. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.overhead import bare_environment, interval
from tests.support.ports import free_ports
from tests.support.repository import REPOSITORY

EPOCHS = 6
TRACING = 2  # epochs that do not count
TIMEOUT = 220  # seconds of a run
END_OF_EPOCH = re.compile(r"epoch \d+[:/]|\d+/\d+ - \d+")  # of a program or a loop, or of Keras' `fit` (verbose=2)


@dataclass(frozen=True)
class Pair:
    """A lesson with its changes, and the arguments of the program that does the same."""

    program: str
    arguments: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    workers: int = 1


CONVOLUTION = (
    'keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Conv2D(32, 3, activation="relu"),'
    ' keras.layers.Flatten(), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])'
)
DEEPER = (
    "keras.Sequential([keras.Input((8, 8, 1)), conv(32), keras.layers.MaxPooling2D(), conv(64),"
    " keras.layers.MaxPooling2D(), keras.layers.Flatten(),"
    ' keras.layers.Dense(64, "relu", kernel_regularizer=decay), keras.layers.Dense(10, kernel_regularizer=decay)])'
)
LONG = (("EPOCHS, STEPS_PER_EPOCH = 10, 40", f"EPOCHS, STEPS_PER_EPOCH = {EPOCHS}, 400"),)
WORKERS = ("--validation-steps", "all", "--steps-per-epoch", "400")
PAIRS = {
    "multi_worker_fit": Pair("multi_worker_mnist", WORKERS, LONG, workers=2),
    "multi_worker_custom_loop": Pair(
        "multi_worker_mnist",
        (*WORKERS, "--loop", "custom", "--keras", "3"),
        (
            *LONG,
            ("(images[:1500] / 16,", "(images[:1500].reshape(-1, 8, 8, 1) / 16,"),
            ("(images[1500:] / 16,", "(images[1500:].reshape(-1, 8, 8, 1) / 16,"),
            (
                'keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])',
                CONVOLUTION,
            ),
            ("keras.optimizers.Adam(0.001)", "keras.optimizers.SGD(0.1)"),
        ),
        workers=2,
    ),
    "mirrored_custom_loop": Pair(
        "mirrored_custom_loop",
        ("--logical-devices", "2", "--batch-size", "32", "--steps-per-epoch", "460", "--weight-decay", "0.0001"),
        (
            ("EPOCHS, GLOBAL_BATCH_SIZE = 10,", f"EPOCHS, GLOBAL_BATCH_SIZE = {EPOCHS},"),
            (".shuffle(1500)\n", ".shuffle(1500).repeat(20)\n"),
            (
                'convolution = keras.layers.Conv2D(32, 3, activation="relu",'
                " kernel_regularizer=keras.regularizers.L2(0.0001))",
                "decay = keras.regularizers.L2(0.0001)\n    conv = lambda units: keras.layers.Conv2D("
                'units, 3, padding="same", activation="relu", kernel_regularizer=decay)',
            ),
            (
                "keras.Sequential([keras.Input((8, 8, 1)), convolution,"
                " keras.layers.Flatten(), keras.layers.Dense(10)])",
                DEEPER,
            ),
        ),
    ),
    "dtensor_mlp": Pair(
        "dtensor_mlp",
        ("--model-parts", "2", "--batch-size", "96", "--steps-per-epoch", "300", "--hidden", "256", "256"),
        (
            (
                "EPOCHS, STEPS_PER_EPOCH, RATE, BETA_1, BETA_2 = 10,",
                f"EPOCHS, STEPS_PER_EPOCH, RATE, BETA_1, BETA_2 = {EPOCHS},",
            ),
            (
                "*dense((256, 10), output)]",
                "*dense((256, 256), output), *dense((256, 10), Layout([UNSHARDED] * 2, mesh))]",
            ),
            (
                "tf.matmul(tf.nn.relu(tf.matmul(x, variables[0]) + variables[1]), variables[2]) + variables[3]",
                "tf.matmul(tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(x, variables[0]) + variables[1]), variables[2])"
                " + variables[3]), variables[4]) + variables[5]",
            ),
            ("for x, y in zip(", "for x, y in 20 * list(zip("),
            (
                "np.split(labels[:1440], STEPS_PER_EPOCH), strict=True):",
                "np.split(labels[:1440], STEPS_PER_EPOCH), strict=True)):",
            ),
        ),
    ),
    "transfer_learning": Pair(
        "transfer_learning",
        ("--head", "dense"),
        (("EPOCHS, SIZE, RATE = 5,", f"EPOCHS, SIZE, RATE = {EPOCHS},"),),
    ),
}


def changed(lesson: str) -> str:
    """The source of a lesson with its changes. ValueError if the lesson has no longer a line to change."""
    source = (REPOSITORY / "trainer" / "tftraining" / "lessons" / f"{lesson}.py").read_text(encoding="utf-8")
    for old, new in PAIRS[lesson].changes:
        if source.count(old) != 1:
            raise ValueError(f"the lesson {lesson} has {old!r} {source.count(old)} times: adapt PAIRS")
        source = source.replace(old, new)
    return source


def command_of(kind: str, lesson: str, folder: Path) -> list[str]:
    """The command of the lesson or of the program, in an own directory in `folder`."""
    if kind == "lesson":
        path = folder / "lesson.py"
        path.write_text(changed(lesson), encoding="utf-8")
        return [sys.executable, str(path)]
    pair, pictures = PAIRS[lesson], folder / "pictures"
    arguments = [*pair.arguments, "--epochs", str(EPOCHS), "--directory", str(folder / "program")]
    if lesson == "transfer_learning":
        arguments += ["--folders", str(pictures)]
    return [sys.executable, "-m", f"tftraining.examples.{pair.program}", *arguments]


def epoch_seconds(kind: str, lesson: str, folder: Path) -> list[float]:
    """The times of the epochs that count, by the first worker. RuntimeError if the training fails."""
    workers = PAIRS[lesson].workers
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    base = {
        **bare_environment(),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder),
        "PICTURES": str(folder / "pictures"),
    } | ({"TFTRAINING_DIR": str(folder / "lesson")} if kind == "lesson" else {})
    processes = []
    for index in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        own = base | ({"TF_CONFIG": json.dumps(config)} if workers > 1 else {})
        output = subprocess.DEVNULL if index else subprocess.PIPE
        command = command_of(kind, lesson, folder)
        processes.append(subprocess.Popen(command, env=own, stdout=output, stderr=subprocess.DEVNULL, text=True))
    watchdog = threading.Timer(TIMEOUT, end, [processes])
    watchdog.start()
    try:
        assert processes[0].stdout is not None
        ends = [time.monotonic() for line in processes[0].stdout if END_OF_EPOCH.match(line)]
        codes = [process.wait() for process in processes]
    finally:
        watchdog.cancel()
        end(processes)
    if any(codes) or len(ends) != EPOCHS:
        raise RuntimeError(f"the {kind} {lesson} ended with {codes} after {len(ends)} epochs")
    return [end - begin for begin, end in pairwise(ends)][TRACING - 1 :]


def end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill the processes that still run."""
    for process in processes:
        process.kill()


def measure(lesson: str, repeat: int) -> dict[str, object]:
    """The figures of one pair."""
    found: dict[str, list[float]] = {"lesson": [], "program": []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(repeat):
            for kind in ("lesson", "program"):
                folder = Path(place) / str(number)
                folder.mkdir(exist_ok=True)
                found[kind] += epoch_seconds(kind, lesson, folder)
    pairs = [one / other for one, other in zip(found["lesson"], found["program"], strict=True)]
    medians = {f"{kind}_epoch_s": round(statistics.median(times), 3) for kind, times in found.items()}
    speed = statistics.median(found["lesson"]) / statistics.median(found["program"])
    return {"speed": round(speed, 3), "interval": [round(each, 3) for each in interval(pairs)], **medians}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.lesson_speed", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=PAIRS, default=list(PAIRS), metavar="LESSON", help=", ".join(PAIRS)
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (3)")
    options = parser.parse_args(argv)
    found = {}
    for lesson in options.only:
        found[lesson] = measure(lesson, options.repeat)
        print(f"{lesson:26} {json.dumps(found[lesson])}", flush=True)
    print(json.dumps({**found, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

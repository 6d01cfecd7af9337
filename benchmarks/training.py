"""What the training programs reach, beside the results that they are known for, and how fast.

`python -m benchmarks.training --data-dir FOLDER` trains each on the full data, as processes, the way a person does;
FOLDER holds `mnist` and `fashion-mnist`, each with the four IDX files. `--only NAME` picks some of the trainings, in
pieces of minutes; `--pictures FOLDER` draws the curves of each. A training of several workers is one process for each.
Figures of time are upper bounds on a machine that does anything else. The last line is JSON. It must never choose among
runs: what is told is every run that was made.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.overhead import bare_environment
from tests.support.ports import free_ports

TIMEOUT = 900  # seconds; the longest takes five minutes on two idle cores
SMALL_STEPS = ("--epochs", "3", "--steps-per-epoch", "70", "--learning-rate", "0.001")
SEEDS = 10
DTENSOR_SEEDS = 5


@dataclass(frozen=True)
class Case:
    """One training; `known` is its published result, as text for people."""

    program: str
    data: str
    arguments: tuple[str, ...]
    known: str = ""
    workers: int = 1


def worker_case(*arguments: str, workers: int = 2) -> Case:
    """The training of the multi-worker tutorial by `workers` workers, with the same global batch."""
    batch = str(128 // workers)
    known = "accuracy of training 0.17 -> 0.59"
    return Case("multi_worker_mnist", "mnist", (*SMALL_STEPS, "--batch-size", batch, *arguments), known, workers)


def dtensor_case(*arguments: str) -> Case:
    """The training of TensorFlow's guide to DTensor, with its batch of 128 and its rate of 0.001: both are defaults.

    The test has all 10,000 images: the guide's 5,000 are a random half, and the first half of the files is the harder.
    """
    return Case("dtensor_mlp", "mnist", ("--epochs", "3", "--examples", "5000", *arguments), "test accuracy 0.869")


CASES = {
    "mirrored": Case(
        "mirrored_custom_loop",
        "fashion_mnist",
        ("--epochs", "10", "--logical-devices", "2", "--batch-size", "32"),
        "test accuracy about 0.909",
    ),
    "dtensor": dtensor_case(),
    "workers-fit": worker_case(),
    "workers-custom": worker_case("--loop", "custom"),
    "workers-keras-3": worker_case("--loop", "custom", "--keras", "3"),
    "one-worker-fit": worker_case(workers=1),
    "one-worker-custom": worker_case("--loop", "custom", workers=1),
    "servers-fit": Case("parameter_server", "mnist", ("--epochs", "5", "--steps-per-epoch", "1000")),
    "servers-custom": Case(
        "parameter_server", "mnist", ("--epochs", "5", "--steps-per-epoch", "1000", "--loop", "custom")
    ),
    "transfer": Case("transfer_learning", "mnist", ("--make-folders", "--epochs", "3", "--batch-size", "64")),
    **{f"seed-{seed}": worker_case("--seed", str(seed), workers=1) for seed in range(1, SEEDS + 1)},
    **{
        f"dtensor-{name}-seed-{seed}": dtensor_case("--seed", str(seed), *arguments)
        for name, arguments in {
            "sigmoid": ("--activation", "sigmoid"),
            "narrow": ("--hidden", "700", "10"),  # the guide's code, where its text has 700 and 500 units
        }.items()
        for seed in range(1, DTENSOR_SEEDS + 1)
    },
}


def commands(case: Case, folder: Path, directory: Path) -> list[tuple[list[str], dict[str, str]]]:
    """The command line and environment of each process."""
    files = folder / case.data.replace("_", "-")
    command = [sys.executable, "-m", f"tftraining.examples.{case.program}", *case.arguments]
    command += ["--data", case.data, "--data-dir", str(files), "--directory", str(directory)]
    environment = {**bare_environment(), "TMPDIR": str(directory.parent)}
    if case.workers == 1:
        return [(command, environment)]
    addresses = [f"127.0.0.1:{port}" for port in free_ports(case.workers)]
    configs = [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(case.workers)]
    return [(command, {**environment, "TF_CONFIG": json.dumps(config)}) for config in configs]


def train(case: Case, folder: Path, directory: Path) -> None:
    """Run the processes to their end; RuntimeError with the end of the log if one fails."""
    logs = [directory.parent / f"log-{index}" for index in range(case.workers)]
    processes = []
    try:
        for (command, environment), log in zip(commands(case, folder, directory), logs, strict=True):
            with log.open("wb") as file:
                processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
        codes = [process.wait(TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise RuntimeError("\n".join(f"ended with {codes}:\n{log.read_text()[-2000:]}" for log in logs))


def figures(directory: Path) -> dict[str, Any]:
    """The figures from the result and the history of a training."""
    result = json.loads((directory / "result.json").read_text())
    history: list[dict[str, float]] = json.loads((directory / "history.json").read_text())
    later = [record["seconds"] for record in history[1:]]  # the first epoch traces
    return {
        "training_accuracy": [round(record["accuracy"], 3) for record in history],
        "accuracy": round(result["accuracy"], 4),
        "first_epoch_s": round(history[0]["seconds"], 2),
        "epoch_s": round(statistics.median(later), 2),
    }


def measure(name: str, folder: Path, pictures: Path | None) -> dict[str, Any]:
    """The figures of one case; draws its curves into `pictures`, if given."""
    case = CASES[name]
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "job"
        train(case, folder, directory)
        found = figures(directory)
        if pictures is not None:
            from tftraining.lib.plots import draw  # noqa: PLC0415  matplotlib is imported only for a plot

            draw(json.loads((directory / "history.json").read_text()), pictures / f"{name}.png")
    return {"known": case.known, **found, "load_average": round(os.getloadavg()[0], 1)}


def spread(found: dict[str, dict[str, Any]]) -> dict[str, list[float]]:
    """Least, median and largest accuracy of the seeds of each case: of the training's first and last epoch, and of the
    test."""
    seeds: dict[str, list[dict[str, Any]]] = {}
    for name, each in found.items():
        case, separator, _ = name.rpartition("seed-")
        if separator:
            seeds.setdefault(f"{case}seeds", []).append(each)
    columns = {}
    for name, runs in seeds.items():
        columns[f"{name}_first"] = [run["training_accuracy"][0] for run in runs]
        columns[f"{name}_last"] = [run["training_accuracy"][-1] for run in runs]
        columns[f"{name}_test"] = [run["accuracy"] for run in runs]
    return {name: [min(all_), statistics.median(all_), max(all_)] for name, all_ in columns.items()}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(prog="benchmarks.training", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=os.environ.get("TFTRAINING_DATA"),
        help="folder with the data (default: $TFTRAINING_DATA)",
    )
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="folder for the plots")
    options = parser.parse_args(argv)
    if options.data_dir is None:
        parser.error("set the folder with the data: --data-dir or $TFTRAINING_DATA")
    return options


def main() -> None:
    """Measure and print."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # `timeout` must leave no process and no directory
    found = {}
    for name in options.only:
        found[name] = measure(name, options.data_dir, options.pictures)
        print(f"{name:18} {json.dumps(found[name])}", flush=True)
    print(json.dumps({**found, **spread(found)}))


if __name__ == "__main__":
    main()

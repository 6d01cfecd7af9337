"""Pictures a second of ResNet-50 with two workers on folders of pictures: under launchers, and as bare processes.

`python -m benchmarks.resnet50` runs examples/resnet50.yaml (with the options below) by `tftj run`, and the same program
as two processes with a TF_CONFIG, in turns, and then once more by `tftj run` with a worker killed in the third epoch.
A run takes a minute or two on two idle cores, all five together about eight minutes.
The figure of a run is the median over its epochs but the first, as the program writes it into result.json: the time of
the training alone, without evaluation and saves. The last line is JSON.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.overhead import bare_environment
from tests.support.ports import free_ports
from tests.support.repository import REPOSITORY

WORKERS = 2
TIMEOUT = 600  # seconds of a run


def arguments(options: argparse.Namespace) -> list[str]:
    """The arguments of the program, without its directory."""
    steps = ["--epochs", str(options.epochs), "--steps-per-epoch", str(options.steps)]
    pictures = ["--make-folders", "--pictures", "400", "--size", str(options.size)]
    return ["--network", "resnet50", *pictures, *steps, "--batch-size", str(options.batch_size)]


def bare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The result of two bare processes."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(WORKERS)]
    command = [sys.executable, "-m", "tftraining.examples.transfer_learning", *arguments(options)]
    processes = []
    try:
        for index in range(WORKERS):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            environment = {**bare_environment(), "TF_CONFIG": json.dumps(config), "TMPDIR": str(folder)}
            with (folder / f"log-{index}").open("wb") as log:
                words = [*command, "--directory", str(folder / "job")]
                processes.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
        codes = [process.wait(TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        raise RuntimeError(f"ended with {codes}: {(folder / 'log-0').read_text()[-2000:]}")
    return result_of(folder / "job")


def launched(options: argparse.Namespace, folder: Path, *words: str) -> tuple[dict[str, Any], str]:
    """The result of a `tftj run` with these further words, and its output."""
    job = yaml.safe_load((REPOSITORY / "examples" / "resnet50.yaml").read_text(encoding="utf-8"))
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["command"] = [*container["command"][:3], *arguments(options), "--directory", "$(TFTRAINING_DIR)"]
    (folder / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "tftraining_client",
        "run",
        str(folder / "job.yaml"),
        "--workdir",
        str(folder / "work"),
    ]
    environment = {**bare_environment(), "TMPDIR": str(folder)}
    done = subprocess.run(
        [*command, *words], env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"tftj run ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-1000:]}")
    return result_of(folder / "work" / job["metadata"]["name"]), done.stdout + done.stderr


def result_of(directory: Path) -> dict[str, Any]:
    """The result of the program."""
    found: dict[str, Any] = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    speeds: dict[str, list[float]] = {"bare": [], "launched": []}
    with tempfile.TemporaryDirectory() as place:
        for number in range(options.repeat):
            for kind in ("bare", "launched"):
                folder = Path(place) / f"{kind}-{number}"
                folder.mkdir()
                result = bare(options, folder) if kind == "bare" else launched(options, folder)[0]
                speeds[kind].append(result["images_per_second"])
                print(f"{kind:9} {result['images_per_second']:.2f} images/s, {result['seconds']} s", flush=True)
        folder = Path(place) / "killed"
        folder.mkdir()
        killed, output = launched(options, folder, "--kill", f"worker-1@step={options.steps * 5 // 2}")
    resumed = re.search(r"was killed .*", output)
    medians = {f"{kind}_images_per_s": round(statistics.median(each), 2) for kind, each in speeds.items()}
    return {
        **medians,
        "ratio": round(medians["launched_images_per_s"] / medians["bare_images_per_s"], 3),
        "killed_seconds": killed["seconds"],
        "resumed_from": killed["resumed_from"],
        "resumed": resumed[0] if resumed else None,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.resnet50", description=(__doc__ or "").splitlines()[0])
    for name, default in (("repeat", 2), ("epochs", 4), ("steps", 10), ("batch-size", 8), ("size", 32)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"({default})")
    options = parser.parse_args(argv)
    found = measure(options)
    print(json.dumps({**vars(options), **found, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

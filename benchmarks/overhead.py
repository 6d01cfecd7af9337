"""What the launcher costs: steps per second under it beside a bare process, and memory, on this machine.

`python -m benchmarks.overhead` keeps one training bare and one under a launcher (warm, as by default), and lets them
train in turns of less than a second, the order of each pair changing, so that what else the machine does hits both.
The ratio is the median of the pairs', its interval a bootstrap's 95 %; the CPU ratio, which a busy machine disturbs
less, is that of the CPU seconds a step, the launcher's own included. Memory is the proportional set size (proc(5)),
in which pages shared by the warm interpreter and its fork count half each. The last line is JSON.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.process_usage import cpu_seconds
from tests.support.ports import free_ports
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.in_user_process.tracker import Tracker
from tftraining.launch.process import progress_reader

PROGRAM = Path(__file__).with_name("step_worker.py")
SEGMENT_SECONDS = 0.4
PROBE_STEPS = 500
BOOTSTRAPS = 2000


class Training:
    """One process that trains on demand."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        """The next line of output; RuntimeError if the program has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"the program {self.process.args!r} has exited")
        return line

    def train(self, steps: int) -> float:
        """Train one segment; its steps per second."""
        self.begin(steps)
        return float(self.hear())

    def begin(self, steps: int) -> None:
        """Let it train so many steps."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """Close stdin: the program ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        """Close stdin and wait until the process ends; kill it otherwise."""
        self.stop()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


def bare_environment() -> dict[str, str]:
    """The environment of both processes, without variables from a launcher around this benchmark."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TFTRAINING_")}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3"}


def launcher_environments(place: Path, workers: int = 1) -> list[dict[str, str]]:
    """The environments of the launchers of a job with so many workers."""
    rendezvous, *ports = free_ports(1 + 2 * workers)
    (place / "key").write_bytes(os.urandom(32))
    environments = []
    for index in range(workers):
        settings = {
            "job": {"namespace": "benchmark", "name": "overhead", "uid": "overhead"},
            "attempt": 1,
            "rendezvous": f"127.0.0.1:{rendezvous}",
            "statusPort": ports[index],
            "host": "127.0.0.1",
            "secretFile": str(place / "key"),
            "directory": str(place),
            "terminationMessage": None,
            "keras": legacy_keras.OWN,
        }
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports[workers:]]}
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        own = {"TFTRAINING_LAUNCHER": json.dumps(settings), "TF_CONFIG": json.dumps(config)}
        environments.append(bare_environment() | own)
    return environments


def pss_mib(pid: int) -> float:
    """Proportional set size of a process in MiB."""
    found = re.search(r"^Pss:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    if found is None:
        raise RuntimeError(f"process {pid} has no memory figures")
    return int(found[1]) / 1024


def children(pid: int) -> list[int]:
    """The children of a process, in the order of their start."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory(launched: Training, bare: Training) -> dict[str, float]:
    """The memory of the launcher, the warm interpreter, its forked training, and a bare training."""
    warm, training = children(launched.process.pid)  # in the order of their start
    return {
        "launcher_pss_mib": pss_mib(launched.process.pid),
        "warm_pss_mib": pss_mib(warm),
        "training_pss_mib": pss_mib(training),
        "bare_pss_mib": pss_mib(bare.process.pid),
    }


def cpu(training: Training) -> float:
    """CPU seconds so far of a training's process and its children."""
    pid = training.process.pid
    return sum(map(cpu_seconds, [pid, *children(pid)]))


def measure(bare: Training, launched: Training, seconds: float) -> list[tuple[float, float]]:
    """Pairs of steps per second, bare and launched."""
    steps = max(PROBE_STEPS, int(min(bare.train(PROBE_STEPS), launched.train(PROBE_STEPS)) * SEGMENT_SECONDS))
    pairs: list[tuple[float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(pairs) < 4:
        turns = [bare, launched] if len(pairs) % 2 else [launched, bare]
        speed = {id(turn): turn.train(steps) for turn in turns}
        pairs.append((speed[id(bare)], speed[id(launched)]))
    return pairs


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(BOOTSTRAPS))
    return medians[int(0.025 * BOOTSTRAPS)], medians[int(0.975 * BOOTSTRAPS)]


def report_microseconds(place: Path, steps: int = 200_000) -> float:
    """Microseconds that a report of the progress adds to a step."""
    fd = progress_reader.create(place / "page")
    os.close(fd)
    tracker = Tracker(str(place / "page"))
    tracker.begin(0, 1, steps)
    tracker.begin_epoch(0, 0, steps)
    began = time.perf_counter()
    for step in range(steps):
        tracker.begin_batch(step)
        tracker.end_batch(step)
    return (time.perf_counter() - began) / steps * 1e6


def run(seconds: float, place: Path) -> dict[str, float]:
    """Measure all figures."""
    figures = {"report_us_per_step": report_microseconds(place)}
    program = [sys.executable, str(PROGRAM)]
    bare = Training(program, bare_environment())
    (environment,) = launcher_environments(place)
    launched = Training([sys.executable, "-m", "tftraining.launch", "--", *program], environment)
    try:
        for training in (bare, launched):
            training.hear()
        before = cpu(bare), cpu(launched)
        pairs = measure(bare, launched, seconds)
        figures["cpu_ratio"] = (cpu(bare) - before[0]) / (cpu(launched) - before[1])
        figures |= memory(launched, bare)
    finally:
        bare.end()
        launched.end()
    ratios = [under / alone for alone, under in pairs]
    figures["overhead_ratio"] = statistics.median(ratios)
    figures["overhead_ratio_low"], figures["overhead_ratio_high"] = interval(ratios)
    figures["bare_steps_per_second"] = statistics.median(alone for alone, _ in pairs)
    figures["pairs"] = len(pairs)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="overhead", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=90, help="seconds of alternating training (90)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as place:
        figures = run(seconds, Path(place))
    for name, value in figures.items():
        print(f"{name:24} {value:.4g}")
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()

"""The parts of a restart of a real model: `benchmarks.recovery --model mobilenet`, locally or in pods.

Beside it, in the same run, the bare floor: the same program without a launcher, both processes killed and started again
by hand at the same moment. A part is the time from the one before it to its own, the longest among the members.
"""

import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.overhead import bare_environment
from tests.support.ports import free_ports
from tftraining_api.model.names import Replica

PROGRAM = Path(__file__).with_name("mobilenet_worker.py")
# In the order of a start; the first one ends with the process, and with a launcher it is the launcher's.
PARTS = ("began", "interpreter", "import", "strategy", "model", "restore", "first step")
NAMES = {"began": "launcher", "first step": "tracing and first step"}
PATIENCE = 300.0
CONFIG_MAP = "recovery-program"
# The first copy in memory is made behind the first epoch or 200 steps; the first interval has 16 steps.
STEPS_BEFORE_COPIES, STEPS_BETWEEN_COPIES = 240, 40
LONG_EPOCH = 1_000_000  # steps: the storage has no backup that is newer than the copies


class Gang(Protocol):
    """A training gang whose members can be killed."""

    async def next_epoch(self) -> None:
        """Wait until the next epoch ends, and with it a backup."""

    async def kill(self, victim: Replica) -> float:
        """Send SIGKILL to a member's program; seconds until all members train again."""

    async def step(self) -> int:
        """The training step that the chief has reached; 0 before the first."""

    @property
    def directory(self) -> Path:
        """The directory of the job, as this machine sees it."""


def config_map() -> dict[str, Any]:
    """The program, for pods whose image does not have it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP},
        "data": {PROGRAM.name: PROGRAM.read_text()},
    }


def with_model(manifest: dict[str, Any], steps: int) -> dict[str, Any]:
    """The job of a manifest with this program in place of its own, mounted from the ConfigMap."""
    spec = manifest["spec"]
    [container] = spec["template"]["spec"]["containers"]
    command = ["python", f"/program/{PROGRAM.name}", "$(TFTRAINING_DIR)", str(steps)]
    mount = {"name": "program", "mountPath": "/program"}
    pod = {
        "containers": [{**container, "command": command, "volumeMounts": [mount]}],
        "volumes": [{"name": "program", "configMap": {"name": CONFIG_MAP}}],
    }
    return {**manifest, "spec": {**spec, "template": {"spec": pod}}}


def newest_parts(directory: Path, killed: float) -> list[dict[str, float]]:
    """The parts of each start that has made its first step after `killed`."""
    paths = [path for path in directory.rglob("parts-*-*") if path.suffix != ".new"]
    return [parts for path in paths if (parts := json.loads(path.read_text()))["first step"] > killed]


def durations(starts: Sequence[dict[str, float]], killed: float) -> dict[str, float]:
    """The longest time of each part among the members, and `all`, from the kill to the last first step."""
    told = {}
    for before, part in zip(("", *PARTS), PARTS, strict=False):
        told[NAMES.get(part, part)] = max(each[part] - (each[before] if before else killed) for each in starts)
    return {**told, "all": max(each["first step"] for each in starts) - killed}


def table(rows: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Print the medians of the parts, a line for each kind of restart; the same as figures."""
    figures = {}
    for name, restarts in rows.items():
        figures[name] = {part: statistics.median(each[part] for each in restarts) for part in restarts[0]}
        told = ", ".join(f"{part} {seconds:.2f}" for part, seconds in figures[name].items())
        print(f"{name}: {told} s (medians of {len(restarts)})", flush=True)
    return {name: {part: round(seconds, 3) for part, seconds in each.items()} for name, each in figures.items()}


async def restarts(gang: Gang, victims: Sequence[Replica], count: int, copies: bool) -> list[dict[str, float]]:
    """The parts of `count` restarts, each behind a new backup, or with `copies` behind new copies in memory."""
    found = []
    for number in range(count):
        if copies:
            await _more_steps(gang, STEPS_BETWEEN_COPIES if number else STEPS_BEFORE_COPIES)
        else:
            await gang.next_epoch()
            await asyncio.sleep(0.5)
        before = time.monotonic()
        recovery = await gang.kill(victims[number % len(victims)])
        starts = newest_parts(gang.directory, before)
        found.append(durations(starts, max(each["first step"] for each in starts) - recovery))
        print(f"  killed, {number + 1} of {count}: {recovery:.2f} s", flush=True)
    return found


async def _more_steps(gang: Gang, count: int) -> None:
    """Wait until the training has made so many more steps."""
    last, deadline = await gang.step() + count, time.monotonic() + PATIENCE
    while await gang.step() < last:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {count} steps within {PATIENCE:.0f} s")
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def _bare(directory: Path, steps: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Both processes without a launcher."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    processes = []
    for task in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": task}}
        environment = {**bare_environment(), "TF_CONFIG": json.dumps(config)}
        command = [sys.executable, str(PROGRAM), str(directory), str(steps)]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
    try:
        yield processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def bare_restarts(steps: int, count: int) -> list[dict[str, float]]:
    """The floor: the parts of `count` restarts by hand, from the last backup, on this machine."""
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="recovery-bare-") as folder:
        directory, killed = Path(folder), 0.0
        for number in range(count + 1):
            with _bare(directory, steps) as processes:
                starts = _wait_for_starts(directory, killed or time.monotonic(), processes)
                if number:
                    found.append(durations(starts, killed))
                    print(f"  bare, {number} of {count}: {found[-1]['all']:.2f} s", flush=True)
                _wait_for_backup(directory)
                killed = time.monotonic()
    return found


def _wait_for_starts(
    directory: Path, since: float, processes: Sequence[subprocess.Popen[bytes]]
) -> list[dict[str, float]]:
    deadline = time.monotonic() + PATIENCE
    while len(starts := newest_parts(directory, since)) < len(processes):
        if time.monotonic() > deadline or any(each.poll() is not None for each in processes):
            raise TimeoutError("the bare programs do not train")
        time.sleep(0.02)
    return starts


def _wait_for_backup(directory: Path) -> None:
    """Wait until the next backup is complete."""
    began, deadline = time.time(), time.monotonic() + PATIENCE
    state = directory / "backup" / "chief" / "checkpoint"
    while not state.exists() or state.stat().st_mtime < began:
        if time.monotonic() > deadline:
            raise TimeoutError("the bare programs make no backup")
        time.sleep(0.05)
    time.sleep(0.5)

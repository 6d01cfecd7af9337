"""The steps that announced stops lose, in pods of the test cluster: the table `stops` of benchmarks.lost_work.

The gang has two workers, in an epoch that does not end meanwhile. It is scaled to three workers and back, the node of
worker-1 is drained, and the job is suspended and resumed. A lost step is one that the chief's programs have recorded
twice.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks import cluster_gang, training_records
from benchmarks.cluster_gang import PodGang
from benchmarks.lost_work_gang import LONG_EPOCH, PROGRAM, say
from benchmarks.training_records import Step
from tftraining_api.model.names import Replica

REPLICAS = (Replica("worker", 0), Replica("worker", 1))
CONFIG_MAP = "state-worker"
# In a folder of the name by which the program imports its records.
FILES = (PROGRAM, Path(training_records.__file__))
FOLDER = f"/program/{PROGRAM.parent.name}"
PATIENCE = 300.0
TRAINING_SECONDS = 12.0  # between two stops
Figures = dict[str, Any]


def config_map() -> dict[str, Any]:
    """The program, for pods whose image does not have it."""
    data = {path.name: path.read_text() for path in FILES}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data}


def manifest(megabytes: float) -> dict[str, Any]:
    """A job of two workers that trains until stopped, with copies in memory."""
    command = ["python", f"{FOLDER}/{PROGRAM.name}", "$(TFTRAINING_DIR)", str(megabytes), str(LONG_EPOCH)]
    mount = {"name": "program", "mountPath": FOLDER}
    container = {"name": "tensorflow", "image": "none", "command": command, "volumeMounts": [mount]}
    volumes = [{"name": "program", "configMap": {"name": CONFIG_MAP}}]
    return {
        "apiVersion": "tftraining.dev/v1",
        "kind": "TFTrainingJob",
        "metadata": {"name": "stops"},
        "spec": {
            "replicaSpecs": {"worker": {"replicas": len(REPLICAS)}},
            "storage": {"volume": {"hostPath": {"path": "/nowhere"}}},
            "launcher": {"memoryBackup": {"mode": "Auto", "sizeLimit": "2Gi"}},
            "template": {"spec": {"containers": [container], "volumes": volumes}},
        },
    }


class Chief:
    """The records of the chief's programs, in all rounds and pods together."""

    def __init__(self, gang: PodGang) -> None:
        self._volume = gang.directory

    def rounds(self, task: int = 0) -> list[list[Step]]:
        """The steps of a task."""
        folders = {path.parent for path in self._volume.rglob(f"steps-{task}-*")}
        return [steps for folder in folders for steps in training_records.read(folder, task).values()]

    async def wait_for_steps(self, since: float, tasks: int, count: int = 20) -> float:
        """Wait until so many tasks have made `count` steps that began after `since`; the first one's end."""
        deadline = time.monotonic() + PATIENCE
        while True:
            made = [
                [step for steps in self.rounds(task) for step in steps if step.begin > since] for task in range(tasks)
            ]
            if all(len(steps) >= count for steps in made):
                return max(min(step.end for step in steps) for steps in made)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all of {tasks} workers made {count} steps in {PATIENCE:.0f} s")
            await asyncio.sleep(cluster_gang.LOOK_SECONDS)


async def _scale(gang: PodGang, size: int) -> None:
    """Scale the gang, and wait until its pods are there: the old gang trains until then."""
    training = gang.training
    words = ("scale", "tftrainingjob", training.name, f"--replicas={size}", "--namespace", training.namespace)
    training.kube.kubectl(*words)
    await _until(gang, f"{size} workers", lambda now: now.get("ready") == f"{size}/{size}")


async def _drain(gang: PodGang) -> None:
    """Drain the node of worker-1, and give it back once its pod is a new one."""
    training = gang.training
    pod, node = training.pod("worker-1"), training.node("worker-1")
    uid = training.uids()[pod]
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--pod-selector={training.selector}")
    try:
        training.kube.kubectl("drain", node, *flags, "--timeout=60s")
        await _until(gang, "a new pod", lambda _: training.uids().get(pod, uid) != uid)
    finally:
        training.kube.kubectl("uncordon", node)


async def _suspend(gang: PodGang) -> None:
    """Suspend the job, and resume it once its pods are gone."""
    gang.training.change({"runPolicy": {"suspend": True}})
    await _until(gang, "no pods", lambda now: now.get("phase") == "Suspended" and not gang.training.uids())
    gang.training.change({"runPolicy": {"suspend": False}})


async def _until(gang: PodGang, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    await asyncio.to_thread(gang.training.wait_for, what, holds, PATIENCE)


# Name, what is done, and the number of workers that train behind it.
STOPS: tuple[tuple[str, Callable[[PodGang], Awaitable[None]], int], ...] = (
    ("scaled to 3", lambda gang: _scale(gang, 3), 3),
    ("scaled to 2", lambda gang: _scale(gang, 2), 2),
    ("drained", _drain, 2),
    ("suspended", _suspend, 2),
)


async def _stop(gang: PodGang, chief: Chief, name: str, do: Callable[[PodGang], Awaitable[None]], size: int) -> Figures:
    """Stop the gang once, and wait until it trains again."""
    await asyncio.sleep(TRAINING_SECONDS)
    before, at = training_records.repeated_steps(chief.rounds()), time.monotonic()
    await do(gang)
    await _until(gang, "a running gang", lambda now: now.get("phase") == "Running")
    await chief.wait_for_steps(time.monotonic(), size)
    rounds = chief.rounds()
    lost = training_records.repeated_steps(rounds) - before
    pause = training_records.longest_pause(rounds, at)
    last = gang.training.status().get("lastRestart", {})
    told = {each: last.get(each) for each in ("resumedFrom", "lostSteps", "backupSkipped") if each in last}
    say(f"  {name}: {lost} steps lost, {pause:.2f} s without a step; the status: {told}")
    return {"lost_steps": lost, "pause_s": pause}


async def measure(megabytes: float, times: int) -> Figures:
    """The steps lost by `times` stops of each kind, and the seconds without a step."""
    found: dict[str, list[Figures]] = {name: [] for name, _, _ in STOPS}
    async with cluster_gang.running(manifest(megabytes), REPLICAS, objects=[config_map()]) as gang:
        chief = Chief(gang)
        await _until(gang, "copies", lambda now: bool(now.get("progress", {}).get("backup", {}).get("step")))
        for _ in range(times):
            for name, do, size in STOPS:
                found[name].append(await _stop(gang, chief, name, do, size))
    return {
        name: {
            "lost_steps": [each["lost_steps"] for each in stops],
            "pause_s_median": statistics.median(each["pause_s"] for each in stops),
        }
        for name, stops in found.items()
    }

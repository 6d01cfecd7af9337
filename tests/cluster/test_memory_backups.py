"""Backups in memory on a real cluster: a kill, a deleted pod, a suspension and scaling, in an epoch that has no end.

BackupAndRestore alone would lose every step of these trainings: none of them finishes an epoch before it is hit.
"""

import re
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Manifest, Training, example

STEPS = 3000
START_SECONDS = 180
TRAIN_SECONDS = 300
RESUMED = re.compile(r"resumed from memory at epoch \d+, step (\d+)")


@pytest.fixture
def training(
    cluster: Cluster, operator: object, namespace: str, directory: Path, request: pytest.FixtureRequest
) -> Training:
    """A training of two workers in its first epoch, with a copy in memory; its parameter is the number of steps."""
    steps = getattr(request, "param", STEPS)
    manifest = example(cluster.images[1], "--epochs=1", f"--steps-per-epoch={steps}")
    manifest["metadata"]["namespace"] = namespace
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, "digits")
    _wait_for_copy(training)
    return training


def _wait_for_copy(training: Training, after: int = 0) -> int:
    """Wait until the status tells of a copy behind step `after`; its step."""

    def has_copy(now: Manifest) -> bool:
        return bool(now.get("phase") == "Running" and _copy(now) > after)

    return _copy(training.wait_for(f"backed up in memory after step {after}", has_copy, START_SECONDS))


def _copy(status: Manifest) -> int:
    found: int = status.get("progress", {}).get("backup", {}).get("step", 0)
    return found


def _wait_for_resumption(training: Training, source: str) -> Manifest:
    """The last restart, once the gang has resumed from `source`."""

    def resumed(now: Manifest) -> bool:
        return bool(now.get("phase") == "Running" and now.get("lastRestart", {}).get("resumedFrom") == source)

    last: Manifest = training.wait_for(f"resumed from {source}", resumed, START_SECONDS)["lastRestart"]
    return last


def _assert_complete(training: Training, steps: int) -> None:
    """The job has succeeded with every step of its epoch made."""
    status = training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    assert status["progress"]["step"] == steps, status


def test_a_kill_a_deleted_pod_and_a_suspension_lose_next_to_nothing(training: Training) -> None:
    at = _copy(training.status())
    training.kill_program("worker-1")
    killed = _wait_for_resumption(training, "Memory")
    assert killed["resumedFromStep"] >= at and killed["lostSteps"] < STEPS / 4, killed

    at = _wait_for_copy(training, killed["resumedFromStep"])
    training.delete("worker-1")
    deleted = _wait_for_resumption(training, "Peer")
    assert deleted["resumedFromStep"] >= at and deleted["lostSteps"] == 0, deleted

    at = _wait_for_copy(training, deleted["resumedFromStep"])
    training.change({"runPolicy": {"suspend": True}})
    training.wait_for("without pods", lambda now: now.get("phase") == "Suspended" and not training.uids(), 60)
    suspended_at = training.status()["progress"]["step"]
    training.change({"runPolicy": {"suspend": False}})
    line = training.wait_for_line("worker-0", RESUMED.pattern, START_SECONDS)
    found = RESUMED.search(line)
    assert found is not None and int(found[1]) >= max(at, suspended_at), (line, suspended_at)
    _assert_complete(training, STEPS)


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [20_000], indirect=True, ids=["long"])
def test_scaling_loses_no_step(training: Training) -> None:
    for size in (3, 2):
        words = ("scale", "tftrainingjob", training.name, f"--replicas={size}", "--namespace", training.namespace)
        training.kube.kubectl(*words)
        last = _wait_for_size(training, size)["lastRestart"]
        assert last["lostSteps"] == 0 and last["resumedFrom"] in ("Memory", "Peer"), last
        _wait_for_copy(training, last["resumedFromStep"])


def _wait_for_size(training: Training, size: int) -> Manifest:
    """The status once so many workers train, and tell what the change has lost."""

    def trains(now: Manifest) -> bool:
        ready = now.get("ready") == f"{size}/{size}" and now.get("phase") == "Running"
        return bool(ready and now.get("lastRestart", {}).get("lostSteps") is not None)

    return training.wait_for(f"training with {size}", trains, START_SECONDS)

"""Backups in memory on a real cluster: a kill, a deleted pod, a suspension and scaling, in an epoch that has no end.

BackupAndRestore alone would lose every step of these trainings: none of them finishes an epoch before it is hit.
"""

import random
import re
import time
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Manifest, Training, example
from tests.support.trainer import stepwise_fit

# A minute at least: longer than the faults take on a busy machine. The rest of the steps after the faults has no pause.
STEPS, STEP_SECONDS = 3000, 0.02
ENDLESS = 20_000  # steps
START_SECONDS = 180
TRAIN_SECONDS = 300
RESUMED = re.compile(r"resumed from memory at epoch \d+, step (\d+)")
# More than 10 s of training behind each kill, and a new copy, are progress: a restart then waits for nothing. Of the 20
# kills, these few hit the pod; without a period of grace the launcher dies at once, as with its node.
KILLS, FIRST_KILL, KILL_EVERY, PAUSE_SECONDS = 20, 220, 115, 0.1
POD_KILLS = {4: (), 9: ("--grace-period=0", "--force"), 14: ("--grace-period=0", "--force"), 19: ()}
KILLED_STEPS = FIRST_KILL + KILLS * KILL_EVERY
INTERVAL = 16  # of the first copies


@pytest.fixture
def training(cluster: Cluster, operator: object, namespace: str, directory: Path) -> Training:
    """A training of two workers in its first epoch, which does not end, with a copy in memory."""
    manifest = example(cluster.images[1], "--epochs=1", f"--steps-per-epoch={ENDLESS}")
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


def test_a_kill_a_deleted_pod_and_a_suspension_lose_next_to_nothing(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    training = _start_stepwise(cluster, namespace, "digits", STEPS, STEP_SECONDS)
    at = _wait_for_copy(training)
    training.kill_program("worker-1")
    killed = _wait_for_resumption(training, "Memory")
    assert killed["resumedFromStep"] >= at and killed["lostSteps"] < 250, killed

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
    (directory / training.name / "no-pause").touch()
    _assert_complete(training, STEPS)


@pytest.mark.slow_fault
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


@pytest.mark.slow_fault
@pytest.mark.parametrize("replica", ["worker-1", "worker-0"])
def test_an_eviction_loses_no_step(training: Training, replica: str) -> None:
    at, uids = _copy(training.status()), training.uids()
    training.evict(replica)
    last = _wait_for_a_new_pod(training, replica, uids)
    # The chief's launcher stores its copy unless another member is seen to go on in time.
    sources = ("Peer", "Storage") if replica == "worker-0" else ("Peer",)
    assert last["lostSteps"] == 0 and last["resumedFrom"] in sources and last["resumedFromStep"] >= at, last


def _wait_for_a_new_pod(training: Training, replica: str, uids: dict[str, str]) -> Manifest:
    """The last restart, once the gang trains with a pod of that replica that is not among `uids`."""
    pod = training.pod(replica)

    def trains(now: Manifest) -> bool:
        told = now.get("lastRestart", {}).get("lostSteps") is not None
        return bool(told and now.get("phase") == "Running" and training.uids().get(pod, uids[pod]) != uids[pod])

    last: Manifest = training.wait_for("training with a new pod", trains, START_SECONDS)["lastRestart"]
    return last


@pytest.mark.slow_fault
def test_twenty_kills_change_no_byte_of_the_end(
    cluster: Cluster, operator: object, namespace: str, directory: Path
) -> None:
    undisturbed = _start_stepwise(cluster, namespace, "undisturbed", KILLED_STEPS)
    undisturbed.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    draw = random.Random(1)
    kills = [(number % 2, FIRST_KILL + number * KILL_EVERY + draw.randrange(INTERVAL)) for number in range(KILLS)]
    ordered = [kill for number, kill in enumerate(kills) if number not in POD_KILLS]
    training = _start_stepwise(cluster, namespace, "killed", KILLED_STEPS, PAUSE_SECONDS, ordered)
    for number, words in POD_KILLS.items():
        worker, step = kills[number]
        _wait_for_step(directory / "killed", step)
        where = ("--namespace", namespace, "--wait=false", *words)
        cluster.kube.kubectl("delete", "pod", training.pod(f"worker-{worker}"), *where)
    training.wait_for_phase("Succeeded", START_SECONDS + TRAIN_SECONDS)
    for worker, step in ordered:
        assert (directory / "killed" / f"killed-{worker}@{step}").exists()
    for worker in (0, 1):
        ends = [(directory / name / f"end-{worker}").read_bytes() for name in ("undisturbed", "killed")]
        assert ends[0] == ends[1]
        made = _steps(directory / "killed", worker)
        assert sorted(set(made)) == list(range(1, KILLED_STEPS + 1))
        assert len(made) - KILLED_STEPS <= KILLS * INTERVAL


def _start_stepwise(
    cluster: Cluster,
    namespace: str,
    name: str,
    steps: int,
    pause: float = 0,
    kills: list[tuple[int, int]] | None = None,
) -> Training:
    """Start the training whose end depends on no kill, with a pause in each step that leaves time for the kills."""
    text = stepwise_fit.program(epochs="1", steps=str(steps), pause=str(pause), normalization="LayerNormalization")
    objects = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    manifest = example(cluster.images[1], restartPolicy={"maxRestarts": 2 * KILLS})
    manifest["metadata"] = {"name": name, "namespace": namespace}
    manifest["spec"]["storage"]["directory"] = name
    pod = manifest["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "program", "configMap": {"name": name}}]
    orders = " ".join(f"{worker}@{step}" for worker, step in kills or [])
    pod["containers"][0] |= {
        "command": ["python", "/program/train.py"],
        "env": [{"name": "KILLS", "value": orders}],
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
    }
    cluster.kube.apply({**objects, "data": {"train.py": text}}, manifest)
    return Training(cluster.kube, namespace, name)


def _steps(directory: Path, worker: int) -> list[int]:
    """The steps that a worker has made, those of all its programs."""
    path = directory / f"steps-{worker}"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def _wait_for_step(directory: Path, step: int) -> None:
    deadline = time.monotonic() + START_SECONDS + TRAIN_SECONDS
    while max(_steps(directory, 0), default=0) < step:
        assert time.monotonic() < deadline, f"no step {step} in {directory}"
        time.sleep(0.1)

"""One night on which everything happens: faults at random moments, some in the middle of the recovery from the last.

What must hold whatever comes: counts only rise, an end is final, no more than an epoch is ever trained again, what
nobody can be blamed for is not charged, and a job whose faults stop succeeds, tidies up and is left alone.
"""

import json
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster import Cluster
from testbed.nodes import Nodes
from testbed.shell import LabError
from tests.support.cluster.statuses import all_statuses, contradictions, count
from tests.support.cluster.training import Manifest, Training, condition, example

EPOCHS = 50
FAULTS = 14
START_SECONDS = 180
END_SECONDS = 420
CALM_SECONDS = 10
CHARGED = ("the program killed", "the launcher killed")
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
GANGS: dict[str, Manifest] = {
    "two": {},
    "three-or-fewer": {"minReplicas": 1, "replicaSpecs": {"worker": {"replicas": 3}}},
}


@dataclass
class Night:
    """The faults that a training can be given; each may find nothing to hit (LabError)."""

    cluster: Cluster
    nodes: Nodes
    training: Training
    operator: str  # its namespace
    draw: random.Random
    size: int

    def faults(self) -> dict[str, Callable[[], None]]:
        """All of them by name."""
        training, here = self.training, ("--namespace", self.training.namespace)
        return {
            "the program killed": lambda: _nothing(training.kill_program(self.victim())),
            "the launcher killed": lambda: self.cluster.kill(training.namespace, training.pod(self.victim())),
            "a pod deleted": lambda: training.delete(self.victim()),
            "a pod deleted by force": lambda: self._force("pod", training.pod(self.victim()), *here),
            "a pod evicted": lambda: training.evict(self.victim()),
            "the operator killed": lambda: self._force("pod", "--all", "--namespace", self.operator),
            "the container runtime restarted": lambda: self._restart("containerd"),
            "the kubelet restarted": lambda: self._restart("kubelet"),
            "a node frozen for a while": lambda: self._freeze(training.node(self.victim())),
            "the API server frozen for a while": lambda: self._freeze(self._control_plane()),
            "suspended and resumed": self._suspend,
        }

    def victim(self) -> str:
        """Any worker."""
        return f"worker-{self.draw.randrange(self.size)}"

    def _force(self, *what: str) -> None:
        self.training.kube.kubectl("delete", *what, "--force", "--grace-period=0", "--wait=false")

    def _restart(self, unit: str) -> None:
        self.nodes.execute(self.training.node(self.victim()), "systemctl", "restart", unit)

    def _freeze(self, node: str) -> None:
        self.nodes.pause(node)
        try:
            time.sleep(self.draw.uniform(1, 8))
        finally:
            self.nodes.unpause(node)

    def _control_plane(self) -> str:
        return str(self.training.kube.get("nodes", "--selector", CONTROL_PLANE)["items"][0]["metadata"]["name"])

    def _suspend(self) -> None:
        self.training.change({"runPolicy": {"suspend": True}})
        time.sleep(self.draw.uniform(0, 6))
        self.training.change({"runPolicy": {"suspend": False}})


def _nothing(_: object) -> None:
    """For a fault that returns something."""


def _strike(night: Night) -> list[str]:
    """Faults at random moments until the training nears its end; the names of those that hit."""
    struck: list[str] = []
    faults = night.faults()
    order = night.draw.sample(sorted(faults), len(faults)) + night.draw.choices(sorted(faults), k=FAULTS)
    for name in order[:FAULTS]:
        time.sleep(night.draw.choice([0.0, 0.5, night.draw.uniform(1, 15)]))
        if (night.training.status().get("progress") or {}).get("epoch", 0) > EPOCHS - 5:
            break
        with suppress(LabError):
            faults[name]()
            struck.append(name)
            print(f"{name}; {night.training.status().get('progress', {}).get('display')}")
    return struck


@pytest.mark.slow_fault
@pytest.mark.parametrize(("gang", "seed"), [("two", 1), ("three-or-fewer", 2)])
def test_a_job_whose_faults_stop_succeeds(
    cluster: Cluster, operator: str, namespace: str, directory: Path, gang: str, seed: int
) -> None:
    if cluster.nodes is None:
        pytest.skip("nodes are disturbed only in the lab's own cluster")
    changes: dict[str, Any] = {**GANGS[gang], "restartPolicy": {"maxRestarts": 100}}
    manifest = example(cluster.images[1], f"--epochs={EPOCHS}", **changes)
    manifest["metadata"]["namespace"] = namespace
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, "digits")
    training.wait_for_line("worker-0", r"^epoch 2/", START_SECONDS)
    size = manifest["spec"]["replicaSpecs"]["worker"]["replicas"]
    with all_statuses(training) as statuses:
        struck = _strike(Night(cluster, cluster.nodes, training, operator, random.Random(seed), size))
        training.wait_for_phase("Succeeded", END_SECONDS)
        end = training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 120)
        time.sleep(CALM_SECONDS)
        assert training.status() == end
    assert len(struck) > FAULTS / 2, struck
    assert not contradictions(statuses)
    assert count(end, "counted") <= sum(name in CHARGED for name in struck), (struck, end)
    result = json.loads((directory / "digits" / "result.json").read_text())
    assert (result["epochs"], result["accuracy"] > 0.85) == (EPOCHS, True), result
    assert not list(directory.rglob("workertemp_*"))

"""Whom a fault of a campaign hits. The faults themselves strike the test cluster."""

from typing import Any, cast

import pytest

from testbed.cluster import Cluster
from testbed.kube import Kube
from testbed.nodes import Nodes
from testbed.shell import LabError
from tests.campaign.faults import Faults, Place
from tests.campaign.plan import Strike
from tests.support.cluster.training import Training


class OnePod:
    """An API server with one pod of a job."""

    def __init__(self, spec: dict[str, str], name: str = "job-worker-0") -> None:
        self._pod = {"metadata": {"name": name, "labels": {"tftraining.dev/role": "worker"}}, "spec": spec}

    def get(self, *_: str) -> dict[str, Any]:
        return {"items": [{**self._pod, "status": {"phase": "Pending"}}]}


class TwoNodes:
    """Nodes that note where a command runs."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def workers(self) -> list[str]:
        return ["a", "b"]

    def execute(self, node: str, *_: str) -> str:
        self.used.add(node)
        return ""


def faults(kind: str, pod: OnePod, nodes: TwoNodes | None = None) -> Faults:
    training = Training(cast(Kube, pod), "default", "job")
    strike = Strike("c-1", kind, 0.0, 0, 0.0, 0.0)
    return Faults(cast(Cluster, None), cast(Nodes, nodes), cast(Place, None), training, strike)


@pytest.mark.parametrize(("spec", "node"), [({}, "a"), ({"nodeName": "b"}, "b")])
def test_a_fault_of_a_node_hits_any_worker_while_the_pod_has_no_node(spec: dict[str, str], node: str) -> None:
    nodes = TwoNodes()
    assert faults("kubelet-killed", OnePod(spec), nodes).strike_now() == f"kubelet on {node}"
    assert nodes.used == {node}


def test_a_fault_of_a_pod_hits_no_pod_of_others_with_the_labels_of_the_job() -> None:
    with pytest.raises(LabError, match="no running pod"):
        faults("pod-deleted", OnePod({}, "odd-a-1")).strike_now()

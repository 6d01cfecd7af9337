"""Faults around the jobs of a campaign: what the operator does meanwhile to others is told."""

from typing import Any, cast

import pytest

from testbed.kube import Kube
from tests.campaign import around
from tests.campaign.around import Around, Wrong
from tests.campaign.plan import Strike
from tests.support.cluster.training import Training
from tests.support.control_plane.rude_proxy import RudeProxy

JOB = {
    "apiVersion": "tftraining.dev/v1",
    "kind": "TFTrainingJob",
    "metadata": {"name": "fit-0-1", "uid": "1"},
    "status": {"phase": "Suspended"},
}
NODE = {"metadata": {"name": "node"}}


class Pods:
    """An API server that keeps pods, and whose operator treats one of them as `operator` says, when it looks."""

    def __init__(self, operator: str, phase: str = "Suspended") -> None:
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._operator = operator
        self._job = JOB | {"status": {"phase": phase}}

    def apply(self, *objects: dict[str, Any]) -> None:
        self.pods |= {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects if each["kind"] == "Pod"
        }

    def kubectl(self, verb: str, kind: str, name: str, option: str, namespace: str, *_: str) -> str:
        if verb == "delete":
            self.pods.pop((namespace, name), None)
        return ""

    def get(self, kind: str, *words: str) -> Any:
        if kind == "tftrainingjob":
            self._operate()
            return self._job
        if kind == "deployment":
            return {"status": {"readyReplicas": 2}}
        return {"items": [NODE] if kind == "nodes" else [p for (n, _), p in self.pods.items() if n == words[1]]}

    def _operate(self) -> None:
        for (namespace, name), pod in [*self.pods.items()]:
            if "owner" in self._operator and "ownerReferences" in pod["metadata"]:
                del self.pods[namespace, name]
            if namespace in self._operator and name == "odd-a-1":
                self.pods[namespace, name] = pod | {"metadata": pod["metadata"] | {"labels": {}}}


def strike(kube: Pods, kind: str) -> str:
    fault = Around(cast(Kube, kube), ("system", "operator"), cast(RudeProxy, None), "jobs", "other", "", "image")
    return fault.strike(Training(cast(Kube, kube), "jobs", "fit-0-1"), Strike("a-1", kind, 0.0, 0, 0.0, 0.0))


def test_an_operator_that_removes_what_its_job_owns_does_right() -> None:
    kube = Pods("deletes what the owner has")
    assert strike(kube, "pods-of-others") == "4 pods with the labels of fit-0-1"
    assert kube.pods == {}, "nothing is left"


@pytest.mark.parametrize("namespace", ["jobs", "other"])
def test_an_operator_that_touches_the_pod_of_another_does_wrong(namespace: str) -> None:
    kube = Pods(f"changes labels in {namespace}")
    with pytest.raises(Wrong, match="pods of others were touched"):
        strike(kube, "pods-of-others")
    assert kube.pods == {}


def test_an_operator_that_looks_at_no_job_of_another_namespace_does_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(around, "LOOKED_AT_SECONDS", 0)
    with pytest.raises(Wrong, match="no job of another namespace was looked at"):
        strike(Pods("", phase=""), "quota-short")

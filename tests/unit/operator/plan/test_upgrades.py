"""A new version of the operator: other pods, another image, NetworkPolicies; what is there is left as it is."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulated_cluster import simulation
from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.test_idle import IDLE
from tftraining_api.manifests import pod as manifests
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.manifests.pod import pod
from tftraining_api.model import tf_config
from tftraining_api.model.names import ANNOTATION_ORDERS
from tftraining_api.model.spec import Manifest

NEW = "operator:2"


def newer_pod(*args: Any) -> Manifest:
    """The pod as another version of the operator would make it."""
    manifest = pod(*args)
    manifest["metadata"]["labels"]["example.com/version"] = "2"
    manifest["spec"]["containers"][0]["env"].append({"name": "NEW", "value": "1"})
    return manifest


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[SimulatedCluster], SimulatedCluster]:
    """Give a function that puts the new version in the operator's place."""

    def start(cluster: SimulatedCluster) -> SimulatedCluster:
        monkeypatch.setattr(manifests, "pod", newer_pod)
        monkeypatch.setattr(simulation, "IMAGE", NEW)
        cluster.operator_selector = OperatorSelector("system", {"app": "operator"})
        heard = cluster.launcher_report
        cluster.forget()
        cluster.launcher_report = heard
        return cluster

    return start


@pytest.mark.parametrize("state", IDLE)
def test_nothing_is_written(
    state: Callable[[], SimulatedCluster], upgrade: Callable[[SimulatedCluster], SimulatedCluster]
) -> None:
    cluster = upgrade(state())
    writes = len(cluster.api.writes)
    assert not cluster.step() and not cluster.wait(3600).step()
    assert len(cluster.api.writes) == writes


def test_before_it_has_heard_the_launchers_neither(upgrade: Callable[[SimulatedCluster], SimulatedCluster]) -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.advance(2, 100)
    cluster.run()
    upgrade(cluster).launcher_report = None
    assert not cluster.step()


def test_a_status_of_an_older_version_has_less_in_it(upgrade: Callable[[SimulatedCluster], SimulatedCluster]) -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run()
    for name in ("replaced", "lastRestart", "selector"):
        cluster.api.job["status"].pop(name, None)
    cluster.api.job["status"]["restarts"] = {"counted": 1}
    pods = {name: each["metadata"]["uid"] for name, each in cluster.api.pods.items()}
    upgrade(cluster).run()
    assert {name: each["metadata"]["uid"] for name, each in cluster.api.pods.items()} == pods
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


@pytest.mark.parametrize(
    ("limit", "value"), [("sameFailureLimit", 5), ("sameMemberLimit", 5), ("onDivergence", "Restore")]
)
def test_launchers_of_an_older_version_are_not_told_what_they_do_not_know(
    upgrade: Callable[[SimulatedCluster], SimulatedCluster], limit: str, value: object
) -> None:
    """Their chief's pod was made without the order; a limit that is changed is for those that come."""
    cluster = SimulatedCluster(a_launched_job()).run()
    annotations = cluster.api.pods["mnist-worker-0"]["metadata"]["annotations"]
    told = json.loads(annotations[ANNOTATION_ORDERS])
    annotations[ANNOTATION_ORDERS] = json.dumps({name: told[name] for name in told if name != limit})
    upgrade(cluster).api.edit(f"restartPolicy.{limit}", value)
    cluster.run()
    assert not [each for each in cluster.api.writes if each.startswith("annotate")]
    cluster.wait(40).launchers.crash("worker-1", 1)
    cluster.run()
    assert (cluster.status.phase, cluster.status.restarts.same_failure) == ("Running", None)


def test_pods_that_are_made_from_now_on_are_the_new_versions(
    upgrade: Callable[[SimulatedCluster], SimulatedCluster],
) -> None:
    cluster = upgrade(SimulatedCluster(a_launched_job()).run())
    kept = cluster.api.pods["mnist-worker-0"]["metadata"]["uid"]
    cluster.exit("worker-1", code=137, reason="OOMKilled").run()
    assert cluster.api.pods["mnist-worker-0"]["metadata"]["uid"] == kept
    new = cluster.api.pods["mnist-worker-1"]
    assert new["metadata"]["labels"]["example.com/version"] == "2"
    assert new["spec"]["initContainers"][0]["image"] == NEW
    assert not cluster.step(), "pods of two versions are one gang"


def has_tf_config(cluster: SimulatedCluster, name: str) -> bool:
    env = cluster.api.pods[name]["spec"]["containers"][0]["env"]
    return any(each["name"] == "TF_CONFIG" for each in env)


def test_the_pods_of_a_large_gang_that_have_their_tf_config_keep_it(
    upgrade: Callable[[SimulatedCluster], SimulatedCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the launchers could make it, it stood in every manifest."""
    cluster = SimulatedCluster(a_launched_job().workers(9)).run()
    monkeypatch.setattr(tf_config, "IN_MANIFEST", 99)  # nine workers stand for hundreds
    assert has_tf_config(cluster, "mnist-worker-7") and has_tf_config(cluster, "mnist-worker-8")
    before = {name: each["metadata"]["uid"] for name, each in cluster.api.pods.items()}
    writes = len(cluster.api.writes)
    assert not upgrade(cluster).step() and len(cluster.api.writes) == writes
    cluster.delete("worker-7").run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "9/9")
    after = {name: each["metadata"]["uid"] for name, each in cluster.api.pods.items()}
    assert {name for name in after if after[name] != before[name]} == {"mnist-worker-7"}
    assert not has_tf_config(cluster, "mnist-worker-7") and has_tf_config(cluster, "mnist-worker-8")

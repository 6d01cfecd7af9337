"""A new version of the operator: other pods, another image, NetworkPolicies; what is there is left as it is."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulated_cluster import simulation
from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
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
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], World]:
    """Give a function that puts the new version in the operator's place."""

    def start(world: World) -> World:
        monkeypatch.setattr(manifests, "pod", newer_pod)
        monkeypatch.setattr(simulation, "IMAGE", NEW)
        world.operator_selector = OperatorSelector("system", {"app": "operator"})
        heard = world.launcher_report
        world.forget()
        world.launcher_report = heard
        return world

    return start


@pytest.mark.parametrize("state", IDLE)
def test_nothing_is_written(state: Callable[[], World], upgrade: Callable[[World], World]) -> None:
    world = upgrade(state())
    writes = len(world.api.writes)
    assert not world.step() and not world.wait(3600).step()
    assert len(world.api.writes) == writes


def test_before_it_has_heard_the_launchers_neither(upgrade: Callable[[World], World]) -> None:
    world = World(a_launched_job()).run()
    world.launchers.advance(2, 100)
    world.run()
    upgrade(world).launcher_report = None
    assert not world.step()


def test_a_status_of_an_older_version_has_less_in_it(upgrade: Callable[[World], World]) -> None:
    world = World(a_job()).run().exit("worker-1").run()
    for name in ("replaced", "lastRestart", "selector"):
        world.api.job["status"].pop(name, None)
    world.api.job["status"]["restarts"] = {"counted": 1}
    pods = {name: each["metadata"]["uid"] for name, each in world.api.pods.items()}
    upgrade(world).run()
    assert {name: each["metadata"]["uid"] for name, each in world.api.pods.items()} == pods
    assert (world.status.phase, world.status.attempt) == ("Running", 2)


def test_launchers_of_an_older_version_are_not_told_what_they_do_not_know(upgrade: Callable[[World], World]) -> None:
    """Their chief's pod was made without the order; a limit that is changed is for those that come."""
    world = World(a_launched_job()).run()
    annotations = world.api.pods["mnist-worker-0"]["metadata"]["annotations"]
    told = json.loads(annotations[ANNOTATION_ORDERS])
    annotations[ANNOTATION_ORDERS] = json.dumps({name: told[name] for name in told if name != "sameFailureLimit"})
    upgrade(world).api.edit("restartPolicy.sameFailureLimit", 5)
    world.run()
    assert not [each for each in world.api.writes if each.startswith("annotate")]
    world.wait(40).launchers.crash("worker-1", 1)
    world.run()
    assert (world.status.phase, world.status.restarts.same_failure) == ("Running", None)


def test_pods_that_are_made_from_now_on_are_the_new_versions(upgrade: Callable[[World], World]) -> None:
    world = upgrade(World(a_launched_job()).run())
    kept = world.api.pods["mnist-worker-0"]["metadata"]["uid"]
    world.exit("worker-1", code=137, reason="OOMKilled").run()
    assert world.api.pods["mnist-worker-0"]["metadata"]["uid"] == kept
    new = world.api.pods["mnist-worker-1"]
    assert new["metadata"]["labels"]["example.com/version"] == "2"
    assert new["spec"]["initContainers"][0]["image"] == NEW
    assert not world.step(), "pods of two versions are one gang"


def has_tf_config(world: World, name: str) -> bool:
    env = world.api.pods[name]["spec"]["containers"][0]["env"]
    return any(each["name"] == "TF_CONFIG" for each in env)


def test_the_pods_of_a_large_gang_that_have_their_tf_config_keep_it(
    upgrade: Callable[[World], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the launchers could make it, it stood in every manifest."""
    world = World(a_launched_job().workers(9)).run()
    monkeypatch.setattr(tf_config, "IN_MANIFEST", 99)  # nine workers stand for hundreds
    assert has_tf_config(world, "mnist-worker-7") and has_tf_config(world, "mnist-worker-8")
    before = {name: each["metadata"]["uid"] for name, each in world.api.pods.items()}
    writes = len(world.api.writes)
    assert not upgrade(world).step() and len(world.api.writes) == writes
    world.delete("worker-7").run()
    assert (world.status.phase, world.status.ready) == ("Running", "9/9")
    after = {name: each["metadata"]["uid"] for name, each in world.api.pods.items()}
    assert {name for name in after if after[name] != before[name]} == {"mnist-worker-7"}
    assert not has_tf_config(world, "mnist-worker-7") and has_tf_config(world, "mnist-worker-8")

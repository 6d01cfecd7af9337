"""Which Keras the programs get: decided once a job, and stored before the first pod."""

import json
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import IMAGE, SimulatedCluster
from tftraining_api.manifests.pod import pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.keras import keras_of
from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import Counts, Status
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.status_writes import is_written

ANNOTATION = "tftraining.dev/keras"
CHOICES = [("Auto", "Own"), ("Legacy", "Legacy"), ("Unpatched", "Unpatched")]


def told(manifest: Manifest) -> tuple[str | None, str | None]:
    """What the pod says of Keras: to its launcher, and to a later operator."""
    (settings,) = (
        json.loads(each["value"])
        for each in manifest["spec"]["containers"][0]["env"]
        if each["name"] == "TFTRAINING_LAUNCHER"
    )
    return settings.get("keras"), manifest["metadata"]["annotations"].get(ANNOTATION)


def pods(cluster: SimulatedCluster) -> list[tuple[str | None, str | None]]:
    return [told(cluster.api.pods[cluster.name(name)]) for name in cluster.pods]


def begun_by_an_earlier_version(job: JobBuilder) -> SimulatedCluster:
    """A job that trains, without what this version writes."""
    cluster = SimulatedCluster(job.set("launcher.keras", "Legacy")).run()
    del cluster.api.job["status"]["keras"]
    cluster.api.edit("launcher.keras", "Auto")
    assert pods(cluster) == [(None, None)] * 2
    return cluster


@pytest.mark.parametrize(("asked", "kind"), CHOICES)
def test_a_new_job_gets_what_it_asks_for(asked: str, kind: str) -> None:
    _, spec = a_launched_job().set("launcher.keras", asked).parsed()
    assert keras_of(spec, Status(attempt=1)) == kind


@pytest.mark.parametrize("began", [Status(replicas={"worker": Counts(desired=2)}), Status(attempt=2)])
@pytest.mark.parametrize("asked", [asked for asked, _ in CHOICES])
def test_a_job_that_began_without_a_decision_keeps_legacy_keras(asked: str, began: Status) -> None:
    _, spec = a_launched_job().set("launcher.keras", asked).parsed()
    assert keras_of(spec, began) == "Legacy"


def test_a_decision_is_final_and_pods_remember_it_where_the_status_was_wiped() -> None:
    _, spec = a_launched_job().set("launcher.keras", "Legacy").parsed()
    assert keras_of(spec, Status(keras="Own")) == "Own"
    assert keras_of(spec, Status(), ["Own"]) == "Own"
    assert keras_of(spec, Status(attempt=3), ["Unpatched"]) == "Unpatched"
    assert keras_of(spec, Status(), [""]) == keras_of(spec, Status(), ["Keras 4"]) == "Legacy"


def test_without_launchers_the_manifest_decides_as_before() -> None:
    _, spec = a_job().parsed()
    assert keras_of(spec, Status()) is None
    cluster = SimulatedCluster(a_job()).run()
    assert "keras" not in cluster.api.job["status"]
    environments = [each["spec"]["containers"][0]["env"] for each in cluster.api.pods.values()]
    assert all({"name": "TF_USE_LEGACY_KERAS", "value": "1"} in each for each in environments)


@pytest.mark.parametrize(("asked", "kind"), CHOICES)
def test_the_first_pod_comes_after_the_answer_that_holds_the_decision(asked: str, kind: str) -> None:
    cluster = SimulatedCluster(a_launched_job().storage().set("launcher.keras", asked))
    cluster.step(soon=True)
    assert cluster.api.writes == ["status", "create service/mnist"]
    assert cluster.api.job["status"]["keras"] == kind
    cluster.step(soon=True)
    assert cluster.api.writes.count("status") == 1 and len(cluster.pods) == 2
    cluster.run()
    assert pods(cluster) == [(None, None) if kind == "Legacy" else (kind, kind)] * 2
    assert cluster.status.condition("LegacyKeras") is None


def test_a_restart_and_a_suspension_change_nothing() -> None:
    cluster = SimulatedCluster(a_launched_job().storage()).run().delete("worker-1").run()
    assert pods(cluster) == [("Own", "Own")] * 2
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run_timers()
    cluster.api.edit("launcher.keras", "Legacy")
    cluster.api.edit("runPolicy.suspend", False)
    cluster.run_timers()
    assert (cluster.status.attempt, cluster.status.keras) == (2, "Own")
    assert pods(cluster) == [("Own", "Own")] * 2


def test_a_job_that_waits_in_suspension_decides_when_it_begins() -> None:
    cluster = SimulatedCluster(a_launched_job().set("runPolicy.suspend", True)).run()
    assert (cluster.status.phase, cluster.status.keras) == ("Suspended", None)
    cluster.api.edit("launcher.keras", "Unpatched")
    cluster.api.edit("runPolicy.suspend", False)
    assert pods(cluster.run()) == [("Unpatched", "Unpatched")] * 2


def test_a_running_job_of_an_earlier_version_keeps_its_keras_to_its_end() -> None:
    cluster = begun_by_an_earlier_version(a_launched_job().storage())
    cluster.run().delete("worker-1").run()
    assert pods(cluster) == [(None, None)] * 2
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run_timers()
    cluster.api.edit("runPolicy.suspend", False)
    cluster.run_timers()
    assert (cluster.status.attempt, cluster.status.keras) == (2, "Legacy")
    assert pods(cluster) == [(None, None)] * 2


def test_a_suspended_job_of_an_earlier_version_keeps_its_keras_if_it_has_run() -> None:
    cluster = begun_by_an_earlier_version(a_launched_job().storage())
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run_timers()
    cluster.api.job["status"].pop("keras", None)
    cluster.api.edit("runPolicy.suspend", False)
    cluster.run_timers()
    assert pods(cluster) == [(None, None)] * 2


def test_pods_without_a_status_are_a_job_that_has_begun() -> None:
    """An earlier version has died between the creation of the pods and the first write of the status."""
    cluster = begun_by_an_earlier_version(a_launched_job())
    cluster.api.job["status"] = {}
    cluster.delete("worker-1").run()
    assert pods(cluster) == [(None, None)] * 2


def test_the_decision_about_a_job_that_has_begun_starts_no_write() -> None:
    began = Status(replicas={"worker": Counts(desired=2)})
    assert is_written(began, msgspec.structs.replace(began, keras="Legacy"))
    assert not is_written(Status(), Status(keras="Legacy"))
    assert not is_written(began, msgspec.structs.replace(began, keras="Own"))


def test_a_definition_that_drops_the_decision_leaves_the_rule_of_earlier_versions_and_it_is_told() -> None:
    cluster = SimulatedCluster(a_launched_job())
    cluster.step()
    del cluster.api.job["status"]["keras"]
    seen, observed = cluster.observe(cluster.api.snapshot())
    step = plan(seen, msgspec.structs.replace(observed, keras_dropped=True), cluster.now, IMAGE)
    assert [told(each) for each in step.create_pods] == [(None, None)] * 2
    condition = step.status.condition("LegacyKeras")
    assert condition is not None and (condition.status, condition.reason) == ("True", "LegacyKeras")


def test_a_job_that_goes_on_without_launchers_keeps_its_keras() -> None:
    """With the variable its programs would get another Keras than the one of their backups."""

    def environment(status: dict[str, Any]) -> dict[str, Any]:
        job = parse_job({**a_job().raw(), "status": status})
        assert job.spec is not None
        container = pod(job, job.spec, job.spec.gang[0], IMAGE)["spec"]["containers"][0]
        return {each["name"]: each.get("value") for each in container["env"]}

    assert "TF_USE_LEGACY_KERAS" not in environment({"keras": "Own"})
    assert environment({"keras": "Legacy"})["TF_USE_LEGACY_KERAS"] == environment({})["TF_USE_LEGACY_KERAS"] == "1"


def test_the_choice_is_outside_the_fingerprint() -> None:
    prints = {a_launched_job().set("launcher.keras", asked).parsed()[1].fingerprint for asked, _ in CHOICES}
    assert prints == {a_launched_job().parsed()[1].fingerprint}

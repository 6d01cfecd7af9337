"""Row: spec changes. What can change while the job runs takes effect, once, and touches no pod that need not know; what
cannot is rejected by the rules of the CRD with the reason. In a suspension everything may change.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tftraining_client.validation.crd import custom_resource
from tftraining_client.validation.rules import RULES, compares, compiled
from tftraining_client.validation.structure import as_stored as defaulted

NewJob = Callable[[], JobBuilder]
MODES = pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
OTHER: dict[str, Any] = {"spec": {"containers": [{"name": "tensorflow", "image": "trainer:2", "command": ["python"]}]}}

# Every field of the spec is in one of these: who adds one decides whether it may change.
MAY_CHANGE: dict[str, Any] = {
    "replicaSpecs.worker.replicas": 3,
    "restartPolicy.maxRestarts": 3,
    "restartPolicy.sameFailureLimit": 0,
    "restartPolicy.sameMemberLimit": 0,
    "restartPolicy.onDivergence": "Restore",
    "runPolicy.suspend": True,
    "runPolicy.activeDeadlineSeconds": 3600,
    "runPolicy.startDeadlineSeconds": 30,
    "runPolicy.stallTimeoutSeconds": 300,
    "runPolicy.ttlSecondsAfterFinished": 60,
    "runPolicy.evaluatorGraceSeconds": 90,
    "runPolicy.nodeLostSeconds": 90,
}
# Read by another controller, or once before the first pod.
UNREAD = {"runPolicy.managedBy", "launcher.keras"}
LIMITS = sorted(set(MAY_CHANGE) - {"replicaSpecs.worker.replicas", "runPolicy.suspend"})
MAY_NOT: dict[str, Any] = {
    "template": OTHER,
    "replicaSpecs.chief": {"replicas": 1, "port": 2222},
    "replicaSpecs.worker.port": 3333,
    "replicaSpecs.worker.template": OTHER,
    "replicaSpecs.ps": {"replicas": 1, "port": 2222},
    "replicaSpecs.evaluator": {"replicas": 1, "port": 2222},
    "minReplicas": 2,
    "code": {"configMap": {"name": "program"}, "digest": "sha256:" + "0" * 64},
    "storage": {"volume": {"emptyDir": {}}, "mountPath": "/training", "saveDirs": ["."]},
    "restartPolicy.mode": "Recreate",
    "restartPolicy.scope": "Pod",
    "restartPolicy.budgetReset": "Never",
    "restartPolicy.rules": [{"action": "Ignore", "onExitCodes": [3]}],
    "launcher.warmStart": False,
    "launcher.terminationGraceSeconds": 6,
    "launcher.memberTimeoutSeconds": 4,
    "launcher.image": "operator:2",
    "launcher.keras": "Legacy",
    "launcher.memoryBackup": {"mode": "Off", "maxOverheadPercent": 1, "exactness": "Required"},
    "runPolicy.cleanPodPolicy": "All",
    "runPolicy.scheduling": {"priorityClassName": "high"},
    "runPolicy.managedBy": "example.com/other",
    "successPolicy": "AllWorkers",
}


def uids(cluster: SimulatedCluster) -> dict[str, str]:
    """The UIDs of the pods, by their short names."""
    return {name: cluster.api.pods[cluster.name(name)]["metadata"]["uid"] for name in cluster.pods}


# --- what the CRD has to say to a change


def as_stored(**run_policy: Any) -> dict[str, Any]:
    """The spec of a job of two workers as the API server holds it: with every default."""
    schema = custom_resource().schema
    spec = a_launched_job().raw()["spec"] | {"runPolicy": run_policy}
    found: dict[str, Any] = defaulted({"spec": spec}, schema)["spec"]
    return found


def changed(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    new = copy.deepcopy(spec)
    *parents, last = path.split(".")
    place = new
    for each in parents:
        place = place[each]
    place[last] = value
    return new


def objections(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The field and the words of each rule about changes that forbids this one."""
    schema = custom_resource().schema["properties"]["spec"]
    for rule in schema[RULES]:
        if compares(rule) and not compiled(rule["rule"]).eval(data={"self": new, "oldSelf": old}).value():
            yield rule["fieldPath"].removeprefix("."), rule["message"]


def test_every_field_is_decided() -> None:
    properties = custom_resource().schema["properties"]["spec"]["properties"]
    grouped = ("replicaSpecs", "restartPolicy", "launcher", "runPolicy")
    fields = {name for name in properties if name not in grouped}
    fields |= {f"{group}.{name}" for group in grouped for name in properties[group]["properties"]}
    worker = properties["replicaSpecs"]["properties"]["worker"]["properties"]
    fields |= {f"replicaSpecs.worker.{name}" for name in worker}
    assert {*MAY_CHANGE, *MAY_NOT} == fields - {"replicaSpecs.worker"}


@pytest.mark.parametrize("path", MAY_CHANGE)
def test_what_may_change_is_not_rejected(path: str) -> None:
    assert list(objections(as_stored(), changed(as_stored(), path, MAY_CHANGE[path]))) == []


@pytest.mark.parametrize("path", MAY_NOT)
def test_what_may_not_is_rejected_with_what_to_do(path: str) -> None:
    ((field, message),) = objections(as_stored(), changed(as_stored(), path, MAY_NOT[path]))
    assert path == field or path.startswith(f"{field}.")
    assert "suspend the job (spec.runPolicy.suspend: true), change it, then resume the job" in message
    assert path in ("template", "minReplicas") or "while the job runs" in message


@pytest.mark.parametrize("path", [*MAY_NOT, *MAY_CHANGE])
def test_while_the_job_is_suspended_everything_may_change_also_with_the_resumption(path: str) -> None:
    old = as_stored(suspend=True)
    new = changed(old, path, {**MAY_NOT, **MAY_CHANGE}[path])
    assert list(objections(old, new)) == []
    assert list(objections(old, changed(new, "runPolicy.suspend", False))) == []


def test_a_change_that_comes_with_the_suspension_is_too_early() -> None:
    new = changed(as_stored(suspend=True), "template", OTHER)
    assert [field for field, _ in objections(as_stored(), new)] == ["template"]


# --- what may change takes effect, and touches no pod


@MODES
@pytest.mark.parametrize("path", LIMITS)
def test_a_limit_restarts_nothing(new_job: NewJob, path: str) -> None:
    cluster = SimulatedCluster(new_job()).run()
    before = uids(cluster)
    cluster.api.edit(path, MAY_CHANGE[path])
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt, uids(cluster)) == ("Running", 1, before)
    assert cluster.status.observed_generation == 2
    assert cluster.launchers.round == (1 if cluster.launched else 0)


@pytest.mark.parametrize("queue", ["", "research"], ids=["", "queued"])
@pytest.mark.parametrize("path", LIMITS)
def test_launchers_are_told_of_what_concerns_them_once(path: str, queue: str) -> None:
    cluster = SimulatedCluster(a_launched_job().labelled(**{"kueue.x_k8s.io__queue_name": queue})).run()
    cluster.api.edit(path, MAY_CHANGE[path])
    cluster.run()
    told = json.loads(cluster.api.pods["mnist-worker-0"]["metadata"]["annotations"]["tftraining.dev/orders"])
    theirs = path.partition(".")[2] in told
    assert not theirs or told[path.partition(".")[2]] == MAY_CHANGE[path]
    annotated = [each for each in cluster.api.writes if each.startswith("annotate")]
    assert annotated == (["annotate pod/mnist-worker-0"] if theirs else [])


def test_more_restarts_are_allowed_from_now_on() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(1)).run().exit("worker-1").run()
    cluster.api.edit("restartPolicy.maxRestarts", 2)
    assert cluster.run().exit("worker-1").run_timers().status.phase == "Running"
    assert cluster.exit("worker-1").run_timers().status.reason == "MaxRestartsExceeded"


def test_fewer_restarts_end_nothing_before_the_next_failure() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(5)).run()
    for _ in range(3):
        cluster.exit("worker-1").run_timers()
    cluster.api.edit("restartPolicy.maxRestarts", 1)
    assert cluster.run().status.phase == "Running"
    assert cluster.exit("worker-1").run_timers().status.reason == "MaxRestartsExceeded"


def test_the_start_deadline_of_a_job_that_waits() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.kubelet.set_waiting("mnist-worker-1", "ErrImagePull", "no such image")
    cluster.wait(100).settle()
    assert cluster.status.phase == "Starting"
    cluster.api.edit("runPolicy.startDeadlineSeconds", 60)
    assert cluster.settle().status.reason == "StartDeadlineExceeded"


def test_the_time_of_an_evaluator_after_the_success() -> None:
    cluster = SimulatedCluster(a_job().role("evaluator").set("runPolicy.evaluatorGraceSeconds", 30)).run()
    cluster.exit("worker-0", code=0).run()
    cluster.api.edit("runPolicy.evaluatorGraceSeconds", 300)
    assert "evaluator-0" in cluster.run().wait(200).run().pods
    cluster.api.edit("runPolicy.evaluatorGraceSeconds", 1)
    assert "evaluator-0" not in cluster.run().pods


# --- once


@MODES
def test_two_changes_before_anybody_looks_are_one(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 4)
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.api.edit("restartPolicy.maxRestarts", 3)
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.observed_generation) == ("Running", "3/3", 4)
    assert cluster.status.replicas["worker"].highest == 2
    restarts = cluster.status.restarts
    assert (restarts.in_place + restarts.recreated, restarts.counted, restarts.disruptions) == (1, 0, 0)


@MODES
def test_a_second_change_on_the_heels_of_the_first(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 4)
    cluster.settle()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "3/3")
    restarts = cluster.status.restarts
    assert (restarts.in_place + restarts.recreated, restarts.counted, restarts.disruptions) == (1, 0, 0)
    assert not cluster.step()


@MODES
def test_a_change_while_the_gang_restarts_is_part_of_that_restart(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run().exit("worker-1", code=137, reason="OOMKilled").settle()
    assert cluster.status.phase == "Restarting"
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run_timers()
    restarts = cluster.status.restarts
    assert (cluster.status.phase, cluster.status.ready, restarts.counted, restarts.recreated) == (
        "Running",
        "3/3",
        1,
        1,
    )


@MODES
def test_the_same_value_again_is_no_change(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    before = uids(cluster)
    cluster.api.edit("replicaSpecs.worker.replicas", 2)
    cluster.run()
    assert (uids(cluster), cluster.status.attempt, cluster.launchers.round <= 1) == (before, 1, True)
    assert not cluster.step()


# --- in a suspension


@MODES
def test_what_is_changed_in_a_suspension_is_there_at_the_resumption(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job().role("ps")).run()).run()
    for path, value in (("template", OTHER), ("replicaSpecs.evaluator", {}), ("replicaSpecs.worker.port", 3333)):
        cluster.api.edit(path, value)
        cluster.run()
    assert (cluster.status.phase, cluster.pods) == ("Suspended", [])
    resume(cluster).run()
    assert cluster.pods == ["evaluator-0", "ps-0", "worker-0", "worker-1"]
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.restarts.recreated) == ("Running", 2, 0)
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.api.pods.values()} == {"trainer:2"}
    assert ":3333" in str(cluster.api.pods["mnist-worker-0"]["spec"])


@MODES
def test_the_other_mode_may_be_chosen_in_a_suspension(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job()).run()).run()
    cluster.launched = not cluster.launched
    cluster.api.edit("restartPolicy.mode", "InPlace" if cluster.launched else "Recreate")
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "2/2", 2)


@MODES
def test_a_role_that_is_taken_away_in_a_suspension(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job().chief().role("ps")).run()).run()
    del cluster.api.job["spec"]["replicaSpecs"]["ps"]
    resume(cluster).run()
    assert (cluster.pods, cluster.status.ready) == (["chief-0", "worker-0", "worker-1"], "3/3")
    assert cluster.status.replicas["ps"].desired == 0


def test_a_suspended_job_says_how_many_it_will_have() -> None:
    cluster = suspend(SimulatedCluster(a_job()).run()).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 5)
    workers = cluster.run().status.replicas["worker"]
    assert (workers.desired, workers.active, workers.highest, cluster.status.ready) == (5, 0, 1, "0/5")


@MODES
def test_scaled_and_suspended_in_one_edit(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    suspend(cluster).run()
    assert (cluster.status.phase, cluster.pods, cluster.status.ready) == ("Suspended", [], "0/3")
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.recreated, restarts.in_place) == (0, 0, 0)
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.restarts.recreated) == ("Running", "3/3", 0)


@MODES
def test_scaled_and_resumed_in_one_edit(new_job: NewJob) -> None:
    cluster = suspend(SimulatedCluster(new_job().workers(3)).run()).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 1)
    resume(cluster).run()
    assert (cluster.pods, cluster.status.ready, cluster.status.attempt) == (["worker-0"], "1/1", 2)


# --- in a suspension that nobody has seen


def gone_by(cluster: SimulatedCluster) -> dict[str, Any]:
    """What the launchers go by: what they were made with, and were told since, without what came of it."""
    known = cluster.launchers.settings() | {"members": cluster.launchers.members}
    return {name: value for name, value in known.items() if name not in ("attempt", "ledger", "largestGang", "proven")}


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
@pytest.mark.parametrize("path", sorted({*MAY_NOT, *MAY_CHANGE} - {"runPolicy.suspend", *UNREAD}))
def test_whatever_may_change_in_a_suspension_reaches_the_launchers(path: str, seen: bool) -> None:
    value = {**MAY_NOT, **MAY_CHANGE}[path]
    cluster = suspend(SimulatedCluster(a_launched_job().storage()).run())
    if seen:
        cluster.run()
    cluster.launched = value != "Recreate"
    cluster.api.edit(path, value)
    resume(cluster).run()
    undisturbed = SimulatedCluster(a_launched_job().storage().set(path, value)).run()
    assert (cluster.status.phase, cluster.status.ready) == (undisturbed.status.phase, undisturbed.status.ready)
    if cluster.launched:
        assert gone_by(cluster) == gone_by(undisturbed)


def test_a_success_policy_that_running_launchers_hear_of() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    suspend(cluster).api.edit("successPolicy", "AllWorkers")
    resume(cluster).run()
    cluster.launchers.finish("worker-0")
    assert (cluster.run().status.phase, cluster.status.attempt) == ("Running", 1)
    cluster.launchers.finish("worker-1")
    assert cluster.run().status.reason == "AllWorkersSucceeded"


def test_a_budget_that_running_launchers_hear_is_not_refilled_any_more() -> None:
    cluster = SimulatedCluster(a_launched_job().max_restarts(1)).run()
    suspend(cluster).api.edit("restartPolicy.budgetReset", "Never")
    resume(cluster).run()
    for epoch in (1, 2):
        cluster.launchers.advance(epoch, 70 * epoch)
        assert cluster.status.attempt == 1
        cluster.launchers.crash("worker-1")
        cluster.run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "MaxRestartsExceeded")


@MODES
def test_a_change_in_a_suspension_that_was_over_too_soon_restarts_the_gang_once(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().storage()).run()
    cluster.forget()
    container = {"name": "tensorflow", "image": "trainer:2", "command": ["python", "train.py"]}
    suspend(cluster).api.edit("template", {"spec": {"containers": [container]}})
    resume(cluster).run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.api.pods.values()} == {"trainer:2"}
    last, restarts = cluster.status.last_restart, cluster.status.restarts
    assert last is not None and last.reason == "SpecChanged"
    assert (restarts.counted, restarts.disruptions, restarts.without_progress) == (0, 0, 0)
    assert cluster.status.message == "2 replicas training"
    told = "the pod template or a replica count changed; restarting the gang as attempt 2"
    assert [each.message for each in cluster.events if each.reason == "SpecChanged"] == [told]


def test_a_gang_that_is_made_anew_says_where_it_went_on() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.backup = (3, 210)
    cluster.launchers.advance(4, 225)
    cluster.wait(10).run()
    suspend(cluster).api.edit("template", OTHER)
    resume(cluster).run()
    cluster.launchers.advance(4, 220)
    cluster.wait(10).run()
    last, resumed = cluster.status.last_restart, cluster.status.condition("Resumed")
    assert last is not None and (last.reason, last.resumed_from_epoch, last.resumed_from_step) == (
        "SpecChanged",
        3,
        210,
    )
    assert last.lost_steps == 15, "from the last step that the earlier pods have reported to the first of the new ones"
    assert resumed is not None and resumed.status == "True"
    assert resumed.message.startswith("resumed from epoch 3 after 0 s; 15 steps lost"), resumed.message
    assert not cluster.step()


@MODES
def test_a_suspension_that_was_over_too_soon_and_changed_nothing_is_none(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().storage()).run()
    resume(suspend(cluster)).run()
    assert (cluster.status.attempt, [note.reason for note in cluster.events]) == (1, ["Started", "Training"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("restartPolicy.maxRestarts", 3),
        ("restartPolicy.budgetReset", "Never"),
        ("runPolicy.startDeadlineSeconds", 60),
        ("runPolicy.cleanPodPolicy", "None"),
        ("launcher.warmStart", True),
        ("replicaSpecs.worker.port", 2222),
    ],
)
def test_what_pods_are_not_made_from_and_defaults_restart_nothing(path: str, value: object) -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.api.edit(path, value)
    assert cluster.run().status.attempt == 1


def test_pods_of_an_operator_that_did_not_note_what_they_are_made_from_stay() -> None:
    cluster = SimulatedCluster(a_job()).run()
    for pod in cluster.api.pods.values():
        del pod["metadata"]["annotations"]["tftraining.dev/spec"]
    assert cluster.run().status.attempt == 1


ROLES = [("ps", 1, 2), ("ps", 2, 1), ("chief", 0, 1), ("chief", 1, 0), ("evaluator", 0, 1), ("evaluator", 1, 0)]


@MODES
@pytest.mark.parametrize("workers", [2, 3, 1])
@pytest.mark.parametrize(("role", "before", "after"), [*ROLES, ("ps", 0, 1), ("ps", 1, 0)])
def test_another_size_of_a_role_after_a_suspension_that_was_over_too_soon(
    new_job: NewJob, workers: int, role: str, before: int, after: int
) -> None:
    """Launchers can be told of another number of workers, and of nothing else: the whole gang is recreated, once."""
    cluster = SimulatedCluster(new_job().storage().role(role, replicas=before)).run()
    suspend(cluster).api.edit(f"replicaSpecs.{role}.replicas", after)
    cluster.api.edit("replicaSpecs.worker.replicas", workers)
    resume(cluster).run_timers()
    size = workers + after * (role != "evaluator")
    assert (cluster.status.phase, cluster.status.ready) == ("Running", f"{size}/{size}")
    configs = [each["env"] for pod in cluster.api.pods.values() for each in pod["spec"]["containers"]]
    told = {next(each["value"] for each in env if each["name"] == "TF_CONFIG") for env in configs}
    clusters = {json.dumps(json.loads(each)["cluster"]) for each in told}
    assert role == "evaluator" or len(clusters) == 1, "all know the same gang"
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.budget_used) == (0, 0, 0)
    assert role == "evaluator" or (cluster.status.attempt, restarts.recreated) == (2, 1)
    assert not cluster.step()


@MODES
def test_another_size_of_a_role_that_is_not_elastic_is_no_other_number_of_workers(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().role("ps")).run()
    suspend(cluster).api.edit("replicaSpecs.ps.replicas", 2)
    resume(cluster).run_timers()
    last = cluster.status.last_restart
    assert last is not None and last.reason == "SpecChanged"

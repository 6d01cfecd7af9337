"""Row: elastic. Another number of workers is one free restart at the new size; with minReplicas the survivors of a lost
worker go on as a smaller gang, and grow back in one restart.
"""

import json
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.manifests.spec_updates import changed_annotation

REPLICAS = "replicaSpecs.worker.replicas"
BOTH = pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


def running(job: JobBuilder) -> SimulatedCluster:
    cluster = SimulatedCluster(job).run()
    cluster.launchers.advance(3, 140)
    cluster.run()
    cluster.trajectory.clear()
    cluster.events.clear()
    return cluster


def uids(cluster: SimulatedCluster) -> dict[str, str]:
    """The UIDs of the pods, by their short names."""
    return {name: cluster.api.pods[cluster.name(name)]["metadata"]["uid"] for name in cluster.pods}


def orders(cluster: SimulatedCluster, pod: str = "worker-0") -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        cluster.api.pods[cluster.name(pod)]["metadata"]["annotations"]["tftraining.dev/orders"]
    )
    return told


def sizes(cluster: SimulatedCluster) -> set[int]:
    """How large each that trains believes the gang to be: by its TF_CONFIG, or as the launchers tell it."""
    if cluster.launched:
        return {len(cluster.launchers.joined), orders(cluster)["workers"]}
    return {workers_in_tf_config(cluster, name) for name in cluster.api.pods}


# --- fewer workers for a while


def why_not_started(job: JobBuilder) -> SimulatedCluster:
    """A gang of three whose worker-1 is lost, and whose new pod cannot be scheduled."""
    cluster = running(job).delete("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    pod = cluster.name("worker-1")
    message = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    cluster.kubelet.condition(pod, message)
    while cluster.poll_launchers() or cluster.step():
        pass
    return cluster


def test_the_others_go_on_while_a_lost_worker_is_replaced() -> None:
    cluster = why_not_started(a_launched_job().workers(3).set("minReplicas", 2))
    status = cluster.status
    assert (status.phase, status.reason, status.ready) == ("Running", "FewerWorkers", "2/3")
    assert status.message == "training with 2 of 3 workers; worker-1: cannot be scheduled: 0/3 nodes"
    assert status.condition("Ready") is None, "neither complete nor something to be waited for"
    assert (status.restarts.counted, status.restarts.disruptions, status.restarts.in_place) == (0, 1, 1)
    last = status.last_restart
    assert last is not None
    assert (last.reason, last.down_seconds, last.resumed_from_epoch) == ("PodDeleted", 1.1, 2)
    assert not cluster.step(), "no write while nothing happens"


def test_the_gang_is_whole_again_when_the_replacement_is_there() -> None:
    cluster = why_not_started(a_launched_job().workers(3).set("minReplicas", 2))
    before = uids(cluster)
    cluster.kubelet.start(cluster.name("worker-1"), ready=False)
    cluster.run()
    status, last = cluster.status, cluster.status.last_restart
    assert (status.phase, status.reason, status.ready) == ("Running", "Training", "3/3")
    assert status.message == "worker-1 is back; resumed from epoch 2 after 1.1 s"
    assert last is not None and last.reason == "Grown"
    assert (status.restarts.counted, status.restarts.in_place, status.attempt) == (0, 2, 1)
    assert uids(cluster) == before
    assert ("Normal", "Grown") in [(note.type, note.reason) for note in cluster.events]


def test_without_the_permission_the_others_wait() -> None:
    cluster = why_not_started(a_launched_job().workers(3))
    assert (cluster.status.phase, cluster.status.ready) == ("Restarting", "0/3")


def test_a_second_loss_goes_below_the_least() -> None:
    cluster = why_not_started(a_launched_job().workers(3).set("minReplicas", 2))
    cluster.delete("worker-2").settle()
    cluster.kubelet.remove_deleted()
    while cluster.poll_launchers() or cluster.step():
        pass
    assert cluster.status.phase == "Restarting"
    assert cluster.status.restarts.counted == 0


def test_no_start_deadline_ends_a_gang_that_trains_with_fewer() -> None:
    job = a_launched_job().workers(3).set("minReplicas", 2).set("runPolicy.startDeadlineSeconds", 60)
    cluster = why_not_started(job).wait(1000)
    cluster.settle()
    assert cluster.status.phase == "Running"


def lose(cluster: SimulatedCluster, *pods: str) -> SimulatedCluster:
    """The pods are deleted by force, and what is made in their place does not start yet."""
    cluster.kubelet.force_delete(*map(cluster.name, pods))
    while cluster.step() or cluster.poll_launchers():
        pass
    return cluster


def losses(cluster: SimulatedCluster) -> tuple[int, int, int]:
    restarts = cluster.status.restarts
    return restarts.counted, restarts.disruptions, restarts.recreated


@pytest.mark.parametrize("least", [None, 1], ids=["", "minReplicas"])
def test_forced_deletions_one_after_another_are_a_loss_each(least: int | None) -> None:
    cluster = running(a_launched_job().workers(4).max_restarts(0).set("minReplicas", least))
    for number, pod in enumerate(("worker-1", "worker-2", "worker-3"), 1):
        lose(cluster, pod).wait(0.1)
        assert losses(cluster) == (0, number, number)
        assert cluster.status.last_restart is not None and cluster.status.last_restart.pod == f"mnist-{pod}"
        if least:
            assert (cluster.status.phase, cluster.status.ready) == ("Running", f"{4 - number}/4")
            assert (cluster.status.message or "").startswith(f"training with {4 - number} of 4 workers")
            there = [len(cluster.launchers.running), cluster.status.replicas["worker"].ready]
            assert there == [4 - number] * 2
    before = cluster.launchers.round
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready, losses(cluster)) == ("Running", "4/4", (0, 3, 3))
    assert cluster.launchers.round == before + 1, "they come back together"
    assert cluster.status.replicas["worker"].absent_indexes == ""


@pytest.mark.parametrize("least", [None, 1], ids=["", "minReplicas"])
def test_the_same_one_again_and_again_is_a_loss_each_time(least: int | None) -> None:
    cluster = running(a_launched_job().workers(3).max_restarts(0).set("minReplicas", least))
    for number in (1, 2, 3):
        lose(cluster, "worker-1").wait(60).settle()
        assert losses(cluster) == (0, number, number)
    assert cluster.run_timers().status.ready == "3/3"


def test_fewer_workers_while_a_lost_one_waits_for_its_time_is_no_other_loss() -> None:
    cluster = running(a_launched_job().workers(4).set("minReplicas", 1))
    for number in (1, 2):
        lose(cluster, "worker-1")
        assert losses(cluster) == (0, number, number)
    assert cluster.pods == ["worker-0", "worker-2", "worker-3"], "it waits a second"
    cluster.api.edit(REPLICAS, 2)
    cluster.run_timers()
    assert (cluster.status.ready, losses(cluster)) == ("2/2", (0, 2, 2))


@pytest.mark.parametrize("least", [None, 1], ids=["", "minReplicas"])
def test_those_that_are_lost_at_the_same_time_are_one_incident(least: int | None) -> None:
    cluster = running(a_launched_job().workers(4).set("minReplicas", least))
    lose(cluster, "worker-2", "worker-3")
    assert losses(cluster) == (0, 1, 1)
    cluster.run_timers()
    assert (cluster.status.ready, losses(cluster)) == ("4/4", (0, 1, 1))
    assert cluster.launchers.round == (3 if least else 2)


@pytest.mark.parametrize("least", [None, 1], ids=["", "minReplicas"])
def test_where_it_went_on_is_told_also_if_the_launchers_name_another_one_of_the_lost(least: int | None) -> None:
    cluster = running(a_launched_job().workers(4).set("minReplicas", least))
    cluster.launchers.joined = dict(reversed(cluster.launchers.joined.items()))
    lose(cluster, "worker-1", "worker-2")
    if not least:
        cluster.run_timers()
        assert cluster.status.message == "worker-1 was deleted; resumed from epoch 2 after 1.1 s"
    last = cluster.status.last_restart
    assert last is not None and (last.pod, last.reason) == ("mnist-worker-1", "PodDeleted")
    assert (last.resumed_from_epoch, last.down_seconds) == (2, 1.1)


def test_a_pod_that_was_not_there_is_not_lost() -> None:
    """Also by the status of an older version, which did not say who was absent."""
    cluster = running(a_launched_job().workers(3).set("minReplicas", 1))
    cluster.kubelet.force_delete("mnist-worker-1")
    cluster.api.job["status"]["replicas"]["worker"]["active"] = 2
    cluster.run_timers()
    assert (cluster.status.ready, losses(cluster)) == ("3/3", (0, 0, 0))


@pytest.mark.parametrize(("pod", "others"), [("worker-1", "keep training"), ("worker-0", "are waiting")])
def test_the_words_for_one_that_is_gone_say_it_too(pod: str, others: str) -> None:
    cluster = running(a_launched_job().workers(3).set("minReplicas", 2))
    cluster.kubelet.force_delete(cluster.name(pod))
    cluster.step()
    assert cluster.status.message == f"the pod of {pod} is gone; recreating its pod; other members {others}"


@pytest.mark.parametrize(("pod", "others"), [("worker-1", "keep training"), ("worker-0", "are waiting")])
def test_the_words_of_the_loss_say_what_the_others_do(pod: str, others: str) -> None:
    cluster = running(a_launched_job().workers(3).set("minReplicas", 2)).delete(pod)
    cluster.step()
    assert cluster.status.message == f"{pod} was deleted; recreating its pod; other members {others}"


# --- another size


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (3, 1), (1, 2)])
def test_the_pods_of_those_who_stay_are_kept(before: int, after: int) -> None:
    cluster = running(a_launched_job().workers(before).max_restarts(0))
    old = uids(cluster)
    cluster.api.edit(REPLICAS, after)
    cluster.run()
    new, status = uids(cluster), cluster.status
    assert sorted(new) == [f"worker-{index}" for index in range(after)]
    assert all(new[name] == uid for name, uid in old.items() if name in new)
    assert (status.phase, status.ready, status.attempt) == ("Running", f"{after}/{after}", 1)
    assert (status.restarts.counted, status.restarts.disruptions, status.restarts.in_place) == (0, 0, 1)
    assert status.restarts.recreated == 0
    assert status.last_restart is not None and status.last_restart.reason == "Resized"
    assert status.message == "the number of workers changed; resumed from epoch 2 after 1.1 s"
    assert status.replicas["worker"].desired == after
    assert status.replicas["worker"].highest == max(before, after) - 1
    assert orders(cluster)["workers"] == after
    assert cluster.launchers.round == 2
    told = [(note.type, note.reason, note.message) for note in cluster.events]
    assert told[0] == ("Normal", "Resized", f"changing the number of workers from {before} to {after}")
    assert not cluster.step()


def test_the_gang_trains_on_until_the_new_workers_stand_ready() -> None:
    cluster = running(a_launched_job())
    cluster.api.edit(REPLICAS, 3)
    cluster.settle()
    while cluster.poll_launchers() or cluster.step():
        pass
    assert (cluster.status.phase, cluster.status.reason, cluster.status.ready) == ("Running", "FewerWorkers", "2/3")
    assert cluster.status.message == "training with 2 of 3 workers; waiting for worker-2 to start"
    assert cluster.launchers.round == 1
    settings = {name: cluster.launchers.settings(name) for name in ("worker-0", "worker-2")}
    assert {name: told["needed"] for name, told in settings.items()} == {"worker-0": True, "worker-2": False}
    assert cluster.run().trajectory[-1] == "Running 3/3 Training"


def test_a_worker_that_goes_is_deleted_when_its_program_need_not_run_any_more() -> None:
    cluster = running(a_launched_job().workers(3))
    cluster.api.edit(REPLICAS, 2)
    cluster.settle()
    assert "delete pod/mnist-worker-2" not in cluster.api.writes
    assert orders(cluster)["workers"] == 2
    cluster.run()
    assert cluster.pods == ["worker-0", "worker-1"]


def test_a_surplus_pod_goes_at_once_where_no_launcher_answers() -> None:
    cluster = running(a_launched_job().workers(3))
    cluster.api.edit(REPLICAS, 2)
    cluster.launcher_report, cluster.launcher_silent = None, True
    cluster.settle()
    cluster.kubelet.remove_deleted()
    assert cluster.pods == ["worker-0", "worker-1"]


def test_an_operator_that_has_not_heard_the_launchers_yet_leaves_a_surplus_pod_alone() -> None:
    cluster = running(a_launched_job().workers(3))
    cluster.api.edit(REPLICAS, 2)
    cluster.forget()
    assert cluster.settle().pods == ["worker-0", "worker-1", "worker-2"]
    cluster.delete("worker-0").settle().kubelet.remove_deleted()
    assert "worker-2" not in cluster.settle().pods, "nobody is left to wait for"


def test_there_and_back_is_nothing() -> None:
    cluster = running(a_launched_job())
    old = uids(cluster)
    cluster.api.edit(REPLICAS, 3)
    cluster.api.edit(REPLICAS, 2)
    cluster.run()
    assert (uids(cluster), cluster.launchers.round, cluster.events) == (old, 1, [])


def test_a_change_while_the_gang_starts() -> None:
    cluster = SimulatedCluster(a_launched_job()).settle()
    cluster.api.edit(REPLICAS, 3)
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "3/3", 1)
    assert (cluster.launchers.round, len(cluster.launchers.joined)) == (1, 3)


def test_a_change_while_the_gang_restarts() -> None:
    cluster = running(a_launched_job().workers(3)).delete("worker-0").settle()
    cluster.api.edit(REPLICAS, 2)
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")
    assert orders(cluster)["workers"] == 2


def test_a_change_while_the_job_is_suspended() -> None:
    cluster = running(a_launched_job())
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run()
    cluster.api.edit(REPLICAS, 3)
    cluster.run()
    assert cluster.pods == []
    cluster.api.edit("runPolicy.suspend", False)
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "3/3", 2)


def test_pods_of_an_older_version_are_made_anew() -> None:
    cluster = running(a_launched_job())
    for pod in cluster.api.pods.values():
        del pod["metadata"]["annotations"]["tftraining.dev/orders"]
    cluster.settle()
    assert cluster.status.attempt == 1
    cluster.api.edit(REPLICAS, 3)
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.attempts()) == ("Running", 2, {"2"})
    assert cluster.status.last_restart is not None and cluster.status.last_restart.reason == "Resized"


def test_a_launcher_of_an_older_image_cannot_be_told() -> None:
    cluster = running(a_launched_job())
    cluster.api.edit(REPLICAS, 3)
    assert cluster.launcher_report is not None
    cluster.launcher_report = msgspec.structs.replace(
        cluster.launcher_report, report=msgspec.structs.replace(cluster.launcher_report.report, gang=None)
    )
    cluster.step()
    assert (cluster.status.attempt, cluster.status.reason) == (2, "Resized")


# --- other changes of the spec

ORDERS = {
    "restartPolicy.maxRestarts": 3,
    "restartPolicy.sameFailureLimit": 0,
    "restartPolicy.sameMemberLimit": 0,
    "restartPolicy.onDivergence": "Restore",
    "runPolicy.startDeadlineSeconds": 30,
    "runPolicy.stallTimeoutSeconds": 300,
}


@pytest.mark.parametrize("path", ORDERS)
def test_running_launchers_are_told_of_a_limit_once(path: str) -> None:
    cluster = running(a_launched_job())
    old = uids(cluster)
    cluster.api.edit(path, ORDERS[path])
    cluster.run()
    assert orders(cluster)[path.partition(".")[2]] == ORDERS[path]
    assert (uids(cluster), cluster.launchers.round) == (old, 1)
    assert [each for each in cluster.api.writes if each.startswith("annotate")] == ["annotate pod/mnist-worker-0"]


def test_a_chief_that_is_made_anew_knows_it_already() -> None:
    cluster = running(a_launched_job())
    cluster.api.edit(REPLICAS, 3)
    cluster.api.edit("restartPolicy.maxRestarts", 3)
    cluster.delete("worker-0").run()
    assert orders(cluster).items() >= {"workers": 3, "maxRestarts": 3}.items()
    assert not [each for each in cluster.api.writes if each.startswith("annotate")]


def test_a_new_version_with_more_orders_changes_no_running_pod() -> None:
    _, spec = a_launched_job().parsed()
    assert changed_annotation(spec, '{"workers": 2}') is None
    assert json.loads(changed_annotation(spec, '{"workers": 3, "later": 1}') or "") == {"workers": 2, "later": 1}
    for spoilt in ("nonsense", "[2]", "[" * 100_000, '{"workers":' * 100_000):
        assert json.loads(changed_annotation(spec, spoilt) or "")["workers"] == 2


# --- in the middle of something else


@BOTH
@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_change_while_a_worker_is_lost(job: Any, after: int) -> None:
    cluster = running(job().workers(3).max_restarts(0)).delete("worker-1").settle()
    cluster.api.edit(REPLICAS, after)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", f"{after}/{after}")
    assert cluster.pods == [f"worker-{index}" for index in range(after)]
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.recreated) == (0, 1, 1), "one restart for both"
    assert sizes(cluster) == {after}
    assert not cluster.step()


@BOTH
@pytest.mark.parametrize("after", [1, 4])
def test_a_change_that_is_seen_together_with_a_loss(job: Any, after: int) -> None:
    cluster = running(job().workers(3).max_restarts(0)).delete("worker-2")
    cluster.api.edit(REPLICAS, after)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready, sizes(cluster)) == ("Running", f"{after}/{after}", {after})
    assert cluster.status.restarts.counted == 0


@BOTH
def test_a_change_while_the_chief_is_lost(job: Any) -> None:
    cluster = running(job().workers(2)).delete("worker-0").settle()
    cluster.api.edit(REPLICAS, 3)
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.ready, sizes(cluster)) == ("Running", "3/3", {3})


@BOTH
def test_up_and_down_and_down_again(job: Any) -> None:
    cluster = running(job().workers(2).storage())
    for size in (3, 1):
        cluster.api.edit(REPLICAS, size)
        cluster.run_timers()
        assert (cluster.status.phase, cluster.status.ready, sizes(cluster)) == ("Running", f"{size}/{size}", {size})
    restarts = cluster.status.restarts
    assert (restarts.in_place + restarts.recreated, restarts.counted, restarts.disruptions) == (2, 0, 0)
    assert cluster.status.replicas["worker"].highest == 2


@BOTH
def test_the_same_size_again_is_nothing(job: Any) -> None:
    cluster = running(job())
    before = uids(cluster)
    cluster.api.edit(REPLICAS, 2)
    cluster.run()
    assert (uids(cluster), cluster.events, cluster.status.restarts.recreated) == (before, [], 0)


@BOTH
def test_an_index_is_remembered_though_no_status_was_written_since_its_pod_was_made(job: Any) -> None:
    cluster = running(job().workers(2).storage())
    cluster.api.edit(REPLICAS, 4)
    cluster.run()
    workers = cluster.api.job["status"]["replicas"]["worker"]
    workers["highest"] = 1
    cluster.api.edit(REPLICAS, 2)
    assert cluster.run().status.replicas["worker"].highest == 3


def test_a_growth_that_finds_no_room_can_be_taken_back_for_nothing() -> None:
    cluster = running(a_launched_job())
    cluster.api.edit(REPLICAS, 3)
    cluster.settle()
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    cluster.kubelet.condition("mnist-worker-2", condition)
    while cluster.poll_launchers() or cluster.step():
        pass
    assert cluster.status.message == "training with 2 of 3 workers; worker-2: cannot be scheduled: 0/3 nodes"
    cluster.api.edit(REPLICAS, 2)
    cluster.run()
    assert (cluster.pods, cluster.status.message) == (["worker-0", "worker-1"], "2 replicas training")
    assert (cluster.launchers.round, cluster.status.restarts.in_place) == (1, 0)


def test_a_growth_that_a_quota_refuses_is_told_while_the_others_train() -> None:
    cluster = running(a_launched_job().set("runPolicy.startDeadlineSeconds", 60))
    cluster.api.refusals["pod/mnist-worker-2"] = (403, "exceeded quota: pods=2")
    cluster.api.edit(REPLICAS, 3)
    cluster.run().wait(600).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/3")
    assert cluster.status.message == "training with 2 of 3 workers; pod/mnist-worker-2: exceeded quota: pods=2"
    cluster.api.refusals.clear()
    assert cluster.run_timers().status.ready == "3/3"


def test_only_the_chief_must_be_waited_for() -> None:
    cluster = why_not_started(a_launched_job().workers(3).set("minReplicas", 1))
    assert (cluster.status.phase, cluster.status.reason) == ("Running", "FewerWorkers")
    cluster.delete("worker-0").settle()
    cluster.kubelet.remove_deleted()
    while cluster.poll_launchers() or cluster.step():
        pass
    assert (cluster.status.phase, cluster.status.ready) == ("Restarting", "0/3")
    cluster.wait(1).settle()
    cluster.kubelet.start("mnist-worker-0", ready=False)
    while cluster.poll_launchers() or cluster.step():
        pass
    assert (cluster.status.phase, cluster.status.ready, cluster.status.restarts.counted) == ("Running", "2/3", 0)


def test_progress_is_told_while_fewer_train() -> None:
    cluster = why_not_started(a_launched_job().workers(3).set("minReplicas", 2))
    cluster.wait(10).launchers.advance(5, 350)
    cluster.poll_launchers()
    cluster.settle()
    assert cluster.status.progress is not None and cluster.status.progress.epoch == 5
    assert cluster.status.ready == "2/3"


def test_a_failure_while_fewer_train_is_charged_and_refills_with_progress() -> None:
    cluster = why_not_started(a_launched_job().workers(3).set("minReplicas", 2).max_restarts(1))
    cluster.launchers.crash("worker-2")
    while cluster.poll_launchers() or cluster.step():
        pass
    assert (cluster.status.phase, cluster.status.restarts.counted, cluster.status.restarts.budget_used) == (
        "Running",
        1,
        1,
    )
    cluster.launchers.advance(9, 700)
    cluster.launchers.crash("worker-2")
    while cluster.poll_launchers() or cluster.step():
        pass
    assert (cluster.status.phase, cluster.status.restarts.counted, cluster.status.restarts.budget_used) == (
        "Running",
        2,
        1,
    )


# --- another size without launchers: all pods are recreated, as the next attempt


def workers_in_tf_config(cluster: SimulatedCluster, name: str) -> int:
    (container,) = cluster.api.pods[name]["spec"]["containers"]
    value = next(each["value"] for each in container["env"] if each["name"] == "TF_CONFIG")
    return len(json.loads(value)["cluster"]["worker"])


def test_scaling_up_restarts_the_gang_once_and_free_of_charge() -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0)).run()
    cluster.api.edit(REPLICAS, 4)
    cluster.run()
    assert cluster.pods == ["worker-0", "worker-1", "worker-2", "worker-3"]
    assert workers_in_tf_config(cluster, "mnist-worker-0") == 4
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.recreated, cluster.status.attempt) == (0, 0, 1, 2)
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "4/4")


def test_scaling_down_restarts_the_gang_and_remembers_the_highest_index() -> None:
    cluster = SimulatedCluster(a_job().workers(4)).run()
    cluster.api.edit(REPLICAS, 2)
    cluster.run()
    assert cluster.pods == ["worker-0", "worker-1"]
    assert workers_in_tf_config(cluster, "mnist-worker-1") == 2
    assert cluster.status.replicas["worker"].highest == 3
    assert cluster.status.attempt == 2


def test_scaling_says_why_the_gang_restarts() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit(REPLICAS, 3)
    cluster.settle()
    assert cluster.status.reason == "Resized"
    assert cluster.status.message == "the number of workers changed; restarting the gang as attempt 2"
    assert (cluster.status.replicas["worker"].desired, cluster.status.ready) == (3, "0/3")


def test_scaling_back_and_forth_before_the_operator_looks_is_nothing() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit(REPLICAS, 3)
    cluster.api.edit(REPLICAS, 2)
    cluster.run()
    assert cluster.status.attempt == 1
    assert cluster.status.observed_generation == 3


def test_scaling_while_the_gang_starts_makes_the_pods_again() -> None:
    cluster = SimulatedCluster(a_job())
    cluster.step()
    cluster.api.edit(REPLICAS, 3)
    cluster.run()
    assert workers_in_tf_config(cluster, "mnist-worker-0") == 3
    assert cluster.status.phase == "Running"


def test_scaling_during_a_restart_takes_effect_with_it() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle()
    cluster.api.edit(REPLICAS, 3)
    cluster.run()
    assert (cluster.status.attempt, cluster.pods) == (2, ["worker-0", "worker-1", "worker-2"])


def test_all_workers_away_beside_a_chief() -> None:
    cluster = SimulatedCluster(a_job().chief()).run()
    cluster.api.edit(REPLICAS, 0)
    cluster.run()
    assert (cluster.pods, cluster.status.ready, cluster.status.phase) == (["chief-0"], "1/1", "Running")
    assert cluster.status.replicas["worker"].desired == 0
    assert cluster.status.replicas["worker"].highest == 1


def test_another_change_of_the_spec_restarts_nothing_without_launchers() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit("restartPolicy.maxRestarts", 3)
    cluster.run()
    assert (cluster.status.attempt, cluster.status.observed_generation) == (1, 2)

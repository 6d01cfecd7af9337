"""Row: the same name again. A job that is deleted and created at once gets pods of its own, never those of the earlier
job, and says where its training began.
"""

import copy

import pytest

from tests.support.simulated_cluster.apiserver import stamp
from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.job import parse_job
from tftraining_operator.plan.messages import LATE
from tftraining_operator.plan.refused_writes import EARLIER, LONGEST, judge

SECOND = "the-second-job"
WAITING = "waiting for the deletion of objects of an earlier job of this name:"


def created_again(cluster: SimulatedCluster) -> SimulatedCluster:
    """The job is deleted and created in the same moment; its children still wait for the garbage collector."""
    first = cluster.api.job
    new = {"uid": SECOND, "generation": 1, "creationTimestamp": stamp(cluster.now)}
    cluster.api.job = {"metadata": {**first["metadata"], **new}, "spec": copy.deepcopy(first["spec"])}
    cluster.forget()
    cluster.events.clear()
    return cluster


def collect_garbage(cluster: SimulatedCluster) -> SimulatedCluster:
    """The garbage collector removes what the first job owned."""
    for held in (cluster.api.pods, cluster.api.services):
        for name in [name for name, each in held.items() if each["metadata"]["ownerReferences"][0]["uid"] != SECOND]:
            del held[name]
    return cluster


def owners(cluster: SimulatedCluster) -> set[str]:
    return {pod["metadata"]["ownerReferences"][0]["uid"] for pod in cluster.api.pods.values()}


def test_old_pods_are_never_taken_for_its_own(cluster: SimulatedCluster) -> None:
    before = copy.deepcopy(cluster.api.pods)
    created_again(cluster).settle()
    assert cluster.api.pods == before, "neither adopted nor deleted: they are the garbage collector's"
    assert (cluster.status.phase, cluster.status.reason, cluster.status.ready) == ("Starting", "Stopping", "0/2")
    assert cluster.status.message == f"{WAITING} service/mnist, pod/mnist-worker-0, pod/mnist-worker-1"


def test_waiting_for_the_garbage_collector_is_no_trouble(cluster: SimulatedCluster) -> None:
    """No request that is refused, and no Warning, as long as it takes no longer than it should."""
    before = len(cluster.api.writes)
    created_again(cluster).settle().wait(29).settle()
    assert {*cluster.api.writes[before:]} == {"status"}
    assert [note.type for note in cluster.events] == ["Normal"]


def test_it_starts_as_soon_as_they_are_gone(cluster: SimulatedCluster) -> None:
    created_again(cluster).settle()
    began = cluster.now
    collect_garbage(cluster).run()
    assert (cluster.status.phase, cluster.status.attempt, owners(cluster)) == ("Running", 1, {SECOND})
    assert cluster.now == began, "the watch tells, nobody waits for a timer"


def test_nothing_starts_before_all_of_them_are_gone(cluster: SimulatedCluster) -> None:
    """What still trains in the same directory need not have the name of anything that is to be made."""
    created_again(cluster)
    del cluster.api.services["mnist"]
    del cluster.api.pods["mnist-worker-0"]
    cluster.api.pods["mnist-chief-0"] = cluster.api.pods.pop("mnist-worker-1")
    cluster.api.pods["mnist-chief-0"]["metadata"]["name"] = "mnist-chief-0"
    cluster.settle()
    assert cluster.status.message == f"{WAITING} pod/mnist-chief-0"
    assert owners(cluster) == {"job-uid"}


def test_what_stays_for_too_long_is_worth_one_warning(cluster: SimulatedCluster) -> None:
    created_again(cluster).settle()
    assert cluster.timer is not None
    cluster.wait((cluster.timer - cluster.now).total_seconds()).settle()
    assert cluster.status.message is not None and "check for finalizers" in cluster.status.message
    cluster.api.pods.pop("mnist-worker-0")
    cluster.wait(5).settle()
    warnings = [note for note in cluster.events if note.type == "Warning"]
    assert [(note.reason, note.message) for note in warnings] == [
        ("Stopping", f"{WAITING} service/mnist, pod/mnist-worker-0, pod/mnist-worker-1; {LATE}")
    ]
    assert (cluster.now - parse_job(cluster.api.job).created).total_seconds() == 35


def test_a_pod_has_its_own_grace_before_it_is_late(cluster: SimulatedCluster) -> None:
    created_again(cluster)
    for name in list(cluster.api.pods):
        cluster.api.delete_pod(name, 120)
    del cluster.api.services["mnist"]
    cluster.settle().wait(149).settle()
    assert [note.type for note in cluster.events] == ["Normal"]
    cluster.wait(1).settle()
    assert [note.type for note in cluster.events] == ["Normal", "Warning"]


def test_it_does_not_wait_for_ever(cluster: SimulatedCluster) -> None:
    created_again(cluster).settle().wait(600).settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert cluster.status.message is not None and "an earlier job of this name" in cluster.status.message


def test_one_that_has_lost_its_label_is_waited_for_too(cluster: SimulatedCluster) -> None:
    """Nothing watches it: the API server says that its name is taken."""
    created_again(collect_garbage(cluster))
    cluster.api.refusals["pod/mnist-worker-1"] = (410, EARLIER)
    cluster.settle()
    assert (cluster.status.reason, cluster.status.message) == ("Stopping", f"{WAITING} pod/mnist-worker-1")
    assert [note.type for note in cluster.events] == ["Normal"]
    cluster.api.refusals.clear()
    assert cluster.run_timers().status.phase == "Running"


@pytest.mark.parametrize("tries", [1, 2, 10, 100])
def test_however_long_they_take_it_looks_every_two_seconds(cluster: SimulatedCluster, tries: int) -> None:
    refusal = judge("pod/mnist-worker-0", 409, EARLIER, tries, cluster.now)
    assert not refusal.permanent and (refusal.retry_at - cluster.now).total_seconds() <= 2
    other = judge("pod/mnist-worker-0", 409, "quota", 100, cluster.now)
    assert other.retry_at - cluster.now == LONGEST


# --- what it has left on a node that is lost


def left_on_a_dead_node(job: JobBuilder, noticed: bool = True) -> SimulatedCluster:
    """The garbage collector has asked all children of the first job to go; worker-1 is on a node that has died."""
    cluster = SimulatedCluster(job.storage())
    cluster.settle()
    cluster.nodes.add("node-b")
    for name, pod in cluster.api.pods.items():
        pod["spec"]["nodeName"] = "node-b" if name == "mnist-worker-1" else "node-a"
    cluster.run().nodes.power_off("node-b", noticed=noticed)
    created_again(cluster)
    for name in list(cluster.api.pods):
        cluster.api.delete_pod(name, 30)
    del cluster.api.services["mnist"]
    return cluster


def trains_anew(cluster: SimulatedCluster) -> bool:
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.disruptions, cluster.status.attempt) == (0, 0, 1)
    assert "node-b" not in {pod["spec"].get("nodeName") for pod in cluster.api.pods.values()}
    return cluster.status.phase == "Running" and owners(cluster) == {SECOND}


def test_a_pod_on_a_dead_node_is_given_up_in_time_and_not_before(job: JobBuilder) -> None:
    cluster = left_on_a_dead_node(job).run()
    assert cluster.status.message == (
        f"{WAITING} pod/mnist-worker-1; node node-b has not been ready since 2026-03-01T12:00:00Z;"
        " replacing the pod at 2026-03-01T12:01:00Z"
    )
    cluster.wait(59).run()
    assert (cluster.status.reason, owners(cluster)) == ("Stopping", {"job-uid"})
    assert cluster.timer is not None and (cluster.timer - cluster.now).total_seconds() == 1
    assert trains_anew(cluster.wait(1).run())


@pytest.mark.parametrize(("fault", "seconds"), [("remove", 0), ("taint", 2)])
def test_a_pod_on_a_node_that_is_gone_or_out_of_service_is_given_up_at_once(
    job: JobBuilder, fault: str, seconds: int
) -> None:
    cluster = left_on_a_dead_node(job).run()
    assert owners(cluster) == {"job-uid"}
    getattr(cluster.nodes, fault)("node-b")
    assert trains_anew(cluster.run().wait(seconds).run())


def test_where_nobody_may_read_nodes_the_overdue_deletion_tells(job: JobBuilder) -> None:
    cluster = left_on_a_dead_node(job)
    cluster.api.nodes_readable = False
    assert owners(cluster.run().wait(89).run()) == {"job-uid"}
    assert trains_anew(cluster.wait(1).run())


def test_whose_node_is_well_is_never_forced(job: JobBuilder) -> None:
    """Its kubelet carries the deletion out, however long it takes."""
    cluster = left_on_a_dead_node(job, noticed=False)
    cluster.run().wait(599).run()
    assert (cluster.status.reason, owners(cluster)) == ("Stopping", {"job-uid"})
    assert cluster.api.writes.count("delete pod/mnist-worker-1") == 1, "that of the garbage collector"


def test_nobody_has_asked_it_to_go() -> None:
    """Only the garbage collector knows whether what the first job owned is to go at all (--cascade=orphan)."""
    cluster = SimulatedCluster(a_launched_job()).run()
    created_again(cluster).nodes.power_off("node-a")
    cluster.nodes.add("node-b")
    cluster.settle().wait(300).settle()
    assert owners(cluster) == {"job-uid"}
    assert not [each for each in cluster.api.writes if each.startswith("delete pod")]


def test_as_long_as_no_node_is_ready_the_earlier_job_may_train_on(job: JobBuilder) -> None:
    cluster = left_on_a_dead_node(job)
    cluster.nodes.partition("node-a")
    cluster.run().wait(599).run()
    assert "job-uid" in owners(cluster)


def test_what_the_earlier_job_was_counts_for_nothing(job: JobBuilder) -> None:
    cluster = SimulatedCluster(job.max_restarts(0)).run().exit("worker-1", code=3).run_timers()
    assert cluster.status.phase == "Failed"
    collect_garbage(created_again(cluster)).run()
    assert (cluster.status.phase, cluster.status.restarts.counted, cluster.status.failure) == ("Running", 0, None)


def test_a_verdict_of_the_earlier_job_is_not_its_own() -> None:
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.finish()
    collect_garbage(created_again(cluster.run())).run()
    assert cluster.status.phase == "Running"


def test_the_secret_is_not_that_of_the_earlier_job() -> None:
    cluster = SimulatedCluster(a_launched_job())
    cluster.step()
    first = cluster.plan().create_secret
    collect_garbage(created_again(cluster)).step()
    second = cluster.plan().create_secret
    assert first is not None and second is not None
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_a_pod_that_kueue_keeps_is_said_to_have_ended() -> None:
    """Kueue lets go of a pod only when all of its group have ended, and nobody is there to say so of this one."""
    cluster = SimulatedCluster(a_launched_job().labelled(**{"kueue.x_k8s.io__queue_name": "research"}))
    cluster.nodes.add("node-b")
    cluster.run()
    for pod in cluster.api.pods.values():
        pod["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    for name in ("node-a", "node-b"):
        cluster.nodes.power_off(name)
    cluster.nodes.add("node-c", "node-d")
    created_again(cluster)
    for name in cluster.api.pods:
        cluster.api.delete_pod(name, 30)
    del cluster.api.services["mnist"]
    cluster.settle().wait(60).settle()
    assert {pod["status"]["phase"] for pod in cluster.api.pods.values()} == {"Failed"}


# --- the backup of an earlier run


def resuming(epoch: int, step: int) -> SimulatedCluster:
    """A new job whose programs find the backup of an earlier run."""
    cluster = SimulatedCluster(a_launched_job().storage())
    cluster.launchers.began = cluster.launchers.backup = (epoch, step)
    cluster.settle()
    cluster.kubelet.start_all(launched=True)
    cluster.run()
    cluster.launchers.advance(epoch + 1, step + 1)
    return cluster.run()


@pytest.mark.parametrize(("epoch", "step", "where"), [(3, 210, "epoch 3"), (0, 40, "step 40")])
def test_a_job_that_goes_on_from_it_says_so_once(epoch: int, step: int, where: str) -> None:
    cluster = resuming(epoch, step)
    message = f"resumed from {where} of an earlier run in the same directory"
    assert [note.message for note in cluster.events if note.reason == "EarlierRun"] == [message]
    condition = cluster.status.condition("Resumed")
    assert condition is not None and (condition.status, condition.reason) == ("True", "EarlierRun")
    cluster.forget()
    cluster.launchers.advance(epoch + 2, step + 99)
    cluster.wait(60).run()
    assert len([note for note in cluster.events if note.reason == "EarlierRun"]) == 1


def test_a_job_that_begins_at_the_beginning_has_nothing_to_say() -> None:
    cluster = resuming(0, 0)
    assert cluster.status.condition("Resumed") is None
    assert "EarlierRun" not in [note.reason for note in cluster.events]


@pytest.mark.parametrize("again", ["crash", "deletion", "suspension"])
def test_its_own_backup_is_none_of_an_earlier_run(again: str) -> None:
    cluster = resuming(0, 0)
    cluster.launchers.advance(4, 280)
    cluster.launchers.backup = cluster.launchers.began = (3, 210)
    if again == "crash":
        cluster.launchers.crash("worker-1")
    elif again == "deletion":
        cluster.delete("worker-1")
    else:
        cluster.api.edit("runPolicy.suspend", True)
        cluster.run().exit("cleanup", code=0, message='{"removed": 0}').run()
        cluster.api.edit("runPolicy.suspend", False)
    cluster.run()
    cluster.launchers.advance(4, 281)
    cluster.wait(60).run()
    assert cluster.status.phase == "Running"
    assert "EarlierRun" not in [note.reason for note in cluster.events]

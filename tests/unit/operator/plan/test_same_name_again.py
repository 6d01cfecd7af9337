"""Row: the same name again. A job that is deleted and created at once gets pods of its own, never those of the earlier
job, and says where its training began.
"""

import copy

import pytest

from tests.support.simulated_cluster.apiserver import stamp
from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.model.job import parse_job
from tftraining_operator.plan.creation_errors import EARLIER, LONGEST, judge
from tftraining_operator.plan.readiness import LATE

SECOND = "the-second-job"
WAITING = "waiting for the deletion of objects of an earlier job of this name:"


def created_again(world: World) -> World:
    """The job is deleted and created in the same moment; its children still wait for the garbage collector."""
    first = world.api.job
    new = {"uid": SECOND, "generation": 1, "creationTimestamp": stamp(world.now)}
    world.api.job = {"metadata": {**first["metadata"], **new}, "spec": copy.deepcopy(first["spec"])}
    world.forget()
    world.events.clear()
    return world


def collect_garbage(world: World) -> World:
    """The garbage collector removes what the first job owned."""
    for held in (world.api.pods, world.api.services):
        for name in [name for name, each in held.items() if each["metadata"]["ownerReferences"][0]["uid"] != SECOND]:
            del held[name]
    return world


def owners(world: World) -> set[str]:
    return {pod["metadata"]["ownerReferences"][0]["uid"] for pod in world.api.pods.values()}


def test_old_pods_are_never_taken_for_its_own(world: World) -> None:
    before = copy.deepcopy(world.api.pods)
    created_again(world).settle()
    assert world.api.pods == before, "neither adopted nor deleted: they are the garbage collector's"
    assert (world.status.phase, world.status.reason, world.status.ready) == ("Starting", "Stopping", "0/2")
    assert world.status.message == f"{WAITING} service/mnist, pod/mnist-worker-0, pod/mnist-worker-1"


def test_waiting_for_the_garbage_collector_is_no_trouble(world: World) -> None:
    """No request that is refused, and no Warning, as long as it takes no longer than it should."""
    before = len(world.api.writes)
    created_again(world).settle().wait(29).settle()
    assert {*world.api.writes[before:]} == {"status"}
    assert [note.type for note in world.events] == ["Normal"]


def test_it_starts_as_soon_as_they_are_gone(world: World) -> None:
    created_again(world).settle()
    began = world.now
    collect_garbage(world).run()
    assert (world.status.phase, world.status.attempt, owners(world)) == ("Running", 1, {SECOND})
    assert world.now == began, "the watch tells, nobody waits for a timer"


def test_nothing_starts_before_all_of_them_are_gone(world: World) -> None:
    """What still trains in the same directory need not have the name of anything that is to be made."""
    created_again(world)
    del world.api.services["mnist"]
    del world.api.pods["mnist-worker-0"]
    world.api.pods["mnist-chief-0"] = world.api.pods.pop("mnist-worker-1")
    world.api.pods["mnist-chief-0"]["metadata"]["name"] = "mnist-chief-0"
    world.settle()
    assert world.status.message == f"{WAITING} pod/mnist-chief-0"
    assert owners(world) == {"job-uid"}


def test_what_stays_for_too_long_is_worth_one_warning(world: World) -> None:
    created_again(world).settle()
    assert world.timer is not None
    world.wait((world.timer - world.now).total_seconds()).settle()
    assert world.status.message is not None and "check for finalizers" in world.status.message
    world.api.pods.pop("mnist-worker-0")
    world.wait(5).settle()
    warnings = [note for note in world.events if note.type == "Warning"]
    assert [(note.reason, note.message) for note in warnings] == [
        ("Stopping", f"{WAITING} service/mnist, pod/mnist-worker-0, pod/mnist-worker-1; {LATE}")
    ]
    assert (world.now - parse_job(world.api.job).created).total_seconds() == 35


def test_a_pod_has_its_own_grace_before_it_is_late(world: World) -> None:
    created_again(world)
    for name in list(world.api.pods):
        world.api.delete_pod(name, 120)
    del world.api.services["mnist"]
    world.settle().wait(149).settle()
    assert [note.type for note in world.events] == ["Normal"]
    world.wait(1).settle()
    assert [note.type for note in world.events] == ["Normal", "Warning"]


def test_it_does_not_wait_for_ever(world: World) -> None:
    created_again(world).settle().wait(600).settle()
    assert (world.status.phase, world.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert world.status.message is not None and "an earlier job of this name" in world.status.message


def test_one_that_has_lost_its_label_is_waited_for_too(world: World) -> None:
    """Nothing watches it: the API server says that its name is taken."""
    created_again(collect_garbage(world))
    world.api.refusals["pod/mnist-worker-1"] = (410, EARLIER)
    world.settle()
    assert (world.status.reason, world.status.message) == ("Stopping", f"{WAITING} pod/mnist-worker-1")
    assert [note.type for note in world.events] == ["Normal"]
    world.api.refusals.clear()
    assert world.run_timers().status.phase == "Running"


@pytest.mark.parametrize("tries", [1, 2, 10, 100])
def test_however_long_they_take_it_looks_every_two_seconds(world: World, tries: int) -> None:
    refusal = judge("pod/mnist-worker-0", 409, EARLIER, tries, world.now)
    assert not refusal.permanent and (refusal.retry_at - world.now).total_seconds() <= 2
    other = judge("pod/mnist-worker-0", 409, "quota", 100, world.now)
    assert other.retry_at - world.now == LONGEST


# --- what it has left on a node that is lost


def left_on_a_dead_node(job: JobBuilder, noticed: bool = True) -> World:
    """The garbage collector has asked all children of the first job to go; worker-1 is on a node that has died."""
    world = World(job.storage())
    world.settle()
    world.machines.add("node-b")
    for name, pod in world.api.pods.items():
        pod["spec"]["nodeName"] = "node-b" if name == "mnist-worker-1" else "node-a"
    world.run().machines.die("node-b", noticed=noticed)
    created_again(world)
    for name in list(world.api.pods):
        world.api.delete_pod(name, 30)
    del world.api.services["mnist"]
    return world


def trains_anew(world: World) -> bool:
    restarts = world.status.restarts
    assert (restarts.counted, restarts.disruptions, world.status.attempt) == (0, 0, 1)
    assert "node-b" not in {pod["spec"].get("nodeName") for pod in world.api.pods.values()}
    return world.status.phase == "Running" and owners(world) == {SECOND}


def test_a_pod_on_a_dead_node_is_given_up_in_time_and_not_before(job: JobBuilder) -> None:
    world = left_on_a_dead_node(job).run()
    assert world.status.message == (
        f"{WAITING} pod/mnist-worker-1; node node-b has not been ready since 2026-03-01T12:00:00Z;"
        " replacing the pod at 2026-03-01T12:01:00Z"
    )
    world.wait(59).run()
    assert (world.status.reason, owners(world)) == ("Stopping", {"job-uid"})
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 1
    assert trains_anew(world.wait(1).run())


@pytest.mark.parametrize(("fault", "seconds"), [("remove", 0), ("taint", 2)])
def test_a_pod_on_a_node_that_is_gone_or_out_of_service_is_given_up_at_once(
    job: JobBuilder, fault: str, seconds: int
) -> None:
    world = left_on_a_dead_node(job).run()
    assert owners(world) == {"job-uid"}
    getattr(world.machines, fault)("node-b")
    assert trains_anew(world.run().wait(seconds).run())


def test_where_nobody_may_read_nodes_the_pod_tells(job: JobBuilder) -> None:
    world = left_on_a_dead_node(job)
    world.api.nodes_readable = False
    assert trains_anew(world.run().wait(60).run())


def test_whose_node_is_well_is_never_forced(job: JobBuilder) -> None:
    """Its kubelet carries the deletion out, however long it takes."""
    world = left_on_a_dead_node(job, noticed=False)
    world.run().wait(599).run()
    assert (world.status.reason, owners(world)) == ("Stopping", {"job-uid"})
    assert world.api.writes.count("delete pod/mnist-worker-1") == 1, "that of the garbage collector"


def test_nobody_has_asked_it_to_go() -> None:
    """Only the garbage collector knows whether what the first job owned is to go at all (--cascade=orphan)."""
    world = World(a_launched_job()).run()
    created_again(world).machines.die("node-a")
    world.machines.add("node-b")
    world.settle().wait(300).settle()
    assert owners(world) == {"job-uid"}
    assert not [each for each in world.api.writes if each.startswith("delete pod")]


def test_as_long_as_no_node_is_ready_the_earlier_job_may_train_on(job: JobBuilder) -> None:
    world = left_on_a_dead_node(job)
    world.machines.cut("node-a")
    world.run().wait(599).run()
    assert "job-uid" in owners(world)


def test_what_the_earlier_job_was_counts_for_nothing(job: JobBuilder) -> None:
    world = World(job.max_restarts(0)).run().exit("worker-1", code=3).run_timers()
    assert world.status.phase == "Failed"
    collect_garbage(created_again(world)).run()
    assert (world.status.phase, world.status.restarts.counted, world.status.failure) == ("Running", 0, None)


def test_a_verdict_of_the_earlier_job_is_not_its_own() -> None:
    world = World(a_launched_job().storage()).run()
    world.launchers.finish()
    collect_garbage(created_again(world.run())).run()
    assert world.status.phase == "Running"


def test_the_secret_is_not_that_of_the_earlier_job() -> None:
    world = World(a_launched_job())
    first = world.plan().create_secret
    second = created_again(world).plan().create_secret
    assert first is not None and second is not None
    assert first["metadata"]["name"] != second["metadata"]["name"]


def test_a_pod_that_kueue_keeps_is_said_to_have_ended() -> None:
    """Kueue lets go of a pod only when all of its group have ended, and nobody is there to say so of this one."""
    world = World(a_launched_job().labelled(**{"kueue.x_k8s.io__queue_name": "research"}))
    world.machines.add("node-b")
    world.run()
    for pod in world.api.pods.values():
        pod["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    for name in ("node-a", "node-b"):
        world.machines.die(name)
    world.machines.add("node-c")
    created_again(world)
    for name in world.api.pods:
        world.api.delete_pod(name, 30)
    del world.api.services["mnist"]
    world.settle().wait(60).settle()
    assert {pod["status"]["phase"] for pod in world.api.pods.values()} == {"Failed"}


# --- the backup of an earlier run


def resuming(epoch: int, step: int) -> World:
    """A new job whose programs find the backup of an earlier run."""
    world = World(a_launched_job().storage())
    world.launchers.began = world.launchers.backup = (epoch, step)
    world.settle()
    world.kubelet.start_all(launched=True)
    world.run()
    world.launchers.advance(epoch + 1, step + 1)
    return world.run()


@pytest.mark.parametrize(("epoch", "step", "where"), [(3, 210, "epoch 3"), (0, 40, "step 40")])
def test_a_job_that_goes_on_from_it_says_so_once(epoch: int, step: int, where: str) -> None:
    world = resuming(epoch, step)
    message = f"resumed from {where} of an earlier run in the same directory"
    assert [note.message for note in world.events if note.reason == "EarlierRun"] == [message]
    condition = world.status.condition("Resumed")
    assert condition is not None and (condition.status, condition.reason) == ("True", "EarlierRun")
    world.forget()
    world.launchers.advance(epoch + 2, step + 99)
    world.wait(60).run()
    assert len([note for note in world.events if note.reason == "EarlierRun"]) == 1


def test_a_job_that_begins_at_the_beginning_has_nothing_to_say() -> None:
    world = resuming(0, 0)
    assert world.status.condition("Resumed") is None
    assert "EarlierRun" not in [note.reason for note in world.events]


@pytest.mark.parametrize("again", ["crash", "deletion", "suspension"])
def test_its_own_backup_is_none_of_an_earlier_run(again: str) -> None:
    world = resuming(0, 0)
    world.launchers.advance(4, 280)
    world.launchers.backup = world.launchers.began = (3, 210)
    if again == "crash":
        world.launchers.crash("worker-1")
    elif again == "deletion":
        world.delete("worker-1")
    else:
        world.api.edit("runPolicy.suspend", True)
        world.run().exit("cleanup", code=0, message='{"removed": 0}').run()
        world.api.edit("runPolicy.suspend", False)
    world.run()
    world.launchers.advance(4, 281)
    world.wait(60).run()
    assert world.status.phase == "Running"
    assert "EarlierRun" not in [note.reason for note in world.events]

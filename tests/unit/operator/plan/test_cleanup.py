"""Row: cleanup. What stays when a job is done, and that its temporary directories go, however it ended."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tests.unit.operator.plan.conftest import until_it_cleans


def ended(world: World) -> World:
    """The job's end, its cleanup included."""
    until_it_cleans(world)
    if "cleanup" in world.pods:
        world.exit("cleanup", code=0, message='{"removed": 2}').run_timers()
    return world


def succeeded(world: World) -> None:
    if world.launched:
        world.launchers.finish()
    else:
        world.exit("worker-0", code=0)


def failed(world: World) -> None:
    world.exit("worker-1", code=3, message="the last line")


def too_late(world: World) -> None:
    world.api.edit("runPolicy.activeDeadlineSeconds", 60)
    world.wait(61)


def suspended(world: World) -> None:
    world.api.edit("runPolicy.suspend", True)


# --- temporary directories


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_they_are_removed_however_it_ended(world: World, end: Callable[[World], None]) -> None:
    end(world)
    ended(world)
    assert world.status.phase in ("Succeeded", "Failed", "Suspended")
    assert world.status.is_true("Cleaned")
    assert world.status.cleanup is not None and world.status.cleanup.removed == 2


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_for_every_index_that_was_ever_used(job: JobBuilder, end: Callable[[World], None]) -> None:
    world = World(job.workers(5).max_restarts(0)).run()
    world.api.edit("replicaSpecs.worker.replicas", 2)
    world.run()
    end(world)
    until_it_cleans(world)
    command = world.api.pods["mnist-cleanup"]["spec"]["containers"][0]["command"]
    assert [word for word in command if word.startswith("--index")] == [f"--index={index}" for index in range(1, 5)]


def test_no_pod_of_the_job_runs_while_they_are_removed(world: World) -> None:
    succeeded(world)
    for _ in range(30):
        world.step()
        if "cleanup" in world.pods:
            others = [world.api.pods[world.name(each)] for each in world.pods if each != "cleanup"]
            assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in others)
            return
        world.wait(1).kubelet.remove_deleted()
    raise AssertionError("never cleaned")


# --- what stays


@pytest.mark.parametrize(("policy", "kept"), [("Running", ["worker-1"]), ("All", []), ("None", None)])
def test_failed_pods_are_kept_under_running(policy: str, kept: list[str] | None) -> None:
    world = World(a_job().max_restarts(0).set("runPolicy.cleanPodPolicy", policy)).run()
    failed(world)
    assert ended(world).pods == (["worker-0", "worker-1"] if kept is None else kept)


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_the_first_failures_words_are_kept_though_its_pod_is_gone(job: JobBuilder, policy: str) -> None:
    world = World(job.max_restarts(0).set("runPolicy.cleanPodPolicy", policy)).run()
    failed(world)
    ended(world)
    failure = world.status.failure
    assert failure is not None
    assert (failure.pod, failure.exit_code, failure.log_tail) == ("mnist-worker-1", 3, "the last line")


def test_the_service_goes_when_no_pod_uses_it_and_stays_where_all_stays(job: JobBuilder) -> None:
    world = World(job.max_restarts(0)).run()
    succeeded(world)
    assert ended(world).api.services == {}
    kept = World(a_job().set("runPolicy.cleanPodPolicy", "None")).run()
    kept.exit("worker-0", "worker-1", code=0)
    assert list(ended(kept).api.services) == ["mnist"]


def test_whatever_is_left_goes_with_the_job() -> None:
    # Nothing is deleted by hand: every child names the job as its controller, and the garbage collector does the rest.
    world = World(a_launched_job().storage())
    step = world.plan()
    children = [step.create_service, step.create_secret, *step.create_pods]
    assert len(children) == 4
    for child in children:
        assert child is not None
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], "blockOwnerDeletion" in owner) == ("job-uid", True, False)
        assert "finalizers" not in child["metadata"]


def test_a_job_that_expires_is_cleaned_first(job: JobBuilder) -> None:
    world = World(job.max_restarts(0).set("runPolicy.ttlSecondsAfterFinished", 0)).run()
    succeeded(world)
    until_it_cleans(world)
    assert not world.api.gone, "its directories are not removed yet"
    assert ended(world).api.gone


def test_a_job_that_is_being_deleted_gets_no_new_child(world: World) -> None:
    world.api.job["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    world.kubelet.lose("mnist-worker-1")
    assert not world.step() and world.pods == ["worker-0"]

"""The cleanup of the non-chief workers' temporary save directories: when it runs, how often, and how it ends."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tests.support.simulated_cluster.simulation import World
from tests.unit.operator.plan.conftest import ended, failed, succeeded, until_it_cleans
from tftraining_api.model.status import Condition


def done(job: JobBuilder, chief: str = "worker-0") -> World:
    """A job whose chief has just finished."""
    return World(job).run().exit(chief, code=0)


def cleaned(world: World) -> Condition:
    condition = world.status.condition("Cleaned")
    assert condition is not None
    return condition


def command(world: World) -> list[str]:
    (container,) = world.api.pods["mnist-cleanup"]["spec"]["containers"]
    words: list[str] = container["command"]
    return words


def indices(world: World) -> list[str]:
    return [word for word in command(world) if word.startswith("--index")]


def test_without_storage_there_is_nothing_to_remove() -> None:
    world = done(a_job()).run()
    assert world.pods == ["worker-0"]
    assert (cleaned(world).status, cleaned(world).message) == ("True", "nothing to remove")
    assert world.status.cleanup is not None and world.status.cleanup.removed == 0


def test_a_lone_worker_leaves_nothing_to_remove() -> None:
    assert cleaned(done(a_job().workers(1).storage()).run()).status == "True"


def test_a_job_that_never_started_has_nothing_to_remove() -> None:
    world = World(a_job().storage().set("replicaSpecs", {})).run()
    assert (world.status.phase, world.pods, cleaned(world).status) == ("Failed", [], "True")


def test_it_waits_until_no_pod_can_write_any_more() -> None:
    world = done(a_job().workers(3).storage()).settle()
    assert "cleanup" not in world.pods
    assert (cleaned(world).status, cleaned(world).reason) == ("Unknown", "Waiting")
    assert cleaned(world).message == "waiting for worker-1 to stop"
    world.kubelet.lose("mnist-worker-1")
    assert "cleanup" not in world.settle().pods
    world.kubelet.lose("mnist-worker-2")
    assert "cleanup" in world.settle().pods


def test_the_life_of_a_cleanup() -> None:
    world = done(a_job().workers(3).storage()).run()
    assert (cleaned(world).status, cleaned(world).reason) == ("Unknown", "Cleaning")
    assert indices(world) == ["--index=1", "--index=2"]
    world.exit("cleanup", code=0, message='{"removed": 2, "failed": []}').run()
    assert world.pods == ["worker-0"]
    assert (cleaned(world).status, cleaned(world).message) == ("True", "removed 2 temporary save directories")
    assert world.status.cleanup is not None and world.status.cleanup.removed == 2
    assert (world.events[-1].type, world.events[-1].reason) == ("Normal", "Cleaned")
    assert not world.step()


def test_beside_a_chief_worker_0_has_a_temporary_directory() -> None:
    assert indices(done(a_job().chief().storage(), "chief-0").run()) == ["--index=0", "--index=1"]


def test_a_failed_try_is_repeated_after_a_pause() -> None:
    world = done(a_job().storage()).run()
    world.exit("cleanup", code=1, message='{"removed": 1, "failed": [{"path": "a/b", "error": "busy"}]}').settle()
    assert (cleaned(world).reason, cleaned(world).message) == ("Retrying", "could not remove a/b: busy")
    assert world.wait(4).settle().api.pods["mnist-cleanup"]["status"]["phase"] == "Failed"
    world.wait(1).run()
    assert world.api.pods["mnist-cleanup"]["metadata"]["labels"]["tftraining.dev/attempt"] == "2"
    world.exit("cleanup", code=0, message='{"removed": 1, "failed": []}').run()
    assert cleaned(world).status == "True"
    assert world.status.cleanup is not None
    assert (world.status.cleanup.removed, world.status.cleanup.failed_attempts) == (2, 1)
    assert cleaned(world).message == "removed 2 temporary save directories"


def test_after_three_failed_tries_it_gives_up_and_says_what_may_be_left() -> None:
    world = done(a_job().storage()).run()
    pauses = []
    for _ in range(3):
        world.exit("cleanup", code=1, message="Traceback\nOSError: no").settle()
        before = world.now
        if world.timer:
            world.api.now = world.timer
        pauses.append((world.now - before).total_seconds())
        world.run()
    assert pauses == [5, 10, 0]
    assert world.pods == ["worker-0"]
    assert (cleaned(world).status, cleaned(world).reason) == ("False", "CleanupFailed")
    assert cleaned(world).message.startswith("OSError: no; directories named workertemp_<index> may be left")
    assert (world.events[-1].type, world.events[-1].reason) == ("Warning", "CleanupFailed")
    assert not world.wait(3600).step()


def test_a_cleanup_pod_that_never_runs_is_given_up_after_ten_minutes() -> None:
    world = done(a_job().storage()).settle()
    world.kubelet.remove_deleted()
    world.settle()
    world.kubelet.hold("mnist-cleanup", "ErrImagePull", "no such image")
    world.settle()
    assert cleaned(world).message == "mnist-cleanup: container cleanup: image pull failed (operator:1): no such image"
    end = world.status.completion_time
    world.run_timers()
    assert end is not None and (world.now - end).total_seconds() == 600
    assert cleaned(world).status == "False"
    assert cleaned(world).message.startswith(
        "container cleanup: image pull failed (operator:1): no such image; directories"
    )
    assert world.pods == ["worker-0"]


def test_a_writer_that_never_stops_is_given_up_after_ten_minutes() -> None:
    world = done(a_job().storage()).settle()
    world.api.pods["mnist-worker-1"]["metadata"]["finalizers"] = ["example.com/stuck"]
    assert world.timer is not None
    world.api.now = world.timer
    world.settle()
    assert cleaned(world).status == "False"
    assert cleaned(world).message.startswith("not done after 10 minutes")


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"removed": "many"}', "Killed", '{"removed": null}', '{"removed": -1}', f"[{'9' * 99}]"]
)
def test_an_answer_that_cannot_be_read_counts_as_nothing_removed(answer: str) -> None:
    world = done(a_job().storage()).run()
    world.exit("cleanup", code=0, message=answer).run()
    assert world.status.cleanup is not None and world.status.cleanup.removed == 0


def test_an_answer_with_a_wrong_list_of_failures_does_no_harm() -> None:
    world = done(a_job().storage()).run()
    world.exit("cleanup", code=1, message='{"removed": 1, "failed": ["no dict"]}').run()
    assert cleaned(world).reason == "Retrying"


def test_a_deleted_cleanup_pod_is_made_again() -> None:
    world = done(a_job().storage()).run()
    world.kubelet.lose("mnist-cleanup")
    assert "cleanup" in world.run().pods


def test_a_refused_cleanup_pod_is_tried_again_and_given_up_in_time() -> None:
    world = done(a_job().storage())
    world.api.refusals["pod/mnist-cleanup"] = (403, "exceeded quota: pods")
    world.run()
    assert cleaned(world).message == "pod/mnist-cleanup: exceeded quota: pods"
    assert world.timer is not None
    world.run_timers()
    assert cleaned(world).status == "False"
    assert world.status.phase == "Succeeded"


def test_a_refusal_that_passes_is_forgotten() -> None:
    world = done(a_job().storage())
    world.api.refusals["pod/mnist-cleanup"] = (403, "exceeded quota: pods")
    world.run()
    world.api.refusals.clear()
    world.wait(10).run()
    assert cleaned(world).reason == "Cleaning"
    world.exit("cleanup", code=0, message='{"removed": 1}').run()
    assert (cleaned(world).status, cleaned(world).message) == ("True", "removed 1 temporary save directory")


def test_failed_pods_of_the_job_are_kept_while_it_cleans() -> None:
    world = World(a_job().storage().max_restarts(0)).run().exit("worker-1").run()
    assert world.pods == ["cleanup", "worker-1"]


# --- every end of a job, in both modes


def too_late(world: World) -> None:
    world.api.edit("runPolicy.activeDeadlineSeconds", 60)
    world.wait(61)


def suspended(world: World) -> None:
    world.api.edit("runPolicy.suspend", True)


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_the_directories_are_removed_after_every_end(world: World, end: Callable[[World], object]) -> None:
    end(world)
    ended(world)
    assert world.status.phase in ("Succeeded", "Failed", "Suspended")
    assert world.status.is_true("Cleaned")
    assert world.status.cleanup is not None and world.status.cleanup.removed == 2


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_the_cleanup_covers_every_index_that_was_ever_used(job: JobBuilder, end: Callable[[World], object]) -> None:
    world = World(job.workers(5).max_restarts(0)).run()
    world.api.edit("replicaSpecs.worker.replicas", 2)
    world.run()
    end(world)
    until_it_cleans(world)
    command = world.api.pods["mnist-cleanup"]["spec"]["containers"][0]["command"]
    assert [word for word in command if word.startswith("--index")] == [f"--index={index}" for index in range(1, 5)]


def test_no_pod_of_the_job_runs_during_the_cleanup(world: World) -> None:
    succeeded(world)
    for _ in range(30):
        world.step()
        if "cleanup" in world.pods:
            others = [world.api.pods[world.name(each)] for each in world.pods if each != "cleanup"]
            assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in others)
            return
        world.wait(1).kubelet.remove_deleted()
    raise AssertionError("never cleaned")


def test_a_job_that_expires_is_cleaned_first(job: JobBuilder) -> None:
    world = World(job.max_restarts(0).set("runPolicy.ttlSecondsAfterFinished", 0)).run()
    succeeded(world)
    until_it_cleans(world)
    assert not world.api.gone, "its directories are not removed yet"
    assert ended(world).api.gone

"""The cleanup of the non-chief workers' temporary save directories: when it runs, how often, and how it ends."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.conftest import ended, failed, succeeded, until_it_cleans
from tftraining_api.model.status import Condition


def done(job: JobBuilder, chief: str = "worker-0") -> SimulatedCluster:
    """A job whose chief has just finished."""
    return SimulatedCluster(job).run().exit(chief, code=0)


def cleaned(cluster: SimulatedCluster) -> Condition:
    condition = cluster.status.condition("Cleaned")
    assert condition is not None
    return condition


def command(cluster: SimulatedCluster) -> list[str]:
    (container,) = cluster.api.pods["mnist-cleanup"]["spec"]["containers"]
    words: list[str] = container["command"]
    return words


def indices(cluster: SimulatedCluster) -> list[str]:
    return [word for word in command(cluster) if word.startswith("--index")]


def test_without_storage_there_is_nothing_to_remove() -> None:
    cluster = done(a_job()).run()
    assert cluster.pods == ["worker-0"]
    assert (cleaned(cluster).status, cleaned(cluster).message) == ("True", "nothing to remove")
    assert cluster.status.cleanup is not None and cluster.status.cleanup.removed == 0


def test_a_lone_worker_leaves_nothing_to_remove() -> None:
    assert cleaned(done(a_job().workers(1).storage()).run()).status == "True"


def test_a_job_that_never_started_has_nothing_to_remove() -> None:
    cluster = SimulatedCluster(a_job().storage().set("replicaSpecs", {})).run()
    assert (cluster.status.phase, cluster.pods, cleaned(cluster).status) == ("Failed", [], "True")


def test_it_waits_until_no_pod_can_write_any_more() -> None:
    cluster = done(a_job().workers(3).storage()).settle()
    assert "cleanup" not in cluster.pods
    assert (cleaned(cluster).status, cleaned(cluster).reason) == ("Unknown", "Waiting")
    assert cleaned(cluster).message == "waiting for worker-1 to stop"
    cluster.kubelet.force_delete("mnist-worker-1")
    assert "cleanup" not in cluster.settle().pods
    cluster.kubelet.force_delete("mnist-worker-2")
    assert "cleanup" in cluster.settle().pods


def test_the_life_of_a_cleanup() -> None:
    cluster = done(a_job().workers(3).storage()).run()
    assert (cleaned(cluster).status, cleaned(cluster).reason) == ("Unknown", "Cleaning")
    assert indices(cluster) == ["--index=1", "--index=2"]
    cluster.exit("cleanup", code=0, message='{"removed": 2, "failed": []}').run()
    assert cluster.pods == ["worker-0"]
    assert (cleaned(cluster).status, cleaned(cluster).message) == ("True", "removed 2 temporary save directories")
    assert cluster.status.cleanup is not None and cluster.status.cleanup.removed == 2
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Normal", "Cleaned")
    assert not cluster.step()


def test_beside_a_chief_worker_0_has_a_temporary_directory() -> None:
    assert indices(done(a_job().chief().storage(), "chief-0").run()) == ["--index=0", "--index=1"]


def test_a_failed_try_is_repeated_after_a_pause() -> None:
    cluster = done(a_job().storage()).run()
    cluster.exit("cleanup", code=1, message='{"removed": 1, "failed": [{"path": "a/b", "error": "busy"}]}').settle()
    assert (cleaned(cluster).reason, cleaned(cluster).message) == ("Retrying", "could not remove a/b: busy")
    assert cluster.wait(4).settle().api.pods["mnist-cleanup"]["status"]["phase"] == "Failed"
    cluster.wait(1).run()
    assert cluster.api.pods["mnist-cleanup"]["metadata"]["labels"]["tftraining.dev/attempt"] == "2"
    cluster.exit("cleanup", code=0, message='{"removed": 1, "failed": []}').run()
    assert cleaned(cluster).status == "True"
    assert cluster.status.cleanup is not None
    assert (cluster.status.cleanup.removed, cluster.status.cleanup.failed_attempts) == (2, 1)
    assert cleaned(cluster).message == "removed 2 temporary save directories"


def test_after_three_failed_tries_it_gives_up_and_says_what_may_be_left() -> None:
    cluster = done(a_job().storage()).run()
    suspension = []
    for _ in range(3):
        cluster.exit("cleanup", code=1, message="Traceback\nOSError: no").settle()
        before = cluster.now
        if cluster.timer:
            cluster.api.now = cluster.timer
        suspension.append((cluster.now - before).total_seconds())
        cluster.run()
    assert suspension == [5, 10, 0]
    assert cluster.pods == ["worker-0"]
    assert (cleaned(cluster).status, cleaned(cluster).reason) == ("False", "CleanupFailed")
    assert cleaned(cluster).message.startswith("OSError: no; remove directories named workertemp_<index>")
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Warning", "CleanupFailed")
    assert not cluster.wait(3600).step()


def test_a_cleanup_pod_that_never_runs_is_given_up_after_ten_minutes() -> None:
    cluster = done(a_job().storage()).settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    cluster.kubelet.set_waiting("mnist-cleanup", "ErrImagePull", "no such image")
    cluster.settle()
    assert cleaned(cluster).message == "mnist-cleanup: container cleanup: image pull failed (operator:1): no such image"
    end = cluster.status.completion_time
    cluster.run_timers()
    assert end is not None and (cluster.now - end).total_seconds() == 600
    assert cleaned(cluster).status == "False"
    assert cleaned(cluster).message.startswith(
        "container cleanup: image pull failed (operator:1): no such image; remove directories"
    )
    assert cluster.pods == ["worker-0"]


def test_a_writer_that_never_stops_is_given_up_after_ten_minutes() -> None:
    cluster = done(a_job().storage()).settle()
    cluster.api.pods["mnist-worker-1"]["metadata"]["finalizers"] = ["example.com/stuck"]
    assert cluster.timer is not None
    cluster.api.now = cluster.timer
    cluster.settle()
    assert cleaned(cluster).status == "False"
    assert cleaned(cluster).message.startswith("not finished after 10 minutes")


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"removed": "many"}', "Killed", '{"removed": null}', '{"removed": -1}', f"[{'9' * 99}]"]
)
def test_an_answer_that_cannot_be_read_counts_as_nothing_removed(answer: str) -> None:
    cluster = done(a_job().storage()).run()
    cluster.exit("cleanup", code=0, message=answer).run()
    assert cluster.status.cleanup is not None and cluster.status.cleanup.removed == 0


def test_an_answer_with_a_wrong_list_of_failures_does_no_harm() -> None:
    cluster = done(a_job().storage()).run()
    cluster.exit("cleanup", code=1, message='{"removed": 1, "failed": ["no dict"]}').run()
    assert cleaned(cluster).reason == "Retrying"


def test_a_deleted_cleanup_pod_is_made_again() -> None:
    cluster = done(a_job().storage()).run()
    cluster.kubelet.force_delete("mnist-cleanup")
    assert "cleanup" in cluster.run().pods


def test_a_refused_cleanup_pod_is_tried_again_and_given_up_in_time() -> None:
    cluster = done(a_job().storage())
    cluster.api.refusals["pod/mnist-cleanup"] = (403, "exceeded quota: pods")
    cluster.run()
    assert cleaned(cluster).message == "pod/mnist-cleanup: exceeded quota: pods"
    assert cluster.timer is not None
    cluster.run_timers()
    assert cleaned(cluster).status == "False"
    assert cluster.status.phase == "Succeeded"


def test_a_refusal_that_passes_is_forgotten() -> None:
    cluster = done(a_job().storage())
    cluster.api.refusals["pod/mnist-cleanup"] = (403, "exceeded quota: pods")
    cluster.run()
    cluster.api.refusals.clear()
    cluster.wait(10).run()
    assert cleaned(cluster).reason == "Cleaning"
    cluster.exit("cleanup", code=0, message='{"removed": 1}').run()
    assert (cleaned(cluster).status, cleaned(cluster).message) == ("True", "removed 1 temporary save directory")


def test_failed_pods_of_the_job_are_kept_while_it_cleans() -> None:
    cluster = SimulatedCluster(a_job().storage().max_restarts(0)).run().exit("worker-1").run()
    assert cluster.pods == ["cleanup", "worker-1"]


# --- every end of a job, in both modes


def too_late(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.activeDeadlineSeconds", 60)
    cluster.wait(61)


def suspended(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.suspend", True)


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_the_directories_are_removed_after_every_end(
    cluster: SimulatedCluster, end: Callable[[SimulatedCluster], object]
) -> None:
    end(cluster)
    ended(cluster)
    assert cluster.status.phase in ("Succeeded", "Failed", "Suspended")
    assert cluster.status.is_true("Cleaned")
    assert cluster.status.cleanup is not None and cluster.status.cleanup.removed == 2


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_the_cleanup_covers_every_index_that_was_ever_used(
    job: JobBuilder, end: Callable[[SimulatedCluster], object]
) -> None:
    cluster = SimulatedCluster(job.workers(5).max_restarts(0)).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 2)
    cluster.run()
    end(cluster)
    until_it_cleans(cluster)
    command = cluster.api.pods["mnist-cleanup"]["spec"]["containers"][0]["command"]
    assert [word for word in command if word.startswith("--index")] == [f"--index={index}" for index in range(1, 5)]


def test_no_pod_of_the_job_runs_during_the_cleanup(cluster: SimulatedCluster) -> None:
    succeeded(cluster)
    for _ in range(30):
        cluster.step()
        if "cleanup" in cluster.pods:
            others = [cluster.api.pods[cluster.name(each)] for each in cluster.pods if each != "cleanup"]
            assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in others)
            return
        cluster.wait(1).kubelet.remove_deleted()
    raise AssertionError("never cleaned")


def test_a_job_that_expires_is_cleaned_first(job: JobBuilder) -> None:
    cluster = SimulatedCluster(job.max_restarts(0).set("runPolicy.ttlSecondsAfterFinished", 0)).run()
    succeeded(cluster)
    until_it_cleans(cluster)
    assert not cluster.api.gone, "its directories are not removed yet"
    assert ended(cluster).api.gone


OTHER = {"volume": {"persistentVolumeClaim": {"claimName": "other"}}}


@pytest.mark.parametrize("after", [OTHER, None], ids=["another claim", "no storage"])
def test_a_suspended_jobs_storage_is_cleaned_though_the_spec_names_another_by_then(after: dict[str, object]) -> None:
    cluster = SimulatedCluster(a_job().storage(directory="first")).run()
    suspended(cluster)
    cluster.settle()
    cluster.api.edit("storage", after)
    cluster = until_it_cleans(cluster)
    claims = [each.get("persistentVolumeClaim") for each in cluster.api.pods["mnist-cleanup"]["spec"]["volumes"]]
    assert claims == [{"claimName": "training"}]
    assert "/training/first" in command(cluster)
    cluster.exit("cleanup", code=0, message='{"removed": 2}').run()
    assert (cleaned(cluster).status, cluster.pods) == ("True", [])
    cluster.api.edit("runPolicy.suspend", False)
    cluster.run().exit("worker-0", code=0)
    if after:
        cluster = until_it_cleans(cluster)
        assert "/training/mnist" in command(cluster), "the next pods have written the other storage"


def test_a_job_that_is_resumed_in_another_storage_tells_what_is_left_in_the_first() -> None:
    cluster = SimulatedCluster(a_job().storage()).run()
    suspended(cluster)
    cluster.settle()
    cluster.api.edit("storage", OTHER)
    cluster.api.edit("runPolicy.suspend", False)
    cluster.run()
    assert cluster.status.phase == "Running"
    (told,) = [each.message for each in cluster.events if each.reason == "CleanupFailed"]
    assert told.startswith("resumed in another storage before")

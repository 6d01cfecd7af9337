"""Row: cleanup. What stays when a job is done, and that its temporary directories go, however it ended."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.conftest import until_it_cleans


def ended(cluster: SimulatedCluster) -> SimulatedCluster:
    """The job's end, its cleanup included."""
    until_it_cleans(cluster)
    if "cleanup" in cluster.pods:
        cluster.exit("cleanup", code=0, message='{"removed": 2}').run_timers()
    return cluster


def succeeded(cluster: SimulatedCluster) -> None:
    if cluster.launched:
        cluster.launchers.finish()
    else:
        cluster.exit("worker-0", code=0)


def failed(cluster: SimulatedCluster) -> None:
    cluster.exit("worker-1", code=3, message="the last line")


def too_late(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.activeDeadlineSeconds", 60)
    cluster.wait(61)


def suspended(cluster: SimulatedCluster) -> None:
    cluster.api.edit("runPolicy.suspend", True)


# --- temporary directories


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_they_are_removed_however_it_ended(cluster: SimulatedCluster, end: Callable[[SimulatedCluster], None]) -> None:
    end(cluster)
    ended(cluster)
    assert cluster.status.phase in ("Succeeded", "Failed", "Suspended")
    assert cluster.status.is_true("Cleaned")
    assert cluster.status.cleanup is not None and cluster.status.cleanup.removed == 2


@pytest.mark.parametrize("end", [succeeded, failed, too_late, suspended])
def test_for_every_index_that_was_ever_used(job: JobBuilder, end: Callable[[SimulatedCluster], None]) -> None:
    cluster = SimulatedCluster(job.workers(5).max_restarts(0)).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 2)
    cluster.run()
    end(cluster)
    until_it_cleans(cluster)
    command = cluster.api.pods["mnist-cleanup"]["spec"]["containers"][0]["command"]
    assert [word for word in command if word.startswith("--index")] == [f"--index={index}" for index in range(1, 5)]


def test_no_pod_of_the_job_runs_while_they_are_removed(cluster: SimulatedCluster) -> None:
    succeeded(cluster)
    for _ in range(30):
        cluster.step()
        if "cleanup" in cluster.pods:
            others = [cluster.api.pods[cluster.name(each)] for each in cluster.pods if each != "cleanup"]
            assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in others)
            return
        cluster.wait(1).kubelet.remove_deleted()
    raise AssertionError("never cleaned")


# --- what stays


@pytest.mark.parametrize(("policy", "kept"), [("Running", ["worker-1"]), ("All", []), ("None", None)])
def test_failed_pods_are_kept_under_running(policy: str, kept: list[str] | None) -> None:
    cluster = SimulatedCluster(a_job().max_restarts(0).set("runPolicy.cleanPodPolicy", policy)).run()
    failed(cluster)
    assert ended(cluster).pods == (["worker-0", "worker-1"] if kept is None else kept)


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_the_first_failures_words_are_kept_though_its_pod_is_gone(job: JobBuilder, policy: str) -> None:
    cluster = SimulatedCluster(job.max_restarts(0).set("runPolicy.cleanPodPolicy", policy)).run()
    failed(cluster)
    ended(cluster)
    failure = cluster.status.failure
    assert failure is not None
    assert (failure.pod, failure.exit_code, failure.log_tail) == ("mnist-worker-1", 3, "the last line")


def test_the_service_goes_when_no_pod_uses_it_and_stays_where_all_stays(job: JobBuilder) -> None:
    cluster = SimulatedCluster(job.max_restarts(0)).run()
    succeeded(cluster)
    assert ended(cluster).api.services == {}
    kept = SimulatedCluster(a_job().set("runPolicy.cleanPodPolicy", "None")).run()
    kept.exit("worker-0", "worker-1", code=0)
    assert list(ended(kept).api.services) == ["mnist"]


def test_whatever_is_left_goes_with_the_job() -> None:
    # Nothing is deleted by hand: every child names the job as its controller, and the garbage collector does the rest.
    cluster = SimulatedCluster(a_launched_job().storage())
    step = cluster.plan()
    children = [step.create_service, step.create_secret, *step.create_pods]
    assert len(children) == 4
    for child in children:
        assert child is not None
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], "blockOwnerDeletion" in owner) == ("job-uid", True, False)
        assert "finalizers" not in child["metadata"]


def test_a_job_that_expires_is_cleaned_first(job: JobBuilder) -> None:
    cluster = SimulatedCluster(job.max_restarts(0).set("runPolicy.ttlSecondsAfterFinished", 0)).run()
    succeeded(cluster)
    until_it_cleans(cluster)
    assert not cluster.api.gone, "its directories are not removed yet"
    assert ended(cluster).api.gone


def test_a_job_that_is_being_deleted_gets_no_new_child(cluster: SimulatedCluster) -> None:
    cluster.api.job["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    cluster.kubelet.force_delete("mnist-worker-1")
    assert not cluster.step() and cluster.pods == ["worker-0"]

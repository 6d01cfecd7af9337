"""Row: a restart that a person asks for, by a new value of the annotation tftraining.dev/restartedAt. Once, free, and
only where there are pods that began before it."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend

NewJob = Callable[[], JobBuilder]
MODES = pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
ANNOTATION = "tftraining.dev/restartedAt"


def ask(cluster: SimulatedCluster, when: str) -> SimulatedCluster:
    """A person sets the annotation, which leaves the job's generation as it is."""
    cluster.api.job["metadata"].setdefault("annotations", {})[ANNOTATION] = when
    return cluster


def stamps(cluster: SimulatedCluster) -> set[str | None]:
    return {pod["metadata"]["annotations"].get(ANNOTATION) for pod in cluster.api.pods.values()}


@MODES
def test_a_request_restarts_the_gang_once_without_a_charge(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    assert stamps(cluster) == {""}
    ask(cluster, "2026-01-02T03:04:05Z").run()
    status = cluster.status
    assert (status.phase, status.attempt, stamps(cluster)) == ("Running", 2, {"2026-01-02T03:04:05Z"})
    assert status.last_restart is not None and status.last_restart.reason == "RestartRequested"
    restarts = status.restarts
    assert (restarts.counted, restarts.disruptions, restarts.budget_used, restarts.recreated) == (0, 0, 0, 1)
    assert cluster.run_timers().status.attempt == 2
    cluster.forget()
    assert cluster.run().status.attempt == 2, "an operator that starts anew repeats nothing"
    assert ask(cluster, "2026-01-03T03:04:05Z").run().status.attempt == 3


@MODES
def test_a_job_that_begins_with_the_annotation_is_not_restarted(new_job: NewJob) -> None:
    cluster = ask(SimulatedCluster(new_job()), "before").run()
    assert (cluster.status.attempt, stamps(cluster), cluster.status.last_restart) == (1, {"before"}, None)
    assert cluster.run_timers().status.attempt == 1


@MODES
def test_a_request_in_a_suspension_is_answered_by_the_resumption(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job()).run()
    suspend(cluster)
    ask(cluster.run(), "meanwhile").run()
    resume(cluster)
    cluster.run()
    assert (cluster.status.attempt, stamps(cluster), cluster.status.last_restart) == (2, {"meanwhile"}, None)


def test_a_removed_annotation_asks_for_nothing() -> None:
    cluster = ask(SimulatedCluster(a_launched_job()).run(), "once").run()
    del cluster.api.job["metadata"]["annotations"]
    assert cluster.run_timers().status.attempt == 2
    assert ask(cluster, "once").run_timers().status.attempt == 2


@MODES
@pytest.mark.parametrize("lost", [["worker-0"], ["worker-0", "worker-1"]], ids=["a pod", "every pod"])
def test_a_request_that_was_answered_asks_for_nothing_though_pods_were_replaced_without_it(
    new_job: NewJob, lost: list[str]
) -> None:
    cluster = ask(SimulatedCluster(new_job()).run(), "once").run()
    del cluster.api.job["metadata"]["annotations"]
    attempt = cluster.delete(*lost).run_timers().status.attempt
    assert "" in stamps(cluster), "replaced while nothing was asked for"
    cluster.forget()
    assert ask(cluster, "once").run_timers().status.attempt == attempt
    assert ask(cluster, "twice").run_timers().status.attempt == attempt + 1


@MODES
def test_a_request_does_not_wait_for_the_back_off_of_earlier_failures(new_job: NewJob) -> None:
    cluster = SimulatedCluster(new_job().max_restarts(9)).run()
    for _ in range(5):
        cluster.kubelet.exit(cluster.name("worker-1"), 1, "", "")
        cluster.run_timers()
    assert cluster.status.restarts.without_progress == 5
    asked = cluster.now
    ask(cluster, "now").run()
    assert (cluster.status.phase, cluster.now, stamps(cluster)) == ("Running", asked, {"now"})


def test_a_request_is_kept_within_bounds() -> None:
    cluster = ask(SimulatedCluster(a_job()).run(), "x" * 5000).run()
    assert stamps(cluster) == {"x" * 64} and cluster.run_timers().status.attempt == 2


def test_an_ended_job_stays_ended() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).run()
    assert ask(cluster, "too late").run_timers().status.phase == "Succeeded"

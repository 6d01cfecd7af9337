"""The operator crashes and forgets: wherever it happens, the job goes on as if it had not."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster

Story = Callable[[SimulatedCluster], SimulatedCluster]


def start(cluster: SimulatedCluster) -> SimulatedCluster:
    return cluster.run()


def crash_of_a_worker(cluster: SimulatedCluster) -> SimulatedCluster:
    return cluster.run().exit("worker-1", code=137).run()


def crash_and_deletion(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run().exit("worker-1").run().delete("worker-0")
    return cluster.run_timers()


def scale_up(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    return cluster.run()


def success(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run().exit("worker-0", code=0).run()
    cluster.exit("cleanup", code=0, message='{"removed": 2}')
    return cluster.run()


def exhausted(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run().exit("worker-1").run().exit("worker-1").run()
    cluster.exit("cleanup", code=0, message='{"removed": 0}')
    return cluster.run()


def crash_in_place(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run()
    cluster.launchers.advance(2, 100)
    cluster.launchers.crash("worker-1")
    return cluster.run()


def lost_pods(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run().exit("worker-1", code=137, reason="OOMKilled").run()
    return cluster.delete("worker-0").run_timers()


def verdict_of_failure(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run()
    cluster.launchers.crash("worker-1")
    cluster.run()
    cluster.launchers.crash("worker-0", code=1)
    return cluster.run()


def suspension(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.run()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run().exit("cleanup", code=0, message='{"removed": 2}').run()
    cluster.api.edit("runPolicy.suspend", False)
    return cluster.run()


def too_late(cluster: SimulatedCluster) -> SimulatedCluster:
    cluster.api.edit("runPolicy.activeDeadlineSeconds", 60)
    return cluster.run().wait(60).run()


LAUNCHED_STORIES = [suspension, too_late, start, crash_in_place, lost_pods, scale_up, verdict_of_failure]
STORIES = [suspension, too_late, start, crash_of_a_worker, crash_and_deletion, scale_up, success, exhausted]


class Forgetful(SimulatedCluster):
    """Its operator crashes after that many writes of each pass, and after each pass."""

    def __init__(self, job: JobBuilder, writes: int) -> None:
        super().__init__(job)
        self._writes_a_life = writes

    def settle(self) -> "Forgetful":
        """Lives, each of a few writes, until there is nothing to do in one."""
        while self._live():
            assert len(self.api.writes) < 300, "no fixpoint"
        self.timer = self.plan().requeue_at
        return self

    def _live(self) -> bool:
        """One life: it hears the launchers, makes a pass, and dies."""
        self.launcher_report = self.launchers.last_report() if self.launched else None
        return self.step(writes=self._writes_a_life)

    def poll_launchers(self) -> bool:
        """Each life asks for itself."""
        return self.launched and self.launchers.tick()


def end_of(cluster: SimulatedCluster) -> tuple[object, ...]:
    """All that counts of where a story ends."""
    status = cluster.status
    cleanup = status.cleanup.removed if status.cleanup else None
    return status.phase, status.attempt, status.ready, status.restarts, status.replicas, cleanup, cluster.pods


@pytest.mark.parametrize(
    ("new_job", "story"),
    [*((a_job, story) for story in STORIES), *((a_launched_job, story) for story in LAUNCHED_STORIES)],
)
@pytest.mark.parametrize("writes", [1, 3])
def test_crashing_after_so_many_writes_of_each_pass_changes_nothing(
    new_job: Callable[[], JobBuilder], story: Story, writes: int
) -> None:
    job = new_job().max_restarts(1).storage()
    undisturbed = story(SimulatedCluster(job))
    cluster = Forgetful(job, writes)
    story(cluster)
    assert end_of(cluster) == end_of(undisturbed)


def test_an_operator_that_was_down_while_a_job_crashed_charges_once() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run()
    cluster.exit("worker-2").wait(2).exit("worker-0", "worker-1").wait(3600)
    cluster.forget()
    cluster.run()
    assert (cluster.status.phase, cluster.status.restarts.counted) == ("Running", 1)
    assert cluster.status.failure is not None and cluster.status.failure.pod == "mnist-worker-2"


def test_a_wiped_status_adopts_the_attempt_of_the_pods() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run()
    del cluster.api.job["status"]
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.ready) == ("Running", 2, "2/2")
    assert cluster.pods == ["worker-0", "worker-1"]
    assert cluster.attempts() == {"2"}


def test_a_status_wiped_in_the_middle_of_a_restart_still_says_what_it_waits_for() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    del cluster.api.job["status"]
    cluster.settle()
    assert cluster.status.phase == "Restarting"
    assert cluster.status.reason and cluster.status.message

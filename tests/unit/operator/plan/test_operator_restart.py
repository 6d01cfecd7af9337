"""The operator crashes and forgets: wherever it happens, the job goes on as if it had not."""

from collections.abc import Callable

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World

Story = Callable[[World], World]


def start(world: World) -> World:
    return world.run()


def crash_of_a_worker(world: World) -> World:
    return world.run().exit("worker-1", code=137).run()


def crash_and_deletion(world: World) -> World:
    world.run().exit("worker-1").run().delete("worker-0")
    return world.run_timers()


def scale_up(world: World) -> World:
    world.run()
    world.api.edit("replicaSpecs.worker.replicas", 3)
    return world.run()


def success(world: World) -> World:
    world.run().exit("worker-0", code=0).run()
    world.exit("cleanup", code=0, message='{"removed": 2}')
    return world.run()


def exhausted(world: World) -> World:
    world.run().exit("worker-1").run().exit("worker-1").run()
    world.exit("cleanup", code=0, message='{"removed": 0}')
    return world.run()


def crash_in_place(world: World) -> World:
    world.run()
    world.launchers.advance(2, 100)
    world.launchers.crash("worker-1")
    return world.run()


def lost_pods(world: World) -> World:
    world.run().exit("worker-1", code=137, reason="OOMKilled").run()
    return world.delete("worker-0").run_timers()


def verdict_of_failure(world: World) -> World:
    world.run()
    world.launchers.crash("worker-1")
    world.run()
    world.launchers.crash("worker-0", code=1)
    return world.run()


def suspension(world: World) -> World:
    world.run()
    world.api.edit("runPolicy.suspend", True)
    world.run().exit("cleanup", code=0, message='{"removed": 2}').run()
    world.api.edit("runPolicy.suspend", False)
    return world.run()


def too_late(world: World) -> World:
    world.api.edit("runPolicy.activeDeadlineSeconds", 60)
    return world.run().wait(60).run()


LAUNCHED_STORIES = [suspension, too_late, start, crash_in_place, lost_pods, scale_up, verdict_of_failure]
STORIES = [suspension, too_late, start, crash_of_a_worker, crash_and_deletion, scale_up, success, exhausted]


class Forgetful(World):
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
        self.heard = self.launchers.heard() if self.launched else None
        return self.step(writes=self._writes_a_life)

    def listen(self) -> bool:
        """Each life asks for itself."""
        return self.launched and self.launchers.tick()


def end_of(world: World) -> tuple[object, ...]:
    """All that counts of where a story ends."""
    status = world.status
    cleanup = status.cleanup.removed if status.cleanup else None
    return status.phase, status.attempt, status.ready, status.restarts, status.replicas, cleanup, world.pods


@pytest.mark.parametrize(
    ("new_job", "story"),
    [*((a_job, story) for story in STORIES), *((a_launched_job, story) for story in LAUNCHED_STORIES)],
)
@pytest.mark.parametrize("writes", [1, 3])
def test_crashing_after_so_many_writes_of_each_pass_changes_nothing(
    new_job: Callable[[], JobBuilder], story: Story, writes: int
) -> None:
    job = new_job().max_restarts(1).storage()
    undisturbed = story(World(job))
    world = Forgetful(job, writes)
    story(world)
    assert end_of(world) == end_of(undisturbed)


def test_an_operator_that_was_down_while_a_job_crashed_charges_once() -> None:
    world = World(a_job().workers(3)).run()
    world.exit("worker-2").wait(2).exit("worker-0", "worker-1").wait(3600)
    world.forget()
    world.run()
    assert (world.status.phase, world.status.restarts.counted) == ("Running", 1)
    assert world.status.failure is not None and world.status.failure.pod == "mnist-worker-2"


def test_a_wiped_status_adopts_the_attempt_of_the_pods() -> None:
    world = World(a_job()).run().exit("worker-1").run()
    del world.api.job["status"]
    world.run()
    assert (world.status.phase, world.status.attempt, world.status.ready) == ("Running", 2, "2/2")
    assert world.pods == ["worker-0", "worker-1"]
    assert world.attempts() == {"2"}


def test_a_status_wiped_in_the_middle_of_a_restart_still_says_what_it_waits_for() -> None:
    world = World(a_job()).run().exit("worker-1").settle()
    world.kubelet.remove_deleted()
    world.settle()
    del world.api.job["status"]
    world.settle()
    assert world.status.phase == "Restarting"
    assert world.status.reason and world.status.message

"""Row: what the time of a job went to. The seconds of status.goodput are those of the causes, and no others.

The simulated launchers tell of each restart that it took 1.1 s; the clock moves only where a test moves it.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tftraining_api.model.goodput import Goodput, in_words
from tftraining_api.model.status import Status
from tftraining_operator.model.observed import QuotaHold, StorageUse
from tftraining_operator.plan.status_writes import can_wait, is_progress, is_written

DOWN = 1.1


def account(cluster: SimulatedCluster) -> Goodput:
    """The account as it was written last; its seconds are all of the time that it is about."""
    found = cluster.status.goodput
    assert found is not None and found.start_time is not None and found.updated_time is not None
    assert sum(found.seconds.values()) == pytest.approx((found.updated_time - found.start_time).total_seconds())
    return found


def seconds(cluster: SimulatedCluster) -> dict[str, float]:
    """The seconds until now by cause, of a job that runs also those since the last write."""
    told = account(cluster).until(cluster.now)
    return {name: each for name, each in told.items() if each}


def trains(job: JobBuilder | None = None) -> SimulatedCluster:
    """A gang that has needed 20 s until it trains, and trains for 100 s."""
    cluster = SimulatedCluster(job or a_launched_job().storage()).settle().wait(20).run()
    assert cluster.status.phase == "Running"
    cluster.launchers.advance(3, 200)
    return cluster.wait(100)


def crash(cluster: SimulatedCluster, after: float) -> SimulatedCluster:
    """The program of worker 1 is killed, and the operator sees `after` that time that the gang trains again."""
    cluster.launchers.crash("worker-1")
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle().wait(after).run()
    return cluster


def test_a_calm_job_from_its_creation_to_its_end() -> None:
    cluster = trains()
    assert account(cluster).cause == "trained"
    assert seconds(cluster) == {"start": 20, "trained": 100}
    cluster.launchers.finish()
    cluster.run()
    found = account(cluster)
    assert (found.cause, found.since, found.updated_time) == (None, None, cluster.status.completion_time)
    assert seconds(cluster.wait(1000)) == {"start": 20, "trained": 100}


def test_the_end_is_told_in_whole_seconds_and_takes_nothing_back() -> None:
    cluster = SimulatedCluster(a_job()).wait(0.7).run()
    cluster.wait(0.1).exit("worker-0", code=0).run()
    assert cluster.status.phase == "Succeeded"
    assert seconds(cluster) == pytest.approx({"start": 0.7})
    assert account(cluster).updated_time != cluster.status.completion_time


@pytest.mark.parametrize("seen", [0.4, 1.1, 30])
def test_a_restart_in_place_took_what_the_launchers_say(seen: float) -> None:
    cluster = crash(trains(), seen)
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 100 + seen - DOWN, "inPlace": DOWN})


def test_a_restart_that_no_operator_saw() -> None:
    cluster = trains()
    cluster.launchers.crash("worker-1")
    cluster.launchers.tick()
    cluster.forget()
    cluster.wait(50).run()
    assert cluster.status.restarts.in_place == 1
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 150 - DOWN, "inPlace": DOWN})


def test_time_without_an_operator_goes_to_what_held_before_it() -> None:
    cluster = trains()
    cluster.launchers.crash("worker-1")
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle()
    cluster.forget()
    cluster.wait(600)
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 100, "inPlace": 600})
    cluster.run()  # the launchers tell that it took less
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 700 - DOWN, "inPlace": DOWN})


def test_one_failure_after_another_before_the_gang_trains() -> None:
    """The first restart has no end of its own."""
    cluster = trains()
    for _ in range(2):
        cluster.launchers.crash("worker-1")
        cluster.launcher_report = cluster.launchers.last_report()
        cluster.settle().wait(7)
        cluster.launchers.phase = "Training"  # the programs have started, and make no step
        cluster.launchers.ledger["inPlace"] += 1
    cluster.launchers.phase = "Restarting"
    cluster.run()
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 107 - DOWN, "inPlace": 7 + DOWN})


def test_a_pod_anew() -> None:
    cluster = trains().delete("worker-1", grace=0)
    cluster.poll_launchers()
    cluster.settle().wait(8).run()
    assert cluster.status.restarts.recreated == 1
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 108 - DOWN, "recreated": DOWN})


def test_a_loss_that_launchers_see_first_is_one_with_what_the_operator_knows_later() -> None:
    cluster = trains()
    earlier = cluster.api.snapshot()
    cluster.delete("worker-1", grace=0).poll_launchers()
    cluster.step(earlier)
    assert account(cluster).cause == "inPlace"
    cluster.wait(5).settle()
    assert account(cluster).cause == "recreated"
    assert seconds(cluster.wait(3)) == pytest.approx({"start": 20, "trained": 100, "recreated": 8})


def test_a_pod_that_is_lost_while_its_program_restarts_is_another_incident() -> None:
    cluster = trains()
    cluster.launchers.crash("worker-1", code=1)
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle().wait(5).delete("worker-1", grace=0).settle()
    assert account(cluster).cause == "recreated"
    assert seconds(cluster.wait(3)) == pytest.approx({"start": 20, "trained": 100, "inPlace": 5, "recreated": 3})


def test_a_lost_node() -> None:
    cluster = trains().exit("worker-1", code=137, reason="NodeShutdown").settle().wait(90)
    assert account(cluster).cause == "node"
    assert seconds(cluster) == {"start": 20, "trained": 100, "node": 90}


def test_without_launchers_the_operators_own_record_counts() -> None:
    cluster = trains(a_job()).exit("worker-1", code=137).settle().wait(12)
    assert seconds(cluster) == {"start": 20, "trained": 100, "recreated": 12}
    cluster.run().wait(5)
    assert seconds(cluster) == {"start": 20, "trained": 105, "recreated": 12}


def test_steps_that_are_done_again_were_not_kept() -> None:
    cluster = trains()
    cluster.launchers.crash("worker-1")
    cluster.launchers.tick()
    assert cluster.launchers.last is not None
    cluster.launchers.last["lostSeconds"] = 4.5
    cluster.run()
    expected = {"start": 20, "trained": 100 - DOWN - 4.5, "inPlace": DOWN, "repeated": 4.5}
    assert seconds(cluster) == pytest.approx(expected)
    cluster.launchers.last["lostSeconds"] = 1.5  # a later `fit` has resumed
    cluster.run()
    assert seconds(cluster) == pytest.approx(expected | {"trained": 100 - DOWN - 1.5, "repeated": 1.5})


def told_of_copies(cluster: SimulatedCluster, blocked: float | None) -> SimulatedCluster:
    cluster.launchers.in_memory = {"step": 200, "on": True, "blockedSeconds": blocked}
    return cluster.run()


def test_copies_are_counted_over_all_rounds() -> None:
    cluster = told_of_copies(trains(), 2.0)
    told_of_copies(cluster, 3.0)
    told_of_copies(cluster, None)  # the programs start again
    told_of_copies(cluster, 0.5)
    assert seconds(cluster) == {"start": 20, "trained": 96.5, "copies": 3.5}
    told_of_copies(crash(cluster, DOWN), 0.25)  # a round that nobody saw begin
    assert seconds(cluster)["copies"] == 3.75
    cluster.launchers.in_memory = {
        "step": None,
        "on": False,
        "blockedSeconds": 0.25,
        "reason": "the training has ended",
    }
    assert seconds(cluster.run())["copies"] == 3.75 and cluster.status.progress.backup is None  # type: ignore[union-attr]
    told_of_copies(cluster, 0.5)  # of the next `fit`
    cluster.launchers.in_memory = {"step": 300, "on": True, "blockedSeconds": 1.25}
    cluster.launcher_report = cluster.launchers.last_report()
    suspend(cluster).settle()
    assert cluster.status.progress is not None and cluster.status.progress.backup is None
    assert seconds(cluster.settle())["copies"] == 5.0


def test_a_suspension_and_the_start_after_it() -> None:
    cluster = suspend(trains()).settle().wait(500)
    assert account(cluster).cause == "suspended"
    resume(cluster).run().settle().wait(10).run()
    assert seconds(cluster) == {"start": 20, "trained": 110, "suspended": 500}
    assert account(suspend(cluster).settle()).cause == "suspended"


def test_the_steps_that_a_suspension_has_cost() -> None:
    cluster = trains()
    cluster.run()
    suspend(cluster).run().wait(50)
    cluster.launchers.backup = (0, 100)
    resume(cluster).run()
    cluster.launchers.advance(1, 110)
    cluster.run()
    lost = round(100 / 12.35, 2)
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 100 - lost, "repeated": lost, "suspended": 50})


def test_a_stall_began_with_the_last_step() -> None:
    cluster = trains()
    cluster.launchers.advance(4, 300)
    cluster.run().wait(40)
    cluster.launchers.stall("worker-1")
    cluster.launcher_report = cluster.launchers.last_report()
    cluster.settle().wait(DOWN).run()
    told = seconds(cluster)
    assert told.pop("stalled") == pytest.approx(40, abs=1)  # the nodes' clock is not the operator's
    assert told == pytest.approx({"start": 20, "trained": 100, "inPlace": DOWN}, abs=1)


HELD = {
    "quota": lambda cluster, on: setattr(cluster, "quota", QuotaHold("no room") if on else None),
    "refused": lambda cluster, on: setattr(
        cluster.api, "refusals", {"pod/mnist-worker-0": (403, "exceeded quota: pods=1")} if on else {}
    ),
    "storage": lambda cluster, on: setattr(cluster, "storage", StorageUse(held="in use") if on else StorageUse()),
}


@pytest.mark.parametrize("held", HELD)
def test_a_wait_for_room_is_a_queue(held: str) -> None:
    cluster = SimulatedCluster(a_launched_job().storage())
    HELD[held](cluster, True)
    cluster.settle().wait(300)
    assert seconds(cluster) == {"queue": 300}
    HELD[held](cluster, False)
    cluster.settle().wait(20).run()
    assert seconds(cluster) == {"queue": 300, "start": 20}


@pytest.mark.parametrize("reason", ["SchedulingGated", "Unschedulable"])
def test_a_wait_for_a_queue_of_kueue_or_for_a_node_is_a_queue(reason: str) -> None:
    cluster = SimulatedCluster(a_job()).settle().wait(5)
    waits = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes"}
    cluster.kubelet.condition("mnist-worker-1", waits)
    cluster.settle().wait(300)
    assert seconds(cluster) == {"start": 5, "queue": 300}
    cluster.kubelet.condition("mnist-worker-1", waits | {"status": "True"})
    cluster.settle().wait(20).run()
    assert seconds(cluster) == {"start": 25, "queue": 300}


def test_a_wait_for_a_node_within_a_restart_is_a_queue_too() -> None:
    cluster = trains(a_job()).exit("worker-1", code=137).settle().wait(2)
    cluster.kubelet.remove_deleted()
    cluster.settle()
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    cluster.kubelet.condition("mnist-worker-1", waits)
    cluster.settle().wait(300)
    assert account(cluster).cause == "queue"
    cluster.kubelet.condition("mnist-worker-1", waits | {"status": "True"})
    cluster.settle().wait(20).run()
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 100, "recreated": 22, "queue": 300}, abs=0.1)


# --- what an account survives


def edited(cluster: SimulatedCluster, goodput: dict[str, Any] | None, **fields: Any) -> SimulatedCluster:
    cluster.api.job["status"] |= {"goodput": goodput, **fields}
    if goodput is None:
        del cluster.api.job["status"]["goodput"]
    return cluster


def test_a_job_that_an_older_operator_has_begun_is_counted_from_now_on() -> None:
    cluster = edited(trains(), None).wait(1000)
    assert not cluster.step(), "no write for the account"
    crash(cluster, DOWN).wait(9)
    assert seconds(cluster) == pytest.approx({"inPlace": DOWN, "trained": 9})
    assert account(cluster).start_time == cluster.now - timedelta(seconds=9 + DOWN)


def test_time_under_an_older_operator_that_changed_the_phase_is_left_out() -> None:
    cluster = SimulatedCluster(a_launched_job().storage()).settle().wait(20)
    stale = cluster.api.job["status"]["goodput"]
    cluster.run().wait(500)
    edited(cluster, stale)
    crash(cluster, DOWN).wait(30)
    assert seconds(cluster) == pytest.approx({"inPlace": DOWN, "trained": 30}, abs=0.01)


@pytest.mark.parametrize("back", [30.0, 90.0, 10_000.0])
def test_a_clock_that_was_ahead_takes_back_what_it_has_added(back: float) -> None:
    cluster = crash(trains(), DOWN)
    cluster.wait(1000)
    crash(cluster, DOWN)
    cluster.wait(-1000)
    crash(cluster, DOWN)
    told = seconds(cluster)
    assert told["start"] == 20 and told["trained"] == pytest.approx(100, abs=1)
    cluster.wait(-back)
    crash(cluster, DOWN)
    assert all(each >= 0 for each in cluster.status.goodput.seconds.values())  # type: ignore[union-attr]
    if back < 10_000:
        account(cluster)


@pytest.mark.parametrize("back", [0.25, 5.0])
def test_a_clock_set_back_by_more_than_the_last_cause_took(back: float) -> None:
    """As an operator that starts anew does: its first estimate of the API server's time may be a second behind."""
    cluster = trains().delete("worker-1", grace=0)
    cluster.poll_launchers()
    cluster.settle()
    assert account(cluster).cause == "recreated"
    suspend(cluster.wait(-back)).run()
    assert seconds(cluster) == pytest.approx({"start": 20, "trained": 100 - back})


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"seconds": {"trained": 1e300}},
        {"startTime": "0000-01-01T00:00:00Z", "updatedTime": "9999-01-01T00:00:00Z", "since": "2026-01-01T00:00:00Z"},
        {"cause": "nonsense", "seconds": {"nonsense": 3.0}},
        {"cause": "nonsense", "startTime": "0000-01-01T00:00:00Z", "updatedTime": "9999-01-01T00:00:00Z"},
        {"cause": "nonsense", "startTime": "9999-01-01T00:00:00Z", "updatedTime": "0000-01-01T00:00:00Z"},
    ],
)
def test_whatever_somebody_writes_into_it_is_no_obstacle(told: dict[str, Any]) -> None:
    cluster = trains()
    edited(cluster, cluster.api.job["status"]["goodput"] | told if told else {})
    crash(cluster, DOWN)
    found = cluster.status.goodput
    assert found is not None and all(0 <= each <= 1e9 for each in found.seconds.values())
    assert cluster.status.phase == "Running"


# --- writes


def test_the_account_alone_is_no_news_and_delays_none() -> None:
    cluster = trains()
    old = cluster.status
    later = msgspec.structs.replace(old, goodput=Goodput(seconds={"trained": 1.0}))
    assert is_written(old, later) and is_progress(old, later) and can_wait(old, later)
    fewer = msgspec.structs.replace(later, ready="1/2")
    assert can_wait(old, fewer) and not is_written(old, fewer)


@pytest.mark.parametrize("new_job", [a_job, a_launched_job])
def test_no_pass_has_news_of_the_time_alone(new_job: Callable[[], JobBuilder]) -> None:
    cluster = trains(new_job())
    cluster.run()
    writes = len(cluster.api.writes)
    for seconds in (0.01, 1, 3600):
        assert not cluster.wait(seconds).run().step()
    assert len(cluster.api.writes) == writes


def test_words() -> None:
    assert in_words({}) == ""
    assert in_words({"trained": 98.0, "start": 1.5, "copies": 0.5, "queue": 0.01}) == (
        "98.0 % of 100.0 s trained; start 1.5 s, backups in memory 0.5 s"
    )
    assert in_words({"queue": 7200.0, "trained": 720.0}) == "9.1 % of 2.2 h trained; queue 2.0 h"
    assert Status().goodput is None

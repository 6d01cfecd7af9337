"""Row: clocks. Times that an operator with a wrong clock has written make no wait longer than its bound, and none
vanish."""

from datetime import datetime, timedelta

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_operator.model.times import clock

AHEAD = 1200


@pytest.fixture(params=["InPlace", "Recreate"])
def cluster(request: pytest.FixtureRequest) -> SimulatedCluster:
    return SimulatedCluster(a_launched_job() if request.param == "InPlace" else a_job()).run()


def moved(cluster: SimulatedCluster, *names: str, seconds: int = AHEAD) -> None:
    """Another operator has written these times of the status, with a clock that is so far ahead."""
    status = cluster.api.job["status"]
    for path in names:
        *parts, last = path.split(".")
        place = status
        for part in parts:
            place = place[part]
        place[last] = clock(datetime.fromisoformat(place[last]) + timedelta(seconds=seconds))


def test_a_restart_that_was_under_way_at_the_hand_over_goes_on_at_once(cluster: SimulatedCluster) -> None:
    cluster.delete("worker-1").step()
    assert cluster.status.phase == "Restarting"
    moved(cluster, "lastRestart.time")
    cluster.forget()
    cluster.run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")


def test_each_loss_of_a_new_pod_counts_though_the_restart_was_written_ahead() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.delete("worker-1").settle()
    moved(cluster, "lastRestart.time", seconds=30)
    cluster.kubelet.remove_deleted()
    cluster.settle()
    cluster.delete("worker-1").run_timers()
    assert cluster.status.restarts.disruptions == 2


@pytest.mark.parametrize("ahead", [AHEAD, 10**9])
def test_the_active_deadline_is_kept(cluster: SimulatedCluster, ahead: int) -> None:
    cluster.api.edit("runPolicy.activeDeadlineSeconds", 100)
    moved(cluster, "startTime", seconds=ahead)
    cluster.run().wait(99).run()
    assert cluster.status.phase == "Running"
    assert cluster.wait(1).run().status.reason == "DeadlineExceeded"


def test_the_start_deadline_is_kept() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    moved(cluster, "startTime")
    cluster.settle().wait(599).settle()
    assert cluster.status.phase == "Starting"
    assert cluster.wait(1).settle().status.reason == "StartDeadlineExceeded"


def test_a_job_that_has_ended_is_deleted_in_time() -> None:
    cluster = SimulatedCluster(a_job().set("runPolicy.ttlSecondsAfterFinished", 60)).run()
    cluster.exit("worker-0", code=0).run()
    moved(cluster, "completionTime")
    assert cluster.run().timer is not None and (cluster.timer - cluster.now).total_seconds() <= 60  # type: ignore[operator]


def test_a_time_that_the_estimate_of_now_has_not_reached_yet_causes_no_write(cluster: SimulatedCluster) -> None:
    moved(cluster, "startTime", seconds=1)
    assert not cluster.step()

"""Row: the same failure again and again. It ends the job, with the exception in the message; what a restart can mend
never does, and progress is never lost sight of. Here is what the operator decides and tells; the launchers count by the
same rules (tests/unit/launch/failure/test_same_failure.py).
"""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tftraining_operator.model.launcher_report import parse_report
from tftraining_operator.model.observed import LauncherReport

BOOM = "ValueError: boom"
LIMIT = "restartPolicy.sameFailureLimit"


def traceback(exception: str) -> str:
    return f'Traceback (most recent call last):\n  File "/train.py", line 3, in <module>\n    fit()\n{exception}\n'


def running(job: JobBuilder | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster((job or a_job()).max_restarts(100)).run()
    assert cluster.status.phase == "Running"
    return cluster


def fails(
    cluster: SimulatedCluster, exception: str = BOOM, after: float = 40, pod: str = "worker-1", code: int = 1
) -> str:
    """The gang trains for so long, then the pod's program ends by the exception; the job's reason if it has failed."""
    cluster.wait(after).exit(pod, code=code, message=traceback(exception) if exception else "").run_timers()
    return cluster.status.reason or "" if cluster.status.phase == "Failed" else ""


def raises(cluster: SimulatedCluster, after: float = 40) -> str:
    """The same behind launchers."""
    cluster.wait(after).launchers.crash("worker-1", 1, exception=BOOM)
    cluster.run_timers()
    return cluster.status.reason or "" if cluster.status.phase == "Failed" else ""


# --- without launchers


def test_the_third_time_in_a_row_is_the_end() -> None:
    cluster = running()
    assert [fails(cluster), fails(cluster), fails(cluster)] == ["", "", "SameFailure"]
    status = cluster.status
    words = "worker-1: ValueError: boom; the same failure 3 times in a row reaches spec.restartPolicy.sameFailureLimit"
    assert status.message == words
    assert status.failure is not None and status.failure.exception == BOOM
    assert status.failure.log_tail is not None and status.failure.log_tail.endswith(BOOM)
    assert (status.restarts.counted, status.is_true("Failed")) == (2, True)
    assert (cluster.events[-1].type, cluster.events[-1].message) == ("Warning", words)


def test_while_it_restarts_the_exception_is_told_everywhere() -> None:
    cluster = running()
    cluster.wait(40).exit("worker-1", message=traceback(BOOM)).settle()
    status = cluster.status
    words = "worker-1: ValueError: boom; restarting the gang as attempt 2"
    assert (status.phase, status.message) == ("Restarting", words)
    assert status.last_restart is not None and status.last_restart.exception == BOOM
    assert status.failure is not None and status.failure.exception == BOOM
    assert status.restarts.same_failure is not None and status.restarts.same_failure.count == 1
    assert (cluster.events[-1].type, cluster.events[-1].reason, cluster.events[-1].message) == (
        "Warning",
        "Error",
        words,
    )


def test_an_operator_that_is_restarted_goes_on_counting() -> None:
    cluster = running()
    assert fails(cluster) == ""
    cluster.forget()
    assert fails(cluster) == ""
    cluster.forget()
    assert fails(cluster) == "SameFailure"


def test_the_limit_is_that_of_the_moment() -> None:
    cluster = running(a_job().set(LIMIT, 0))
    assert [fails(cluster) for _ in range(5)] == [""] * 5
    cluster.api.edit(LIMIT, 3)
    assert cluster.run().status.phase == "Running", "only a failure ends a job"
    assert fails(cluster) == "SameFailure"


def test_without_a_limit_no_wait_is_shortened() -> None:
    cluster, waits = running(a_job().set(LIMIT, 0)), []
    for _ in range(7):
        before = cluster.now
        fails(cluster, after=1)
        waits.append((cluster.now - before).total_seconds() - 1)
    assert waits == [0, 1, 2, 4, 8, 16, 32]


def test_it_takes_a_minute() -> None:
    cluster = running(a_job().set(LIMIT, 2))
    assert [fails(cluster, after=31), fails(cluster, after=31), fails(cluster, after=31)] == ["", "", "SameFailure"]


@pytest.mark.parametrize("action", ["Restart", "Ignore"])
def test_a_rule_that_holds_decides_before(action: str) -> None:
    cluster = running(a_job().set("restartPolicy.rules", [{"action": action, "onExitCodes": [1]}]))
    assert [fails(cluster) for _ in range(5)] == [""] * 5
    assert cluster.status.restarts.same_failure is None


@pytest.mark.parametrize(
    "other",
    [
        {"exception": "ConnectionResetError: x"},
        {"exception": "tensorflow.python.framework.errors_impl.UnavailableError: x"},
        {"exception": ""},
        {"code": 3},
        {"code": 137},
        {"exception": "tensorflow.python.framework.errors_impl.NotFoundError: x", "after": 4},
        {"after": 700},
    ],
)
def test_what_does_not_count_neither_ends_the_job_nor_the_row(other: dict[str, Any]) -> None:
    cluster = running()
    assert [fails(cluster, **other) for _ in range(4)] == [""] * 4
    assert cluster.status.restarts.same_failure is None
    assert [fails(cluster), fails(cluster), fails(cluster, **other)] == [""] * 3
    assert fails(cluster) == "SameFailure"


def test_a_program_that_fails_at_once_fails_the_job_within_100_s() -> None:
    cluster = running()
    began = cluster.now
    while not fails(cluster, after=4):
        assert cluster.now < began + timedelta(seconds=100)
    assert cluster.status.reason == "SameFailure"
    assert timedelta(seconds=60) < cluster.now - began < timedelta(seconds=80)


def test_another_exception_begins_a_new_row() -> None:
    cluster = running()
    for _ in range(3):
        assert [fails(cluster), fails(cluster), fails(cluster, exception="ValueError: bang")] == [""] * 3


def test_another_member_with_the_same_exception_does_not() -> None:
    cluster = running()
    assert [fails(cluster), fails(cluster, pod="worker-0"), fails(cluster)] == ["", "", "SameFailure"]


def test_disruptions_between_do_not_end_the_row() -> None:
    cluster = running()
    for _ in range(2):
        assert fails(cluster) == ""
        cluster.wait(40).delete("worker-0").run_timers()
    assert fails(cluster) == "SameFailure"


def test_who_only_complains_of_a_lost_peer_is_not_the_first_to_fail() -> None:
    """Kubernetes tells seconds only, and a survivor needs less than one to fail."""
    cluster = running().wait(40)
    unavailable = "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed"
    cluster.exit("worker-0", message=traceback(unavailable)).exit("worker-1", message=traceback(BOOM)).settle()
    assert cluster.status.last_restart is not None and cluster.status.last_restart.pod == "mnist-worker-1"


def test_a_worker_that_is_replaced_alone_is_no_exception() -> None:
    cluster = running(a_job().set("restartPolicy.scope", "Pod"))
    assert [fails(cluster), fails(cluster), fails(cluster)] == ["", "", "SameFailure"]


def test_a_suspension_ends_the_row() -> None:
    """The program may have been corrected in it."""
    cluster = running()
    assert [fails(cluster), fails(cluster)] == ["", ""]
    resume(suspend(cluster).run()).run()
    assert [fails(cluster), fails(cluster), fails(cluster)] == ["", "", "SameFailure"]


# --- with launchers


def test_the_launchers_say_that_it_was_the_end() -> None:
    cluster = running(a_launched_job())
    assert [raises(cluster), raises(cluster), raises(cluster)] == ["", "", "SameFailure"]
    assert cluster.status.message is not None and cluster.status.message.startswith(
        "worker-1: ValueError: boom; the same"
    )
    assert cluster.status.failure is not None and cluster.status.failure.exception == BOOM


def test_the_restart_in_place_is_told_with_its_exception() -> None:
    cluster = running(a_launched_job()).wait(40)
    cluster.launchers.crash("worker-1", 1, exception=BOOM)
    cluster.launcher_report = cluster.launchers.last_report()
    status = cluster.settle().status
    assert (status.phase, status.message) == ("Restarting", "worker-1: ValueError: boom; restarting in place")
    status = cluster.run().status
    assert status.message is not None and status.message.startswith("worker-1: ValueError: boom; ")
    assert status.last_restart is not None and status.last_restart.exception == BOOM
    assert status.failure is not None and status.failure.exception == BOOM
    warning = [note.message for note in cluster.events if note.type == "Warning"][-1]
    assert warning.startswith("worker-1: ValueError: boom; ")


def test_new_launchers_of_all_know_how_often_it_was() -> None:
    cluster = running(a_launched_job().workers(1).set(LIMIT, 3))
    for _ in range(2):
        cluster.wait(40).launchers.crash("worker-0", 1, exception=BOOM)
        cluster.run_timers()
        cluster.delete("worker-0").run_timers()
    cluster.wait(40).launchers.crash("worker-0", 1, exception=BOOM)
    assert cluster.run_timers().status.reason == "SameFailure"


def test_the_limit_reaches_running_launchers() -> None:
    cluster = running(a_launched_job().set(LIMIT, 0))
    assert [raises(cluster) for _ in range(4)] == [""] * 4
    cluster.api.edit(LIMIT, 3)
    assert raises(cluster.run()) == "SameFailure"


def test_launchers_that_do_not_know_of_it_leave_the_status_as_it_is() -> None:
    cluster = running(a_launched_job())
    assert raises(cluster) == ""
    assert cluster.status.restarts.same_failure is not None
    told = cluster.launchers.status()
    told["ledger"] = {name: value for name, value in told["ledger"].items() if name != "sameFailure"}
    assert cluster.launcher_report is not None
    cluster.launcher_report = LauncherReport(cluster.launcher_report.pod_uid, parse_report(msgspec.json.encode(told)))
    cluster.settle()
    assert not cluster.step()


# --- progress


@pytest.mark.parametrize("new_chief", [False, True])
def test_the_progress_never_tells_less_than_before(new_chief: bool) -> None:
    """What restores its last state knows its steps before it begins an epoch."""
    cluster = running(a_launched_job())
    cluster.launchers.advance(3, 210, loss=0.5)
    cluster.run()
    if new_chief:
        cluster.delete("worker-0").run()
    else:
        cluster.launchers.crash("worker-1", 1, exception=BOOM)
        cluster.run()
    cluster.wait(60).launchers.advance(3, 140)
    assert cluster.launchers.progress is not None
    cluster.launchers.progress["epoch"] = None
    progress = cluster.run().status.progress
    assert progress is not None and progress.step == 140
    assert (progress.display, progress.epoch, progress.epochs, progress.metrics) == ("epoch 3/10", 3, 10, {"loss": 0.5})
    cluster.wait(60).launchers.advance(2, 150)
    progress = cluster.run().status.progress
    assert progress is not None and progress.display == "epoch 2/10", "what the program says is what counts"


def test_the_metrics_of_another_fit_are_not_shown() -> None:
    cluster = running(a_launched_job())
    for fit, metrics, shown in (
        (1, {"loss": 0.5}, 0.5),
        (1, {}, 0.5),
        (2, {}, None),
        (2, {"loss": 0.7}, 0.7),
        (1, {}, None),
    ):
        cluster.wait(60).launchers.advance(3, 140)
        assert cluster.launchers.progress is not None
        cluster.launchers.progress |= {"fit": fit, "metrics": metrics}
        progress = cluster.run().status.progress
        assert progress is not None and (progress.fit, progress.metrics.get("loss")) == (fit, shown)

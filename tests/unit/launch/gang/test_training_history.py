"""The history that the chief's launcher keeps of its gang: which reports it takes, and which restarts it marks."""

from __future__ import annotations

from typing import Any

from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.history import Series
from tftraining.launch.http.pages import gang_summary


def report(step: int, *, first: int = 0, loss: float = 0.5, **fields: Any) -> dict[str, Any]:
    """The progress of a program that has reported the loss at `step`."""
    at = {"metrics_step": step, "metrics_epoch": step // 100 + 1, "metrics_time": 1e9 + step}
    progress = {"step": step + 7, "epoch": 9, "first_step": first, "first_step_time": 1.0, "updated": 1e9 + step}
    return {**progress, **at, "metrics": {"loss": loss}, **fields}


def started(*members: str, **policy: Any) -> Coordinator:
    chief = make_coordinator(*members, **policy)
    for name in chief.membership.gang:
        assert chief.handle_hello(hello(name), 0.0) == ""
    assert chief.rounds.running
    return chief


def beat(chief: Coordinator, name: str, now: float, progress: dict[str, Any]) -> None:
    number = chief.membership.get_peer(name).round
    chief.handle_frame(name, heartbeat(number, now, **progress), now)


def restart(chief: Coordinator, now: float) -> None:
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, {"type": "ready", "round": peer.round}, now)
    chief.tick(now)
    assert chief.rounds.running


def curve(chief: Coordinator) -> list[tuple[int | None, float]]:
    shown = gang_summary(chief)["history"] or {"steps": [], "metrics": {"loss": []}}
    return list(zip(shown["steps"], shown["metrics"]["loss"], strict=True))


def test_a_report_counts_once_and_with_the_step_at_which_it_was_made() -> None:
    chief = started()
    assert gang_summary(chief)["history"] is None
    for now, step in ((1.0, 100), (1.5, 100), (2.0, 200)):
        beat(chief, "worker-0", now, report(step, loss=1 / step))
    assert curve(chief) == [(100, 0.01), (200, 0.005)]
    assert gang_summary(chief)["history"]["epochs"] == [2, 3]


def test_the_same_value_twice_is_two_points() -> None:
    chief = started()
    beat(chief, "worker-0", 1.0, report(100))
    beat(chief, "worker-0", 2.0, report(200))
    assert curve(chief) == [(100, 0.5), (200, 0.5)]


def test_only_one_member_is_asked_and_another_one_if_the_chief_reports_nothing() -> None:
    chief = started("worker-0", "worker-1")
    beat(chief, "worker-1", 1.0, report(100, loss=0.1))
    chief.tick(1.1)
    assert curve(chief) == [(100, 0.1)]
    beat(chief, "worker-0", 2.0, report(150, loss=0.2))
    beat(chief, "worker-1", 2.0, report(150, loss=0.3))
    chief.tick(2.1)
    assert curve(chief) == [(100, 0.1), (150, 0.2)]


def test_the_metrics_of_the_exit_are_the_last_ones() -> None:
    chief = started("worker-0")
    beat(chief, "worker-0", 1.0, report(100))
    chief.handle_frame("worker-0", exited(1, 0, **report(200)), 2.0)
    assert chief.verdict.result is not None
    assert [step for step, _ in curve(chief)] == [100, 200]


def test_a_restart_is_marked_and_the_repeated_steps_replace_the_old_ones() -> None:
    chief = started()
    for now, step in ((1.0, 100), (2.0, 200), (3.0, 300)):
        beat(chief, "worker-0", now, report(step, loss=1.0))
    chief.handle_frame("worker-1", exited(1, None, 9), 4.0)
    assert gang_summary(chief)["history"]["restarts"] == []
    chief.handle_frame("worker-0", exited(1, None, 15, **{**report(300), "step": 309}), 4.5)
    restart(chief, 5.0)
    mark = {"time": "1970-01-01T00:16:40.000Z", "step": 309, "reason": "Killed"}
    assert gang_summary(chief)["history"]["restarts"] == [mark]
    assert len(curve(chief)) == 3, "the curve stays until the program reports again"
    beat(chief, "worker-0", 6.0, report(250, first=150, loss=2.0))
    assert curve(chief) == [(100, 1.0), (250, 2.0)]


def test_the_failure_that_ends_the_job_is_no_restart() -> None:
    chief = started(max_restarts=0)
    beat(chief, "worker-0", 1.0, report(100))
    chief.handle_frame("worker-1", exited(1, 1), 2.0)
    assert chief.verdict.result is not None
    assert gang_summary(chief)["history"]["restarts"] == []


def test_a_series_that_is_read_late_comes_before_the_present_one() -> None:
    earlier = Series()
    for step in (50, 100, 150, 200):
        earlier.record(step, 1, 1e8 + step, {"loss": 3.0})
    chief = started()
    beat(chief, "worker-0", 1.0, report(180, first=120, loss=1.0))
    assert curve(chief) == [(180, 1.0)]
    chief.history.continue_after(earlier)
    beat(chief, "worker-0", 2.0, report(190, first=120, loss=1.0))
    assert curve(chief) == [(50, 3.0), (100, 3.0), (180, 1.0), (190, 1.0)]

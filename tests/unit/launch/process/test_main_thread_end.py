"""When a program whose main thread has ended is to end, and when that is told."""

from __future__ import annotations

import sys

import pytest

from tests.support.simulated_gang.members import start_gang
from tests.support.simulated_gang.simulation import heartbeat
from tftraining.launch.gang.stall import find_stalled
from tftraining.launch.http import pages
from tftraining.launch.in_user_process import main_thread
from tftraining.launch.process.main_thread_end import MainThreadEnd
from tftraining.launch.progress import Snapshot


def test_a_failed_program_has_its_grace_period_after_its_last_step() -> None:
    end = MainThreadEnd(5.0)
    assert not end.is_over(Snapshot(step=3), 0.0)
    assert not end.is_over(Snapshot(step=3, main_exit=1), 1.0)
    assert not end.is_over(Snapshot(step=4, main_exit=1), 5.9), "another thread trains"
    assert not end.is_over(Snapshot(step=4, main_exit=1), 10.8)
    assert end.is_over(Snapshot(step=4, main_exit=1), 10.9)


def test_a_finished_program_is_only_told() -> None:
    end = MainThreadEnd(5.0)
    assert not end.is_over(Snapshot(main_exit=0), 1.0) and not end.lingers
    assert not end.is_over(Snapshot(main_exit=0), 31.0) and end.lingers


def test_who_lingers_is_named_and_not_watched() -> None:
    chief = start_gang()
    stepped = {"first_step_time": 1.0, "last_step_time": 1.0, "step": 7, "updated": 1.0}
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, {**heartbeat(1, 2.0, **stepped, main_exit=0), "lingers": name == "worker-1"}, 2.0)
    chief.tick(2.0)
    status = pages.gang_status(chief, 2.0)
    assert status["lingering"] == ["worker-1"]
    assert status["message"] == "all members training; a thread of the finished program still runs in worker-1"
    assert find_stalled([peer.watched_program() for peer in chief.membership.trainers], 1.0, 99.0) == []


def test_an_exception_that_an_extension_has_printed_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise ValueError
    except ValueError as error:
        monkeypatch.setattr(sys, "last_traceback", error.__traceback__, raising=False)
    assert main_thread._code() == 0, "its first frame is a function of the program's"
    for code, number in ((None, 0), (0, 0), (3, 3), ("words", 1)):
        monkeypatch.setattr(main_thread, "_exit_code", code)
        assert main_thread._code() == number

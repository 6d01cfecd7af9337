"""The history over real restarts: a killed program and a chief's pod made anew leave one unbroken curve."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang
from tftraining.launch.history import FILE

STEPS = 300


def steps_of(gang: LocalGang) -> list[int]:
    """The steps of the history in the chief's /status."""
    found: list[int] = (gang.status().get("history") or {}).get("steps", [])
    return found


@pytest.mark.parametrize("way", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow_fault)])
def test_one_curve_over_a_killed_program_and_a_new_launcher_of_the_chief(tmp_path: Path, way: int) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "12", "--steps", str(STEPS // 12), "--metrics") as gang:
        gang.start()
        gang.wait_for(lambda: max(steps_of(gang), default=0) > STEPS / 6)
        gang.kill_program("worker-1")
        status = gang.wait_for_phase("Training", 2)
        resumed = status["lastRestart"]["resumedFromStep"]
        first = gang.wait_for(lambda: steps_of(gang))[0]
        gang.wait_for(lambda: max(steps_of(gang), default=0) > resumed + STEPS / 4)
        if way == signal.SIGKILL:
            gang.wait_for((gang.directory / FILE).exists)  # it is written every ten seconds
        gang.kill("worker-0", way)
        gang.launchers["worker-0"].wait(20)
        gang.start("worker-0")
        gang.wait_for_phase("Training", 3)
        gang.wait_for(lambda: steps_of(gang)[:1] == [first])
        assert set(gang.wait().values()) == {0}
        check_curve(json.loads((gang.directory / FILE).read_text()), first)


def check_curve(history: dict[str, Any], first: int) -> None:
    steps, rounds = history["steps"], history["metrics"]["round"]
    assert (steps[0], steps[-1]) == (first, STEPS)
    assert steps == sorted(set(steps))
    assert rounds == sorted(rounds) and (rounds[0], rounds[-1]) == (1, 3), "steps trained again have their last values"
    assert history["metrics"]["loss"] == [pytest.approx(1 / step, rel=1e-5) for step in steps]
    assert history["epochs"] == [(step - 1) // (STEPS // 12) + 1 for step in steps]
    assert history["restarts"][0]["reason"] == "Killed"
    assert history["restarts"][-1]["reason"] in ("MemberLost", "Terminated")


def test_storage_that_cannot_be_written_does_not_stop_the_training(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 1}, "--epochs", "2", "--steps", "10", "--metrics") as gang:
        (gang.directory / FILE).mkdir()
        gang.start()
        assert gang.wait() == {"worker-0": 0}
        assert gang.log("worker-0").count("cannot write the history to") == 1

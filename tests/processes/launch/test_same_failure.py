"""The same exception again and again ends the job, across replaced launchers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.same_failure import key_of

# Worker 1 raises in the second epoch, after a step of each restart; the chief neither waits for it nor finishes.
RAISES = ("--epochs", "1000", "--steps", "4", "--raise-at", "7")
BOOM = "ValueError: boom"


def known(count: int, place: str = "2/6") -> dict[str, Any]:
    """A ledger after so many failures, the first of them two minutes ago."""
    row = {"key": key_of(Exit(1, None, exception=BOOM), place), "count": count, "since": int(time.time()) - 120}
    return {"inPlace": count, "processFailures": count, "incidents": count, "sameFailure": row}


@pytest.mark.parametrize("heir", ["worker-0", "worker-1"])
def test_the_third_same_failure_in_a_row_ends_the_job(tmp_path: Path, heir: str) -> None:
    with LocalGang(tmp_path, {"worker": 2}, *RAISES, sameFailureLimit=3) as gang:
        gang.start(heir, ledger=known(2))
        gang.start(*[name for name in gang.names if name != heir])
        assert gang.wait() == {"worker-0": 1, "worker-1": 1}
        for name in gang.names:
            found = gang.message(name)
            assert (found["verdict"], found["reason"], found["member"]) == ("Failed", "SameFailure", "worker-1")
            assert found["message"].startswith("worker-1: ValueError: boom; the same failure 3 times in a row")
            assert found["exception"] == BOOM
            assert found["ledger"]["sameFailure"]["count"] == 2, "what ends the job is no restart"


def test_members_that_fail_in_turn_by_the_same_exception_end_the_job(tmp_path: Path) -> None:
    """All members raise; the one that is first is the member to blame, and that is another one each time."""
    arguments = ("--epochs", "1", "--steps", "100000", "--raise-at", "7", "--in-turn")
    with LocalGang(tmp_path, {"worker": 2}, *arguments, sameFailureLimit=3) as gang:
        gang.start(ledger=known(1, "1/6"))
        assert gang.wait() == {"worker-0": 1, "worker-1": 1}
        found = gang.message("worker-1")
        assert (found["reason"], found["member"], found["exception"]) == ("SameFailure", "worker-0", BOOM)


def test_the_second_same_failure_restarts_and_is_reported(tmp_path: Path) -> None:
    slowly = ("--restores", "1", "--step-seconds", "0.3")
    with LocalGang(tmp_path, {"worker": 2}, *RAISES, *slowly, sameFailureLimit=3) as gang:
        gang.start(ledger=known(1))
        gang.wait_for(lambda: (gang.status().get("progress") or {}).get("epoch"))
        seen = [gang.wait_for(gang.status)]
        while (seen[-1]["phase"], seen[-1]["round"]) != ("Training", 2):
            seen.append(gang.wait_for(gang.status))
        assert seen[-1]["ledger"]["sameFailure"]["count"] == 2
        assert {status["progress"]["epochs"] for status in seen} == {1000}
        assert None not in {status["progress"]["epoch"] for status in seen}, "fit tells its steps before its epoch"
        after = [status for status in seen if status["phase"] == "Restarting" or status["round"] == 2]
        for status in after:
            assert status["message"].startswith("worker-1: ValueError: boom; "), status["message"]
            assert (status["lastRestart"]["exception"], status["failure"]["exception"]) == (BOOM, BOOM)


@pytest.mark.slow_fault
def test_same_failures_are_counted_for_a_minute_across_chief_launchers(tmp_path: Path) -> None:
    (tmp_path / "orders").write_text(json.dumps({"workers": 2, "sameFailureLimit": 0}))
    orders = str(tmp_path / "orders")
    with LocalGang(tmp_path, {"worker": 2}, *RAISES, sameFailureLimit=3, maxRestarts=100, orders=orders) as gang:
        began = time.monotonic()
        gang.start()
        gang.wait_for(lambda: gang.status().get("ledger", {}).get("sameFailure", {}).get("count") == 2)
        gang.kill("worker-0")
        gang.start("worker-0")
        gang.wait_for(lambda: gang.status().get("ledger", {}).get("sameFailure", {}).get("count", 0) >= 4, 60)
        (tmp_path / "orders").write_text(json.dumps({"workers": 2, "sameFailureLimit": 3}))
        assert gang.wait(150) == {"worker-0": 1, "worker-1": 1}
        assert time.monotonic() - began > 60
        found = gang.message("worker-1")
        assert (found["reason"], found["member"]) == ("SameFailure", "worker-1")

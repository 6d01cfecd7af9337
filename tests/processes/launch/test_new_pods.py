"""A launcher leaves its pod when its program does not start there any more: real launchers and processes."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.launchers.copying_gang import PROGRAM, CopyingGang

ROOT = Path(__file__).parents[3]
# A program that finds what an earlier start has left in the container does not start again.
NOT_REPEATABLE = """
import os, runpy, sys
if os.environ["STANDIN"] == sys.argv[1]:
    os.mkdir(sys.argv[2])
del sys.argv[1:3]
sys.argv[0] = "{program}"
runpy.run_path("{program}", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("name", "workers", "source"), [("worker-1", 2, "Peer"), ("worker-0", 2, "Storage"), ("worker-0", 1, "Storage")]
)
def test_a_container_that_a_start_has_spoilt_costs_its_member_a_new_pod_and_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, workers: int, source: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    script, left = tmp_path / "script.py", tmp_path / "left"
    script.write_text(NOT_REPEATABLE.format(program=PROGRAM))
    with CopyingGang(tmp_path, workers=workers) as gang:
        gang.command = [sys.executable, str(script), name, str(left), *gang.command[2:]]
        gang.start()
        gang.wait_for_step(100)
        gang.kill_program(name)
        assert gang.launchers[name].wait(60) == 143
        reached, found = gang.steps()[-1], gang.message(name)
        assert (found["verdict"], found["reason"], found["member"]) == ("", "UncleanContainer", name)
        words = f"{name} failed 2 times in a row before its first step, in a pod where it had run longer"
        assert found["message"] == words
        assert found["ledger"]["processFailures"] == 3, "the kill and the two failed starts"
        assert all(gang.launchers[each].poll() is None for each in gang.names if each != name), "the others wait"
        left.rmdir()
        shutil.rmtree(gang.store(name))
        gang.start(name, ledger=found["ledger"])
        gang.finish()
        step, last = gang.resumptions(name)[-1]
        assert (last, step >= reached - 40) == (source, True), "at the newest copy"


def trains(gang: CopyingGang, number: int) -> bool:
    return gang.status().items() >= {"round": number, "phase": "Training"}.items()


@pytest.mark.parametrize("name", ["worker-1", pytest.param("worker-0", marks=pytest.mark.slow_fault)])
def test_a_member_that_is_killed_again_and_again_leaves_its_pod_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with CopyingGang(tmp_path, sameMemberLimit=3) as gang:
        gang.start()
        for number in (1, 2, 3):
            gang.wait_for(partial(trains, gang, number))
            gang.kill_program(name)
        assert gang.launchers[name].wait(60) == 143
        found = gang.message(name)
        assert (found["verdict"], found["reason"], found["member"]) == ("", "NodeSuspected", name)
        assert found["message"] == f"{name} failed 3 times in a row, and no other member"
        assert (found["ledger"]["processFailures"], "sameMember" in found["ledger"]) == (3, False)
        assert all(gang.launchers[each].poll() is None for each in gang.names if each != name), "the others wait"
        shutil.rmtree(gang.store(name))
        gang.start(name, ledger=found["ledger"])
        gang.finish()

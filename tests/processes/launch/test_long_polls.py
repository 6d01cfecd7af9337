"""Long polls of a real launcher's /status."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.support.launchers.gang import LocalGang

SECONDS = 30


@pytest.fixture
def waiting() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def change(gang: LocalGang, name: str, known: str) -> dict[str, Any]:
    """The next status of the launcher, and when it came, as `at`."""
    address = f"http://127.0.0.1:{gang.ports[name]}/status?changedSince={known}&timeoutSeconds={SECONDS}"
    with urlopen(address, timeout=2 * SECONDS) as answer:
        return {**json.load(answer), "at": time.monotonic()}


def test_a_restart_answers_a_long_poll_and_steps_do_not(tmp_path: Path, waiting: ThreadPoolExecutor) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000", "--steps", "2") as gang:
        gang.start()
        told = gang.wait_for_phase("Training")
        for number in (1, 2):
            answer: Future[dict[str, Any]] = waiting.submit(change, gang, "worker-0", told["revision"])
            time.sleep(1)
            assert not answer.done(), "it makes fifty steps a second"
            gang.kill_program("worker-1")
            killed = time.monotonic()
            told = answer.result()
            assert told["at"] - killed < SECONDS - 5, "long before it would have ended by itself"
            while told["phase"] != "Training":
                told = change(gang, "worker-0", told["revision"])
            assert (told["ledger"]["inPlace"], told["lastRestart"]["member"]) == (number, "worker-1")


def test_members_false_leaves_out_only_the_members(tmp_path: Path) -> None:
    """Those of a gang of thousands are hundreds of kilobytes, which the operator has no use for."""
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000") as gang:
        gang.start()
        whole = gang.wait_for_phase("Training")
        for query in ("members=false", f"changedSince={whole['revision']}&timeoutSeconds=0&members=false"):
            short = json.loads(gang.get("worker-0", f"/status?{query}")[1])
            assert whole.keys() - short.keys() == {"members"}
            assert (short["phase"], short["round"], short["revision"]) == ("Training", 1, whole["revision"])


def test_the_end_of_the_job_answers_a_long_poll_without_a_log_line(tmp_path: Path, waiting: ThreadPoolExecutor) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "40") as gang:
        gang.start()
        told = gang.wait_for_phase("Training")
        other = gang.status("worker-1")
        answers = {
            name: waiting.submit(change, gang, name, known["revision"])
            for name, known in {"worker-0": told, "worker-1": other}.items()
        }
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        # On a busy machine the change just before the end comes first: a member that has finished.
        chief, member = answers["worker-0"].result(), answers["worker-1"].result()
        assert chief["phase"] == "Succeeded" or chief["finished"], chief
        assert member["state"] != "running" and member["revision"] != other["revision"], member
        assert "Traceback" not in gang.log("worker-0") + gang.log("worker-1")

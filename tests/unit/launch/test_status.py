"""What a launcher says of itself and of its gang: /status, /readyz and /metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.simulated_gang.members import started
from tests.support.simulated_gang.simulation import beat, coordinator
from tftraining.launch.config.settings import Gang, Settings
from tftraining.launch.http import pages
from tftraining.launch.progress import Snapshot
from tftraining.launch.rendezvous.client import Member

NO_STEP, STEP = Snapshot(), Snapshot(step=3, first_step=0, first_step_time=1.0, last_step_time=2.0, updated=2.0)


def member(state: str, progress: Snapshot = NO_STEP) -> Member:
    """What is asked of a member, in this state."""
    program = SimpleNamespace(snapshot=lambda: progress, pid=7, mode="warm", gpus=None)
    return cast(Member, SimpleNamespace(state=state, started=0.0, program=program, round=2, incarnation="a/1"))


def settings(me: str = "worker-0") -> Settings:
    gang = Gang(("worker-0", "worker-1"), me)
    return cast(
        Settings,
        SimpleNamespace(gang=gang, job={"name": "digits", "namespace": "ml"}, attempt=1, is_chief=me == "worker-0"),
    )


@pytest.mark.parametrize(
    ("state", "progress", "phase"),
    [("running", STEP, "Training"), ("running", NO_STEP, "Starting"), ("ready", STEP, "Waiting")],
)
def test_the_phase_of_a_member(state: str, progress: Snapshot, phase: str) -> None:
    assert pages.of_member(member(state, progress), settings())["phase"] == phase


@pytest.mark.parametrize(
    ("me", "state", "progress", "why"),
    [
        ("worker-0", "done", NO_STEP, ""),
        ("worker-0", "ready", NO_STEP, "waiting for the gang to start"),
        ("worker-0", "running", NO_STEP, "the program has not made a step yet"),
        ("worker-0", "running", STEP, ""),
        ("evaluator-0", "running", NO_STEP, ""),
    ],
)
def test_why_a_member_is_not_ready(me: str, state: str, progress: Snapshot, why: str) -> None:
    assert pages.why_not_training(member(state, progress), settings(me), 5.0) == why


def test_what_the_chief_says_of_each_member() -> None:
    chief = started()
    chief.heard("worker-1", beat(1, 2.0, step=5), 2.0)
    told = pages.of_gang(chief, 3.54)["members"]["worker-1"]
    assert told == {"state": "running", "round": 1, "mode": "warm", "pid": 7, "step": 5, "silentSeconds": 1.5}


def test_what_the_chief_says_of_a_member_that_has_not_come() -> None:
    told = pages.of_gang(coordinator(), 3.0)["members"]["worker-1"]
    assert told == {"state": "absent", "round": 0, "mode": "", "pid": None, "step": None, "silentSeconds": None}


def test_metrics_tell_of_the_phase_and_of_the_counts() -> None:
    chief = started()
    told: dict[str, Any] = {**pages.of_gang(chief, 1.0), "phase": "Training"}
    labels = '{job_name="digits",job_namespace="ml",member="worker-0"}'
    lines = pages.metrics(settings(), told).splitlines()
    assert f"tftraining_training{labels} 1" in lines
    assert f"tftraining_restarts_in_place{labels} 0" in lines
    assert f"tftraining_training{labels} 0" in pages.metrics(settings(), {**told, "phase": "Waiting"}).splitlines()

"""The content of /status, /readyz and /metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.simulated_gang.members import start_gang
from tests.support.simulated_gang.simulation import heartbeat, make_coordinator
from tftraining.launch.config.settings import Settings
from tftraining.launch.config.settings_and_defaults import Gang
from tftraining.launch.http import metrics, pages
from tftraining.launch.progress import Snapshot
from tftraining.launch.rendezvous.program_control import ProgramControl

NO_STEP, STEP = Snapshot(), Snapshot(step=3, first_step=0, first_step_time=1.0, last_step_time=2.0, updated=2.0)


def member(state: str, progress: Snapshot = NO_STEP) -> ProgramControl:
    """What is asked of a member, in this state."""
    program = SimpleNamespace(snapshot=lambda: progress, pid=7, mode="warm", gpu_count=None)
    return cast(
        ProgramControl, SimpleNamespace(state=state, started_at=0.0, program=program, round=2, incarnation="a/1")
    )


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
    assert pages.member_status(member(state, progress), settings())["phase"] == phase


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
def test_the_reason_why_a_member_is_not_ready(me: str, state: str, progress: Snapshot, why: str) -> None:
    assert pages.why_not_training(member(state, progress), settings(me), 5.0) == why


def test_the_status_of_each_member() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", heartbeat(1, 2.0, step=5), 2.0)
    told = pages.gang_status(chief, 3.54)["members"]["worker-1"]
    assert told == {"state": "running", "round": 1, "mode": "warm", "pid": 7, "step": 5, "silentSeconds": 1.5}


def test_the_status_of_a_member_that_never_joined() -> None:
    told = pages.gang_status(make_coordinator(), 3.0)["members"]["worker-1"]
    assert told == {"state": "absent", "round": 0, "mode": "", "pid": None, "step": None, "silentSeconds": None}


def test_metrics_contain_the_phase_and_the_counts() -> None:
    chief = start_gang()
    told: dict[str, Any] = {**pages.gang_status(chief, 1.0), "phase": "Training"}
    labels = '{job_name="digits",job_namespace="ml",member="worker-0"}'
    lines = metrics.metrics(settings(), told).splitlines()
    assert f"tftraining_training{labels} 1" in lines
    assert f"tftraining_restarts_in_place{labels} 0" in lines
    known = {each: each for each in ("epoch", "step", "stepsPerSecond")}
    shown = metrics.metrics(settings(), {**told, "progress": known}).splitlines()
    assert [
        f"tftraining_progress_{name}{labels} {each}" in shown
        for name, each in (("epoch", "epoch"), ("step", "step"), ("steps_per_second", "stepsPerSecond"))
    ] == [True] * 3
    assert all(metrics.HELP.values())
    assert f"tftraining_training{labels} 0" in metrics.metrics(settings(), {**told, "phase": "Waiting"}).splitlines()

"""The chief's status names the members in which TensorFlow sees none of the requested GPUs."""

from __future__ import annotations

from typing import Any

from tests.support.simulated_gang.members import start_gang
from tests.support.simulated_gang.simulation import exited, heartbeat, hello
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.http import pages


def told(chief: Coordinator) -> Any:
    return pages.gang_status(chief, 1.0)["noGpu"]


def test_a_member_without_gpus_is_named_until_it_reports_some() -> None:
    chief = start_gang()
    chief.handle_frame("worker-0", heartbeat(1, 1.0), 1.0)  # an older launcher says nothing of it
    chief.handle_frame("worker-1", {**heartbeat(1, 1.0), "noGpu": False}, 1.0)
    assert told(chief) == []
    chief.handle_frame("worker-1", {**heartbeat(1, 1.0), "noGpu": True}, 1.0)
    assert told(chief) == ["worker-1"]
    chief.handle_frame("worker-0", exited(1, 1), 2.0)
    for name in ("worker-0", "worker-1"):
        chief.handle_frame(name, {"type": "ready", "round": 1}, 2.0)
    chief.tick(2.5)
    assert chief.rounds.number == 2
    assert told(chief) == ["worker-1"], "the next program has yet to look"
    chief.handle_frame("worker-1", {**heartbeat(2, 3.0), "noGpu": False}, 3.0)
    assert told(chief) == []


def test_a_lost_member_is_not_named() -> None:
    chief = start_gang()
    chief.handle_frame("worker-1", {**heartbeat(1, 1.0), "noGpu": True}, 1.0)
    chief.handle_disconnect("worker-1", 2.0)
    assert told(chief) == []
    assert chief.handle_hello(hello("worker-1", 3.0, incarnation="new"), 3.0) == ""
    assert told(chief) == [], "another pod"


def test_a_change_of_no_gpu_answers_long_polls() -> None:
    chief = start_gang()
    before = pages._gang_fields(chief)
    chief.handle_frame("worker-1", {**heartbeat(1, 1.0), "noGpu": True}, 1.0)
    assert pages._gang_fields(chief) != before

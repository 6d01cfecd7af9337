"""Frames of members for the coordinator's tests, one at a time."""

from __future__ import annotations

from typing import Any

from tests.support.simulated_gang.simulation import heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator


def take_sent(chief: Coordinator) -> list[tuple[str, str]]:
    """Empty the outbox; return the receiver and type of each frame except echoes."""
    return [(name, frame["type"]) for name, frame in chief.outbox.take_all() if frame["type"] != "beat"]


def start_gang(*members: str, now: float = 0.0, **policy: Any) -> Coordinator:
    """A gang in its first round."""
    chief = make_coordinator(*members, **policy)
    for name in chief.membership.gang:
        assert chief.handle_hello(hello(name, now), now) == ""
    assert chief.rounds.running
    take_sent(chief)
    return chief


def send_heartbeats(chief: Coordinator, now: float) -> None:
    """Send a heartbeat of every member."""
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, heartbeat(peer.round, now), now)


def send_ready(chief: Coordinator, now: float) -> None:
    """Send `ready` for every member."""
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, {"type": "ready", "round": peer.round}, now)


def disconnect_cleanly(chief: Coordinator, name: str, now: float) -> None:
    """Send a member's `bye`, then disconnect the member."""
    chief.handle_frame(name, {"type": "bye"}, now)
    chief.handle_disconnect(name, now)

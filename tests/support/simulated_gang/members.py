"""Members of a gang as the coordinator's tests speak for them, one frame at a time."""

from __future__ import annotations

from typing import Any

from tests.support.simulated_gang.simulation import heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator


def take_sent(chief: Coordinator) -> list[tuple[str, str]]:
    """To whom what kinds of frames go, beats apart; the outbox is empty then."""
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
    """All members beat."""
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, heartbeat(peer.round, now), now)


def send_ready(chief: Coordinator, now: float) -> None:
    """All members say that they are ready."""
    for name, peer in chief.membership.gang.items():
        chief.handle_frame(name, {"type": "ready", "round": peer.round}, now)


def disconnect_cleanly(chief: Coordinator, name: str, now: float) -> None:
    """A member says that nothing of it runs, and is gone."""
    chief.handle_frame(name, {"type": "bye"}, now)
    chief.handle_disconnect(name, now)

"""Members of a gang as the coordinator's tests speak for them, one frame at a time."""

from __future__ import annotations

from typing import Any

from tests.support.simulated_gang.simulation import beat, coordinator, hello
from tftraining.launch.gang.coordinator import Coordinator


def sent(chief: Coordinator) -> list[tuple[str, str]]:
    """To whom what kinds of frames go, beats apart; the outbox is empty then."""
    return [(name, frame["type"]) for name, frame in chief.outbox.take() if frame["type"] != "beat"]


def started(*members: str, now: float = 0.0, **policy: Any) -> Coordinator:
    """A gang in its first round."""
    chief = coordinator(*members, **policy)
    for name in chief.roster.gang:
        assert chief.hello(hello(name, now), now) == ""
    assert chief.rounds.running
    sent(chief)
    return chief


def alive(chief: Coordinator, now: float) -> None:
    """All members beat."""
    for name, peer in chief.roster.gang.items():
        chief.heard(name, beat(peer.round, now), now)


def restart(chief: Coordinator, now: float) -> None:
    """All members say that they are ready."""
    for name, peer in chief.roster.gang.items():
        chief.heard(name, {"type": "ready", "round": peer.round}, now)


def leave(chief: Coordinator, name: str, now: float) -> None:
    """A member says that nothing of it runs, and is gone."""
    chief.heard(name, {"type": "bye"}, now)
    chief.lost(name, now)

"""Gangs with backups in memory for the coordinator's tests: frames with copies, one at a time."""

from __future__ import annotations

from typing import Any

from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator

SIGNATURE = "ValueError: the loss is not finite"


def report(
    step: int | None = None, resumed: int | None = None, source: str = "Memory", **fields: Any
) -> dict[str, Any]:
    """A program's report on its copies, as a field of a frame."""
    made = {} if step is None else {"step": step, "time": 1000.0 + step, "bytes": 4_000_000, "seconds": 0.002}
    restored = None if resumed is None else {"from": source, "step": resumed}
    return {"on": True, "reason": "", **made, "resumed": restored, **fields}


def start_gang_with_copies(*members: str, held: list[list[int]] | None = None, **policy: Any) -> Coordinator:
    """A gang in its first round, all of whose members hold these copies; an empty outbox."""
    chief = make_coordinator(*members, **policy)
    for name in chief.membership.gang:
        assert chief.handle_hello(hello(name, copiesHeld=held or [], copyPort=7, copyHost=name), 0.0) == ""
    assert chief.rounds.running
    chief.outbox.take_all()
    return chief


def make_steps(chief: Coordinator, now: float, step: int, backup: dict[str, Any] | None = None, **fields: Any) -> None:
    """A heartbeat of every member of the round, whose program has made its first step long ago."""
    progress = {"step": step, "first_step": 0, "first_step_time": now - 5.0, "updated": 1000.0, **fields}
    for peer in list(chief.membership.members):
        chief.handle_frame(peer.name, {**heartbeat(peer.round, now, **progress), "backup": backup}, now)


def fail(chief: Coordinator, name: str, now: float, exception: str = SIGNATURE, **fields: Any) -> None:
    """A program ends by an exception."""
    frame = exited(chief.membership.get_peer(name).round, 1, lines=["Traceback", exception], **fields)
    frame["exit"]["exception"] = exception
    chief.handle_frame(name, frame, now)


def restart(chief: Coordinator, now: float, *copies: list[int]) -> dict[str, Any]:
    """All members of the last round are ready and hold these copies; the orders of the next round on copies."""
    at_work = [peer for peer in chief.membership.members if peer.state in ("running", "done")]
    for peer in at_work:
        chief.handle_frame(peer.name, {"type": "ready", "round": peer.round, "copiesHeld": list(copies)}, now)
    chief.tick(now)
    return sent_starts(chief)


def sent_starts(chief: Coordinator) -> dict[str, Any]:
    """The part on copies of each start frame that has been sent; empties the outbox."""
    frames = chief.outbox.take_all()
    return {name: frame["memoryBackup"] for name, frame in frames if frame["type"] == "start"}


def restored(orders: dict[str, Any]) -> list[int] | None:
    """The copy that all members have to restore."""
    copies = {str(order["restore"]): order["restore"] for order in orders.values()}
    assert len(copies) == 1, orders
    found: list[int] | None = next(iter(copies.values()))
    return found

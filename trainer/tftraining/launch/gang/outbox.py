"""The frames for the members, kept in order until the rendezvous takes and sends them. Pure."""

from __future__ import annotations

from typing import Any

from tftraining.launch.failure.incident import Incident
from tftraining.launch.gang.decisions import Judge
from tftraining.launch.gang.membership import Roster
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.quorum import ASKED_FOR

CLOSE = "close"  # the type of an entry that is no frame: close that member's connection
Frames = list[tuple[str, dict[str, Any]]]  # each with the name of its receiver


def without_stale_echoes(frames: Frames) -> Frames:
    """The frames without the echoes to a member that a newer echo makes redundant.

    If the launcher has fallen behind, most frames to send are such echoes."""
    if len(frames) < 2:
        return frames
    last = {name: place for place, (name, frame) in enumerate(frames) if frame["type"] == "beat"}
    return [each for place, each in enumerate(frames) if each[1]["type"] != "beat" or last[each[0]] == place]


class Outbox:
    """The frames of one coordinator. Each begin and end carries the ledger, because members outlive the chief."""

    def __init__(self, roster: Roster, judge: Judge) -> None:
        self._roster = roster
        self._judge = judge
        self._frames: Frames = []

    def take(self) -> Frames:
        """Remove and return all frames."""
        frames, self._frames = self._frames, []
        return frames

    def welcome(self, peer: Peer, echo: float, number: int, give_way: bool) -> None:
        """Greet a member that has joined; `number` is the last round's. `give_way`: it should prepare later."""
        known = {"round": number, "startDeadline": self._roster.policy.start_deadline_seconds, **self._ledger()}
        self._send(peer.name, type="welcome", echo=echo, done=peer.state == "done", giveWay=give_way, **known)

    def beat(self, name: str, echo: float, give_way: bool) -> None:
        """Answer a heartbeat."""
        self._send(name, type="beat", echo=echo, giveWay=give_way)

    def start(self, peer: Peer, **gang: Any) -> None:
        """Start a member's program in its round; `gang` are the members that it trains with."""
        self._send(peer.name, type="start", round=peer.round, **self._ledger(), **gang)

    def stop(self, peer: Peer, incident: Incident) -> None:
        """End a member's round, if it is connected."""
        if peer.connected:
            culprit = None if incident.reason in ASKED_FOR else incident.member
            told = {"why": incident.message, "member": culprit, "dump": incident.reason == "Stalled"}
            self._send(peer.name, type="stop", round=peer.round, **self._ledger(), **told)

    def end(self, peer: Peer) -> None:
        """Send a member the verdict, if there is one."""
        if self._judge.verdict is not None and peer.connected:
            known = {"evaluatorGrace": self._roster.policy.evaluator_grace_seconds, **self._ledger()}
            self._send(peer.name, type="end", **known, **self._judge.verdict.to_frame())

    def close(self, peer: Peer) -> None:
        """Close the connection of a lost member."""
        self._send(peer.name, type=CLOSE)

    def _ledger(self) -> dict[str, Any]:
        return {"ledger": self._judge.ledger.to_json()}

    def _send(self, name: str, **frame: Any) -> None:
        self._frames.append((name, frame))

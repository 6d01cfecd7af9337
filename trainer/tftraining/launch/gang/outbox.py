"""The frames for the members, kept in order until the rendezvous takes and sends them. Pure."""

from __future__ import annotations

from typing import Any

from tftraining.launch.failure.incident import PLANNED, Incident
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.verdict import Verdict

CLOSE = "close"  # the type of an entry that is no frame: close that member's connection
Frames = list[tuple[str, dict[str, Any]]]  # each with the name of its receiver


def drop_stale_echoes(frames: Frames) -> Frames:
    """The frames without the echoes to a member that a newer echo makes redundant.

    If the launcher has fallen behind, most frames to send are such echoes."""
    if len(frames) < 2:
        return frames
    last = {name: place for place, (name, frame) in enumerate(frames) if frame["type"] == "beat"}
    return [each for place, each in enumerate(frames) if each[1]["type"] != "beat" or last[each[0]] == place]


class Outbox:
    """The frames of one coordinator. Each begin and end carries the ledger, because members outlive the chief."""

    def __init__(self, membership: Membership, verdict: Verdict) -> None:
        self._membership = membership
        self._verdict = verdict
        self._frames: Frames = []

    def take_all(self) -> Frames:
        """Remove and return all frames."""
        frames, self._frames = self._frames, []
        return frames

    def send_welcome(self, peer: Peer, echo: float, number: int, pause_warmup: bool) -> None:
        """Greet a member that has joined; `number` is the last round's. `pause_warmup`: it should prepare later."""
        state = {
            "round": number,
            "startDeadline": self._membership.policy.start_deadline_seconds,
            **self._ledger_field(),
        }
        self._send(peer.name, type="welcome", echo=echo, done=peer.state == "done", giveWay=pause_warmup, **state)

    def send_echo(self, name: str, echo: float, pause_warmup: bool) -> None:
        """Answer a heartbeat."""
        self._send(name, type="beat", echo=echo, giveWay=pause_warmup)

    def send_start(self, peer: Peer, **round_fields: Any) -> None:
        """Start a member's program in its round; `round_fields` are the members that it trains with."""
        self._send(peer.name, type="start", round=peer.round, **self._ledger_field(), **round_fields)

    def send_copy(self, peer: Peer, step: int) -> None:
        """Order a copy at the end of `step`, where the member's program then waits to be stopped."""
        self._send(peer.name, type="copy", round=peer.round, step=step)

    def send_compare(self, peer: Peer, step: int) -> None:
        """Order a summary of the variables in the copy of `step`, if it is held; else in the first one behind it."""
        self._send(peer.name, type="compare", round=peer.round, step=step)

    def send_set_aside(self, peer: Peer, step: int, agreed: tuple[int, int] | None) -> None:
        """Order to set aside the first copy at `step` or behind it, beside the one on which all have `agreed`; older
        launchers ignore it."""
        told = [] if agreed is None else [agreed]
        self._send(peer.name, type="setAside", round=peer.round, step=step, agreed=told)

    def send_dump(self, peer: Peer, why: str) -> None:
        """Order the stacks of a member's program into its log."""
        if peer.is_connected:
            self._send(peer.name, type="dump", round=peer.round, why=why)

    def send_stop(self, peer: Peer, incident: Incident, new_pods: bool = False) -> None:
        """End a member's round, if it is connected. `new_pods`: a member leaves for a new pod if its program has not
        started well in this one."""
        if peer.is_connected:
            failed_member = None if incident.reason in PLANNED else incident.member
            cause = {"why": incident.message, "member": failed_member, "dump": incident.reason == "Stalled"}
            suspects: dict[str, Any] = {"suspects": incident.suspects} if incident.suspects else {}
            suspects |= {"backTo": [incident.back_to]} if incident.back_to is not None else {}
            cause |= {"newPods": new_pods}
            cause |= {"moves": incident.moves} if incident.moves and peer.name == incident.member else {}
            self._send(peer.name, type="stop", round=peer.round, **self._ledger_field(), **cause, **suspects)

    def send_result(self, peer: Peer) -> None:
        """Send a member the verdict, if there is one."""
        if self._verdict.result is not None and peer.is_connected:
            state = {"evaluatorGrace": self._membership.policy.evaluator_grace_seconds, **self._ledger_field()}
            self._send(peer.name, type="end", **state, **self._verdict.result.to_frame())

    def send_close(self, peer: Peer) -> None:
        """Close the connection of a lost member."""
        self._send(peer.name, type=CLOSE)

    def _ledger_field(self) -> dict[str, Any]:
        return {"ledger": self._verdict.ledger.to_json()}

    def _send(self, name: str, **frame: Any) -> None:
        self._frames.append((name, frame))

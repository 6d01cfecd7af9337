"""Attributes an incident to the member that failed first, not to members that failed because of it.

Pure. It must never charge a member for a loss or a SIGTERM, nor for a failure that another member's exit caused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.incident import Incident, describe, reason_of
from tftraining.launch.failure.same_failure import key_of, place_of
from tftraining.launch.failure.traceback_folding import of_a_lost_peer
from tftraining.launch.gang import restart_scope
from tftraining.launch.gang.membership import Roster, some
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.quorum import GROWN, RESIZED
from tftraining.launch.gang.watchdog import stalled

# Seconds after a member's exit with 0 in which that exit explains another member's error about a lost peer. TensorFlow
# notices a closed connection at once, any other loss only by missing heartbeats.
EARLY_END = 30.0


class Blame:
    """Creates the incidents of a gang. `wall` is the wall clock, for reported times."""

    def __init__(self, roster: Roster, wall: Callable[[], float]) -> None:
        self._roster = roster
        self._wall = wall

    def chief_lost(self, seconds: float, step: int | None, now: float) -> Incident:
        """The loss of the previous launcher of the chief, `seconds` ago at `step`."""
        chief = self._roster.chief
        lost = self._incident(chief, "MemberLost", f"{chief}'s launcher was restarted", now - seconds)
        return replace(lost, time=self._wall() - seconds, step=step)

    def loss(self, peer: Peer, now: float) -> Incident:
        """The loss of the connection to a member whose program the round needs."""
        if peer.leaving:
            return self._told_to_stop(peer, now)
        silent = now - peer.told
        what = f" sent no heartbeat for {silent:.1f} s" if silent > 1 else "'s launcher disconnected"
        return self._incident(peer.name, "MemberLost", f"{peer.name}{what}", now)

    def standstill(self, now: float) -> Incident | None:
        """The stall of members that have made no step for the stall timeout; None without one."""
        timeout = self._roster.policy.stall_timeout
        if timeout is None:
            return None
        looks = [peer.look() for peer in self._roster.trainers if peer.state == "running"]
        if not (names := stalled(looks, timeout, now)):
            return None
        limit = f"{timeout:g} s (spec.runPolicy.stallTimeoutSeconds)"
        connecting = {look.member for look in looks if look.progress.connecting}
        what = "no connection to the other programs" if connecting.issuperset(names) else "no step"
        message = f"{some(names)}: {what} for {limit}"
        return replace(self._incident(names[0], "Stalled", message, now), charged=True)

    def fewer(self, now: float) -> Incident:
        """A scale-down: the gang no longer includes some members of the round."""
        message = f"the gang shrinks to {len(self._roster.gang)} members"
        return self._incident(self._roster.chief, RESIZED, message, now)

    def more(self, come: list[Peer], resized: bool, now: float) -> Incident:
        """Members outside the round are ready: added when the gang was `resized`, or lost before and now back."""
        names = some([peer.name for peer in come])
        reason, message = (RESIZED, f"{names} joins") if resized else (GROWN, f"{names} is back")
        return self._incident(come[0].name, reason, message, now)

    def failure(self, peer: Peer, ended: Exit, last: Incident | None, now: float) -> Incident:
        """A program's failure: its own incident, or that of the peer that caused it. `last` is the latest incident."""
        if peer.leaving:
            return self._told_to_stop(peer, now)
        # A peer's exit never causes a signal, and a member that restarts alone does not depend on peers.
        if ended.signal is not None or self._roster.alone(peer):
            return self.own(peer, ended, now)
        told = describe(peer.name, ended)
        for other in self._roster.members:
            if other.state == "running" and (found := self._of_condition(peer, ended, other, now)) is not None:
                return found
        if (early := self._ended_early(ended, now)) is not None:
            message = f"{early.name} exited with code 0 before the other members finished; {told}"
            return replace(self._incident(early.name, "Error", message, now), charged=True, exit=early.ended)
        if last is not None and restart_scope.follows(ended, last, now):
            return self._incident(last.member, last.reason, f"{last.message}; {told}", now)
        return self.own(peer, ended, now)

    def own(self, peer: Peer, ended: Exit, now: float) -> Incident:
        """A program's own failure, which is charged."""
        mine = self._incident(peer.name, reason_of(ended), describe(peer.name, ended), now)
        place = place_of(peer.progress, peer.reporter, now - peer.started)
        return replace(mine, charged=True, exit=ended, same=key_of(peer.name, ended, place))

    def _ended_early(self, ended: Exit, now: float) -> Peer | None:
        """The member whose exit with 0, shortly before, explains why another program `ended` with a lost peer."""
        if not of_a_lost_peer(ended.exception):
            return None
        early = [peer for peer in self._roster.trainers if peer.finished and now - peer.ended_at < EARLY_END]
        return min(early, key=lambda peer: peer.ended_at, default=None)

    def _of_condition(self, peer: Peer, ended: Exit, other: Peer, now: float) -> Incident | None:
        """The incident of `other` if its state explains why the peer's program `ended`: leaving, silent or stuck."""
        timeout, told = self._roster.policy.member_timeout, describe(peer.name, ended)
        if other.leaving:
            return self._told_to_stop(other, now)
        if now - other.heard > timeout / 2 and not _tells_its_cause(ended):
            return self._incident(other.name, "MemberLost", f"{other.name} sends no heartbeats; {told}", now)
        if other.stuck >= timeout:
            message = f"{other.name} hangs (process stopped or blocked for {other.stuck:.0f} s); {told}"
            return replace(self._incident(other.name, "Stalled", message, now), charged=True)
        return None

    def _told_to_stop(self, peer: Peer, now: float) -> Incident:
        return self._incident(peer.name, "Terminated", f"{peer.name} received SIGTERM", now)

    def _incident(self, name: str, reason: str, message: str, at: float) -> Incident:
        """An uncharged incident of member `name`; `at` in monotonic seconds."""
        steps = [peer.progress.step for peer in self._roster.members if peer.progress.step is not None]
        return Incident(name, reason, message, False, at, self._wall(), step=max(steps, default=None))


def _tells_its_cause(ended: Exit) -> bool:
    """Whether a lost peer cannot cause such an exit, so that a peer's silence, perhaps brief, does not excuse it."""
    return ended.code != 1 or bool(ended.kind) or bool(ended.exception and not of_a_lost_peer(ended.exception))

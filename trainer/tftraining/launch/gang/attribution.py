"""Attributes an incident to the member that failed first, not to members that failed because of it.

Whether a late start ends the job is here, too (`describe_late_start`).

Pure. It must never charge a member for a loss or a SIGTERM, nor for a failure that another member's exit caused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tftraining.launch.config.settings_and_defaults import Policy
from tftraining.launch.failure.exit import Exit, reason_of
from tftraining.launch.failure.first_step import failure_key
from tftraining.launch.failure.incident import GROWN, MEMBER_LOST, REPLICAS_DIFFER, RESIZED, TERMINATED, Incident
from tftraining.launch.failure.restart_budget import start_limit
from tftraining.launch.failure.traceback_folding import of_a_lost_peer
from tftraining.launch.failure_and_restart_messages import describe, exited_early, skipping_input, summarize_names
from tftraining.launch.gang import aftermath
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.rounds import Rounds
from tftraining.launch.gang.stall import find_stalled, find_without_step, limit
from tftraining.launch.progress import has_reports

# Seconds after a member's exit with 0 in which that exit explains another member's error about a lost peer. TensorFlow
# notices a closed connection at once, any other loss only by missing heartbeats.
EARLY_EXIT_SECONDS = 30.0


class Attribution:
    """Creates the incidents of a gang. `wall` is the wall clock, for reported times."""

    def __init__(self, membership: Membership, rounds: Rounds, wall: Callable[[], float]) -> None:
        self._membership = membership
        self._rounds = rounds
        self._wall = wall

    def attribute_chief_loss(self, seconds: float, step: int | None, now: float) -> Incident:
        """The loss of the previous launcher of the chief, `seconds` ago at `step`."""
        chief = self._membership.chief
        lost = self._make_incident(chief, MEMBER_LOST, f"{chief}'s launcher was restarted", now - seconds)
        return replace(lost, time=self._wall() - seconds, step=step)

    def attribute_disconnect(self, peer: Peer, now: float) -> Incident:
        """The loss of the connection to a member whose program the round needs."""
        if peer.leaving:
            return self.attribute_termination(peer, now)
        silent_seconds = now - peer.last_frame_at
        how = f" sent no heartbeat for {silent_seconds:.1f} s" if silent_seconds > 1 else "'s launcher disconnected"
        return self._make_incident(peer.name, MEMBER_LOST, f"{peer.name}{how}", now)

    def attribute_termination(self, peer: Peer, now: float) -> Incident:
        """The end of a member that has received SIGTERM."""
        return self._make_incident(peer.name, TERMINATED, f"{peer.name} received SIGTERM", now)

    def detect_stall(self, now: float) -> Incident | None:
        """The stall of members that have made no step for the stall timeout; None without one."""
        timeout = self._membership.policy.stall_timeout_seconds
        if timeout is None:
            return None
        programs = [peer.watched_program() for peer in self._membership.trainers if peer.state == "running"]
        if not (stalled_names := find_stalled(programs, timeout, now)):
            return None
        seconds = f"{timeout:g} s (spec.runPolicy.stallTimeoutSeconds)"
        connecting = {program.member for program in programs if program.progress.connecting}
        how = "no connection to the other programs" if connecting.issuperset(stalled_names) else "no step"
        message = f"{summarize_names(stalled_names)}: {how} for {seconds}"
        stalled = self._make_incident(stalled_names[0], "Stalled", message, now)
        return replace(stalled, charged=True, others_well=len(stalled_names) == 1)

    def describe_no_step(self, now: float) -> str:
        """The members that have stood still for very long, in words; "" if none has. Nothing restarts for it."""
        running = [peer.watched_program() for peer in self._membership.trainers if peer.state == "running"]
        late = find_without_step(running, now)
        names = summarize_names([each.member for each in late])
        return f"{names}: no step for {min(map(limit, late)):.0f} s, which is unusual for this job" if late else ""

    def describe_absence(self, missing: list[str]) -> str:
        """The members that are missing at the start deadline, in words."""
        return f"{summarize_names(missing)} did not connect within {self._start_limit}"

    def describe_late_start(self, skipping: int) -> tuple[str, bool]:
        """The members whose programs do not train at the start deadline, in words, and whether that ends the job. They
        may be `skipping` batches of their input.

        Programs that report nothing say nothing: they count as training soon. A job whose definition the API server has
        filled in has asked for no deadline: it may load data, or wait for a member that does, for as long as it takes.
        """
        policy, trainers = self._membership.policy, self._membership.trainers
        running = [peer for peer in trainers if peer.state == "running"]
        connecting = [peer.name for peer in running if peer.progress.connecting]
        loading = [peer.name for peer in running if has_reports(peer.progress) and not peer.progress.connecting]
        if not connecting and not loading:
            return "", False
        how = "no connection to the other programs" if connecting else "no step"
        told = [f"{summarize_names(connecting or loading)}: {how} within {self._start_limit}"]
        if skipping:
            told.append(skipping_input(skipping))
        if early := [peer.name for peer in self._membership.members if peer.has_succeeded]:
            told.append(exited_early(early))
        others = [peer.name for peer in running if peer.name not in connecting]
        if connecting and others:
            told.append(f"{summarize_names(others)} {'does' if len(others) == 1 else 'do'} not connect")
        is_set = policy.start_deadline_seconds != Policy.start_deadline_seconds  # the schema stores the default
        return "; ".join(told), is_set or len(connecting) == len(running)

    @property
    def _start_limit(self) -> str:
        return start_limit(self._membership.policy.start_deadline_seconds)

    def attribute_scale_down(self, now: float) -> Incident:
        """A scale-down: the gang no longer includes some members of the round."""
        message = f"the gang shrinks to {len(self._membership.gang)} members"
        return self._make_incident(self._membership.chief, RESIZED, message, now)

    def attribute_newcomers(self, newcomers: list[Peer], resized: bool, now: float) -> Incident:
        """Members outside the round are ready: added when the gang was `resized`, or lost before and now back."""
        names = summarize_names([peer.name for peer in newcomers])
        reason, message = (RESIZED, f"{names} joins") if resized else (GROWN, f"{names} is back")
        return self._make_incident(newcomers[0].name, reason, message, now)

    def attribute_divergence(self, odd: str, message: str, now: float) -> Incident:
        """Replicas that differ, and the member that alone is `odd`; "" if none is known to be."""
        return self._make_incident(odd or self._membership.chief, REPLICAS_DIFFER, message, now)

    def attribute_exit(self, peer: Peer, program_exit: Exit, last_incident: Incident | None, now: float) -> Incident:
        """A program's failure: its own incident, or that of the peer that caused it."""
        if peer.leaving:
            return self.attribute_termination(peer, now)
        # A peer's exit never causes a signal, and a member that restarts alone does not depend on peers.
        if program_exit.signal is not None or self._membership.restarts_alone(peer):
            return self.charge_own_failure(peer, program_exit, now)
        description = describe(peer.name, program_exit)
        for other in self._membership.members:
            found = self._attribute_to_state(peer, program_exit, other, now) if other.state == "running" else None
            if found is not None:
                return found
        if (early_peer := self._find_early_exit(program_exit, now)) is not None:
            message = f"{early_peer.name} exited with code 0 before the other members finished; {description}"
            incident = self._make_incident(early_peer.name, "Error", message, now)
            return replace(incident, charged=True, exit=early_peer.exit)
        if last_incident is not None and aftermath.explains_exit(program_exit, last_incident, now):
            message = f"{last_incident.message}; {description}"
            return self._make_incident(last_incident.member, last_incident.reason, message, now)
        return self.charge_own_failure(peer, program_exit, now)

    def charge_own_failure(self, peer: Peer, program_exit: Exit, now: float) -> Incident:
        """A program's own failure, which is charged."""
        incident = self._make_incident(peer.name, reason_of(program_exit), describe(peer.name, program_exit), now)
        ran, stepped = now - peer.started_at, self._rounds.has_stepped
        key = failure_key(program_exit, peer.progress, peer.has_reported, ran, stepped)
        return replace(incident, charged=True, exit=program_exit, same=key)

    def _find_early_exit(self, program_exit: Exit, now: float) -> Peer | None:
        """The member whose exit with 0, shortly before, explains why another program ended with a lost peer."""
        if not of_a_lost_peer(program_exit.exception):
            return None
        candidates = [
            peer
            for peer in self._membership.trainers
            if peer.has_succeeded and now - peer.exited_at < EARLY_EXIT_SECONDS
        ]
        return min(candidates, key=lambda peer: peer.exited_at, default=None)

    def _attribute_to_state(self, peer: Peer, program_exit: Exit, other: Peer, now: float) -> Incident | None:
        """The incident of `other` if its state explains the peer's exit: `other` leaves, is silent or is stuck."""
        timeout, description = self._membership.policy.member_timeout_seconds, describe(peer.name, program_exit)
        if other.leaving:
            return self.attribute_termination(other, now)
        if now - other.last_seen_at > timeout / 2 and not has_own_cause(program_exit):
            return self._make_incident(other.name, MEMBER_LOST, f"{other.name} sends no heartbeats; {description}", now)
        if other.stuck_seconds >= timeout:
            message = f"{other.name} hangs (process stopped or blocked for {other.stuck_seconds:.0f} s); {description}"
            return replace(self._make_incident(other.name, "Stalled", message, now), charged=True)
        return None

    def _make_incident(self, name: str, reason: str, message: str, at: float) -> Incident:
        """An uncharged incident of member `name`; `at` in monotonic seconds."""
        reported = [peer.progress for peer in self._membership.members]
        step = max((each.step for each in reported if each.step is not None), default=None)
        rate = max((each.steps_per_second or 0.0 for each in reported), default=0.0) or None
        start = max((each.fit_start for each in reported), default=None)
        return Incident(
            name, reason, message, False, at, self._wall(), step=step, fit_start=start, steps_per_second=rate
        )


def has_own_cause(program_exit: Exit) -> bool:
    """Whether a lost peer cannot cause such an exit, so that a peer's silence, perhaps brief, does not excuse it."""
    return (
        program_exit.code != 1
        or bool(program_exit.kind)
        or bool(program_exit.exception and not of_a_lost_peer(program_exit.exception))
    )

"""The rendezvous of one gang, in the chief's launcher: handles the members' frames and decides the answers.

Pure: frames and times (monotonic seconds) come in; answers go into the `outbox`. `membership` holds the members,
`rounds` decides when a round starts, `attribution` finds the member that failed first, `verdict` charges incidents to
the restart budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tftraining.launch.config.settings_and_defaults import Gang, Policy
from tftraining.launch.failure import restart_budget
from tftraining.launch.failure.backoff import backoff
from tftraining.launch.failure.exit import exit_from_frame
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.restart_budget import Ledger, merge
from tftraining.launch.gang import memory_backups, quorum
from tftraining.launch.gang.agreed_copy import AgreedCopy
from tftraining.launch.gang.announced_stop import AnnouncedStop, Describe
from tftraining.launch.gang.attribution import Attribution, has_own_cause
from tftraining.launch.gang.membership import JobContext, Membership
from tftraining.launch.gang.memory_backups import MemoryBackups
from tftraining.launch.gang.outbox import Outbox
from tftraining.launch.gang.peer import Hello, Peer
from tftraining.launch.gang.replica_comparison import ReplicaComparison
from tftraining.launch.gang.rounds import Rounds
from tftraining.launch.gang.slow_member import SlowMemberSearch
from tftraining.launch.gang.training_history import TrainingHistory
from tftraining.launch.gang.verdict import Verdict
from tftraining.launch.progress import QUIET_PROGRESS


class Coordinator:
    """`now` is the time of creation, in monotonic seconds; `wall` the wall clock, for reported times."""

    def __init__(self, job: JobContext, ledger: Ledger, wall: Callable[[], float], now: float) -> None:
        self.membership = Membership(job)
        self.rounds = Rounds(self.membership, now)
        self.verdict = Verdict(self.membership, ledger)
        self.last_incident: Incident | None = None
        self.late_start = ""  # who does not train at the start deadline, in words
        self.no_step = ""  # who has made no step for unusually long, in words
        self.skipping = 0  # batches of input that the programs skip to where they resume
        self.member_back_at: float | None = None  # when the last member restarted alone ran again
        self.backups = MemoryBackups(self.membership, self.verdict)
        self.history = TrainingHistory()
        self.outbox = Outbox(self.membership, self.verdict)
        self.replicas = ReplicaComparison(self.membership, self.outbox)
        self.slow_members = SlowMemberSearch()
        self._announced_stop = AnnouncedStop(self.membership, self.outbox)
        self._attribution = Attribution(self.membership, self.rounds, wall)
        self._last_tick_at: float | None = None
        self.agreed = AgreedCopy(
            self.membership,
            self.verdict,
            self.outbox,
            self.backups,
            self.replicas,
            self._attribution.attribute_divergence,
        )

    # Frames of the members.

    def handle_hello(self, frame: Mapping[str, Any], now: float) -> str:
        """Admit a member: "" or the reason to refuse it. KeyError, TypeError, ValueError for a malformed frame."""
        name, hello = str(frame["member"]), Hello.of(frame)
        refusal = self.membership.find_refusal(name, hello.incarnation, frame)
        if refusal:
            return refusal
        ledger, last_round = Ledger.from_json(frame["ledger"]), int(frame["known"])
        copies = memory_backups.from_frame(frame.get(memory_backups.HELD))
        peer = self.membership.admit(name)
        if peer.is_connected:
            self.handle_disconnect(name, now)
        peer.memory_copies = copies
        peer.record_join(hello, frame, now)
        if self.rounds.is_done(peer):
            peer.state = "done"
        self.verdict.ledger = merge(self.verdict.ledger, ledger)
        if name in self.membership.gang:
            self._learn_earlier_rounds(last_round, frame, now)
            if peer.round == self.rounds.number:
                self._record_lost_step(frame.get("step"))
        self.outbox.send_welcome(peer, frame["t"], self.rounds.number, self.rounds.should_pause_warmup(peer, now))
        self.outbox.send_result(peer)
        self._start_ready(now)
        return ""

    def handle_disconnect(self, name: str, now: float) -> None:
        """A member's connection is closed. Its program may still run, unless it reported before that none does."""
        peer = self.membership.get_peer(name)
        if not peer.is_connected:
            return
        was_needed = self.rounds.running and self.rounds.includes(peer) and peer.state == "running"
        peer.left_cleanly, peer.state = peer.left_cleanly or peer.state == "ready", "lost"
        if was_needed:
            self._handle_incident(peer, self._attribution.attribute_disconnect(peer, now), now)

    def handle_frame(self, name: str, frame: Mapping[str, Any], now: float) -> None:
        """Handle a frame of a joined member; KeyError, TypeError or ValueError for a malformed frame."""
        peer = self.membership.get_peer(name)
        peer.last_frame_at = peer.last_seen_at = now
        if frame["type"] == "leaving":
            self._handle_leaving(peer, now)
        elif frame["type"] == "bye":
            peer.left_cleanly = True
        elif frame["type"] == "beat":
            peer.record_heartbeat(frame, now)
            self._record_history(peer)
            self.rounds.record_first_step(peer, now)
            self._announced_stop.record_copy(peer)
            self._record_replicas(peer, now)
            self._stop_if_announced(now)
            self.outbox.send_echo(name, frame["t"], self.rounds.should_pause_warmup(peer, now))
        elif frame["type"] == "exited" and frame["round"] == peer.round and peer.state == "running":
            self._judge_exit(peer, frame, now)
        elif frame["type"] == "ready" and frame["round"] == peer.round and peer.is_connected:
            peer.memory_copies = memory_backups.from_frame(frame.get(memory_backups.HELD))
            peer.state, peer.pid = "ready", None
            self._start_ready(now)

    def _record_replicas(self, peer: Peer, now: float) -> None:
        """Compare the copies of a member with those of the others. Where they differ, the round may end."""
        self.replicas.record(peer, now)
        if self.replicas.difference is None or not self.rounds.running:
            return
        if (incident := self.agreed.find_divergence(self.rounds.number, now)) is not None:
            self._stop_round(incident, now)

    def _record_history(self, peer: Peer) -> None:
        """Note new metrics. Those of the chief come first; `tick` looks for another member that reports some."""
        if peer.name == self.membership.chief:
            self.history.record(self.rounds.reporter)

    def _learn_earlier_rounds(self, last_round: int, frame: Mapping[str, Any], now: float) -> None:
        """A restarted launcher of the chief learns from a member the number of the last round, when it ended, and
        whether the job made or restored a step before. Step 0 means that the training has only begun."""
        self.rounds.has_stepped = self.rounds.has_stepped or int(frame.get("step") or 0) > 0
        if last_round:
            self.rounds.earlier.record_departure(now - float(frame.get("left") or 0.0))
        if self.rounds.learn_number(last_round) and frame.get("down") is not None:
            self.last_incident = self._attribution.attribute_chief_loss(float(frame["down"]), frame.get("step"), now)

    def _record_lost_step(self, step: int | None) -> None:
        """Note a step of the round that has ended: members may have made some after their last heartbeat before."""
        incident = self.last_incident
        if not self.rounds.running and incident is not None and step is not None and step > (incident.step or 0):
            self.last_incident = replace(incident, step=step)

    def _handle_leaving(self, peer: Peer, now: float) -> None:
        """A member has received SIGTERM. If the members make copies, the round ends after one more copy; otherwise the
        member ends its program itself. This may take half of its grace period: its launcher needs the other half."""
        peer.leaving = True
        in_round = self.rounds.running and peer in self.membership.members and peer.state == "running"
        if in_round and not self.membership.restarts_alone(peer):
            seconds = self.membership.policy.termination_grace_seconds / 2
            self._announced_stop.announce_leaving(
                lambda at: self._attribution.attribute_termination(peer, at), now, seconds
            )

    def _judge_exit(self, peer: Peer, frame: Mapping[str, Any], now: float) -> None:
        program_exit = exit_from_frame(frame["exit"])
        peer.record_exit(program_exit, frame, now)
        self._record_history(peer)
        self.rounds.record_first_step(peer, now)  # the program may have ended before its first heartbeat
        if peer.name in self.membership.evaluators:
            self._handle_evaluator_exit(peer, now)
        elif program_exit.success and not peer.leaving:
            self.verdict.check_success_policy(peer)
            self._halt_if_decided()
        elif self.rounds.running:
            incident = self._attribution.attribute_exit(peer, program_exit, self.last_incident, now)
            self._handle_incident(peer, incident, now)
        elif has_own_cause(program_exit):
            self.verdict.note_failure_beside()

    def _handle_evaluator_exit(self, peer: Peer, now: float) -> None:
        """Restart a failed evaluator, with exponential back-off if it ends soon after each start."""
        if peer.exit is None or peer.exit.success or peer.leaving or self.verdict.result is not None:
            return
        incident = self._attribution.charge_own_failure(peer, peer.exit, now)
        self.verdict.decide_evaluator(incident, self.rounds.has_stepped)
        self._halt_if_decided()
        if self.verdict.result is None:
            peer.consecutive_failures = 1 if now - peer.started_at > QUIET_PROGRESS else peer.consecutive_failures + 1
            peer.not_before = now + backoff(peer.consecutive_failures)
            self.outbox.send_stop(peer, incident)

    # Time and spec updates.

    def tick(self, now: float) -> None:
        """Check all timeouts; call it a few times per `member_timeout`."""
        timeout = self.membership.policy.member_timeout_seconds
        late = self._last_tick_at is not None and now - self._last_tick_at > timeout / 2
        self._last_tick_at = now
        for peer in [each for each in self.membership.peers.values() if each.is_connected]:
            if late:
                peer.last_seen_at = now  # this launcher was suspended: the members' frames are still unread
            elif now - peer.last_frame_at > timeout:
                self.outbox.send_close(peer)
                self.handle_disconnect(peer.name, now)
        if self.verdict.result is None and self.rounds.running:
            self._check_running_round(now)
        elif self.verdict.result is None and (missing := self.rounds.find_overdue(now)):
            self.verdict.fail_job(restart_budget.START_DEADLINE, self._attribution.describe_absence(missing))
        self._start_ready(now)

    def apply_spec_update(self, gang: Gang, policy: Policy, now: float) -> None:
        """Apply a spec update: other limits, or another number of workers."""
        resized = self.membership.apply_spec_update(gang, policy)
        if self.rounds.running and (chief := self.membership.gang[self.membership.chief]).has_succeeded:
            self.verdict.check_success_policy(chief)  # a changed success policy may make the job succeed now
            self._halt_if_decided()
        if not resized or self.verdict.result is not None:
            return
        self.rounds.resized = True
        if self.rounds.running and any(peer.name not in self.membership.gang for peer in self.membership.members):
            self._stop_after_copy(self._attribution.attribute_scale_down, now)
        self._start_ready(now)

    def announce_result(self) -> None:
        """Send the verdict to all connected members."""
        for peer in self.membership.peers.values():
            self.outbox.send_result(peer)

    def _check_running_round(self, now: float) -> None:
        self.rounds.update_training(now)
        self.history.record(self.rounds.reporter)
        if (incident := self._attribution.detect_stall(now)) is not None:
            self._stop_round(incident, now)
        self.skipping = self.backups.skipping(now)
        # A resumed program skips the input that the training has read before: it is late only after the time of that.
        pace = (self.last_incident and self.last_incident.steps_per_second) or math.inf
        allowed = now - self.skipping / pace
        self._check_no_step(allowed)
        trainers = {each.name: each.progress for each in self.membership.trainers}
        self.slow_members.look(self.rounds.number, trainers, now)
        if self.rounds.is_overdue(now):
            self._check_late_start(allowed)
        self._announced_stop.retry(now)
        if self.membership.policy.restores:
            self.agreed.update(self.rounds.number, now)
        self._stop_if_announced(now)

    def _check_no_step(self, now: float) -> None:
        """Note who has made no step for unusually long, and order the stacks of all programs into their logs."""
        found = self._attribution.describe_no_step(now) if self.rounds.running else ""
        if found and not self.no_step:
            for peer in self.membership.members:
                self.outbox.send_dump(peer, found)
        self.no_step = found and (self.no_step or found)

    def _check_late_start(self, allowed: float) -> None:
        """Fail the job if its programs do not train at the start deadline. A job without a deadline does not fail: once
        the programs are late by the clock `allowed`, which stands still while they skip input, note who is."""
        late, ends_job = self._attribution.describe_late_start(self.skipping)
        if ends_job:
            self.verdict.fail_job(restart_budget.START_DEADLINE, late)
            self._halt_if_decided()
        elif self.rounds.is_overdue(allowed):
            self.late_start = late

    # Starts.

    def _start_ready(self, now: float) -> None:
        """Start every round, single member and evaluator that can start now."""
        if self.verdict.result is not None:
            return
        if self.rounds.running and (newcomers := self.rounds.find_newcomers(now)):
            resized = self.rounds.resized
            self._stop_after_copy(lambda at: self._attribution.attribute_newcomers(newcomers, resized, at), now)
        elif members := self.rounds.next_members(now):
            self._start_round(members, now)
        cutoff = self.rounds.lease_cutoff(now)
        for peer in self.membership.members if self.rounds.running else ():
            ready = self.membership.restarts_alone(peer) and quorum.can_start(peer, cutoff)
            if ready and now >= peer.not_before:
                self._start_member(peer, now)
        for peer in self.membership.evaluators.values():
            if quorum.is_available(peer) and now >= peer.not_before:
                self._start_program(peer, peer.round + 1, now)

    def _start_round(self, members: list[Peer], now: float) -> None:
        self.late_start, self.no_step, self.skipping = "", "", 0
        for peer in self.membership.members:
            self._record_lost_step(peer.progress.step)
        self.history.mark_restart(self.last_incident)
        self.replicas.start_round()
        if self.rounds.begin(members, now):
            self.verdict.count_restart()
        fields, copies = self.membership.describe_round(), self.backups.start_round(self.rounds.number)
        for peer in members:
            self._start_program(peer, self.rounds.number, now, **fields, memoryBackup=copies.get(peer.name))

    def _start_member(self, peer: Peer, now: float) -> None:
        """Start one member in a round number of its own; the others run on."""
        if self.rounds.begin_for_member(peer):
            self.verdict.count_restart()
        self.history.mark_restart(self.last_incident)
        if self.last_incident is not None and self.last_incident.member == peer.name:
            self.member_back_at = now
        self._start_program(peer, self.rounds.number, now, **self.membership.describe_round())

    def _start_program(self, peer: Peer, number: int, now: float, **gang: Any) -> None:
        peer.record_start(number, now)
        self.outbox.send_start(peer, **gang)

    # Ends.

    def _handle_incident(self, peer: Peer, incident: Incident, now: float) -> None:
        """Restart a member whose program an incident ended: alone, or with the whole gang."""
        if not self.membership.restarts_alone(peer):
            self._stop_round(incident, now)
        elif (decided := self._decide(incident, now)) is not None:
            self.last_incident, self.member_back_at = replace(decided, alone=True), None
            peer.not_before = now + self.verdict.wait_after(decided)
            self.outbox.send_stop(peer, decided, self.verdict.takes_new_pods(decided, self.rounds.has_stepped))

    def _stop_after_copy(self, describe: Describe, now: float) -> None:
        """End the round as intended; after a copy if the members make copies."""
        if not self._announced_stop.announce(describe, now):
            self._stop_round(describe(now), now)

    def _stop_if_announced(self, now: float) -> None:
        if self.rounds.running and (incident := self._announced_stop.find_due(now)) is not None:
            self._stop_round(incident, now)

    def _stop_round(self, incident: Incident, now: float) -> None:
        """End the round because of an incident; the next round or the verdict follows."""
        self.history.record(self.rounds.reporter)
        incident = self.backups.judge(self._announced_stop.end(incident, now))
        decided = self._decide(incident, now)
        self.last_incident = decided or incident
        self.rounds.end(now, self.verdict.wait_after(incident))
        new_pods = self.verdict.takes_new_pods(incident, self.rounds.has_stepped)
        for peer in self.membership.members if decided is not None else ():
            self.outbox.send_stop(peer, self.last_incident, new_pods)

    def _decide(self, incident: Incident, now: float) -> Incident | None:
        decided = self.verdict.decide(
            incident, self.rounds.check_progress(now, incident.charged), self.rounds.has_stepped
        )
        self._halt_if_decided()
        return decided

    def _halt_if_decided(self) -> None:
        """After the verdict, ignore the exits of programs."""
        if self.verdict.result is not None:
            self.rounds.running = False

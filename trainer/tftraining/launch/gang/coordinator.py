"""The rendezvous of one gang, in the chief's launcher: handles the members' frames and decides the answers.

Pure: frames and times (monotonic seconds) come in; answers go into the `outbox`. `roster` holds the members, `rounds`
decides when a round starts, `blame` attributes incidents, `judge` charges them to the restart budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tftraining.launch.config.settings import Gang, Policy
from tftraining.launch.failure import ledger as ledgers
from tftraining.launch.failure.incident import Incident, exit_from_frame
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.gang import memory_backups, quorum
from tftraining.launch.gang.attribution import Blame
from tftraining.launch.gang.decisions import Judge
from tftraining.launch.gang.membership import Job, Roster
from tftraining.launch.gang.outbox import Outbox
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.quorum import ASKED_FOR
from tftraining.launch.gang.rounds import Rounds
from tftraining.launch.progress import QUIET_PROGRESS


class Coordinator:
    """`now` is the time of creation, in monotonic seconds; `wall` the wall clock, for reported times."""

    def __init__(self, job: Job, ledger: Ledger, wall: Callable[[], float], now: float) -> None:
        self.roster = Roster(job)
        self.rounds = Rounds(self.roster, now)
        self.judge = Judge(self.roster, ledger)
        self.incident: Incident | None = None
        self.back: float | None = None  # when the last member restarted alone ran again
        self.outbox = Outbox(self.roster, self.judge)
        self._blame = Blame(self.roster, wall)
        self._ticked: float | None = None

    # Frames of the members.

    def hello(self, frame: Mapping[str, Any], now: float) -> str:
        """Admit a member: "" or the reason to refuse it. KeyError, TypeError, ValueError for a malformed frame."""
        name, incarnation = str(frame["member"]), str(frame["incarnation"])
        refusal = self.roster.refusal(name, incarnation, frame)
        if refusal:
            return refusal
        ledger, last_round = Ledger.from_json(frame["ledger"]), int(frame["known"])
        copies = memory_backups.from_frame(frame.get("copies"))
        peer = self.roster.welcome(name)
        if peer.connected:
            self.lost(name, now)
        peer.join(incarnation, frame, now)
        peer.copies = copies
        if self.rounds.done(peer):
            peer.state = "done"
        self.judge.ledger = ledgers.merge(self.judge.ledger, ledger)
        if name in self.roster.gang:
            self._hear_of_earlier_rounds(last_round, frame, now)
        self.outbox.welcome(peer, frame["t"], self.rounds.number, self.rounds.beginning(peer, now))
        self.outbox.end(peer)
        self._advance(now)
        return ""

    def lost(self, name: str, now: float) -> None:
        """A member's connection is closed. Its program may still run, unless it reported before that none does."""
        peer = self.roster.known(name)
        if not peer.connected:
            return
        needed = self.rounds.running and self.rounds.has(peer) and peer.state == "running"
        peer.gone, peer.state = peer.gone or peer.state == "ready", "lost"
        if needed:
            self._strike(peer, self._blame.loss(peer, now), now)

    def heard(self, name: str, frame: Mapping[str, Any], now: float) -> None:
        """Handle a frame of a joined member; KeyError, TypeError or ValueError for a malformed frame."""
        peer = self.roster.known(name)
        peer.told = peer.heard = now
        if frame["type"] == "leaving":
            peer.leaving = True
        elif frame["type"] == "bye":
            peer.gone = True
        elif frame["type"] == "beat":
            peer.beat(frame, now)
            self.rounds.note_step(peer, now)
            self.outbox.beat(name, frame["t"], self.rounds.beginning(peer, now))
        elif frame["type"] == "exited" and frame["round"] == peer.round and peer.state == "running":
            self._exited(peer, frame, now)
        elif frame["type"] == "ready" and frame["round"] == peer.round and peer.connected:
            peer.copies = memory_backups.from_frame(frame.get("copies"))
            peer.state, peer.pid = "ready", None
            self._advance(now)

    def _hear_of_earlier_rounds(self, last_round: int, frame: Mapping[str, Any], now: float) -> None:
        """A restarted chief's launcher learns from a member the last round number, when the round stopped, and whether
        steps were made or restored before. Step 0 means that training has only begun."""
        self.rounds.proven = self.rounds.proven or int(frame.get("step") or 0) > 0
        if last_round:  # an older launcher sends no "left"
            self.rounds.hear_of_departure(now - float(frame.get("left") or 0.0))
        if self.rounds.hear_of(last_round) and frame.get("down") is not None:
            self.incident = self._blame.chief_lost(float(frame["down"]), frame.get("step"), now)

    def _exited(self, peer: Peer, frame: Mapping[str, Any], now: float) -> None:
        ended = exit_from_frame(frame["exit"])
        peer.end(ended, frame, now)
        self.rounds.note_step(peer, now)  # the program may have ended before its first heartbeat
        if peer.name in self.roster.evaluators:
            self._exited_aside(peer, now)
        elif ended.success and not peer.leaving:
            self.judge.finished(peer)
            self._rest_if_judged()
        elif self.rounds.running:
            self._strike(peer, self._blame.failure(peer, ended, self.incident, now), now)

    def _exited_aside(self, peer: Peer, now: float) -> None:
        """Restart a failed evaluator, with exponential back-off if it ends soon after each start."""
        if peer.ended is None or peer.ended.success or peer.leaving or self.judge.verdict is not None:
            return
        incident = self._blame.own(peer, peer.ended, now)
        self.judge.judge_evaluator(incident, self.rounds.proven)
        self._rest_if_judged()
        if self.judge.verdict is None:
            peer.failures = 1 if now - peer.started > QUIET_PROGRESS else peer.failures + 1
            peer.not_before = now + ledgers.wait(Ledger(without_progress=peer.failures))
            self.outbox.stop(peer, incident)

    # Time and spec updates.

    def tick(self, now: float) -> None:
        """Check all timeouts; call it a few times per `member_timeout`."""
        timeout = self.roster.policy.member_timeout
        late = self._ticked is not None and now - self._ticked > timeout / 2
        self._ticked = now
        for peer in [each for each in self.roster.peers.values() if each.connected]:
            if late:
                peer.heard = now  # this launcher was suspended: the members' frames are still unread
            elif now - peer.told > timeout:
                self.outbox.close(peer)
                self.lost(peer.name, now)
        if self.judge.verdict is None and self.rounds.running:
            self._watch(now)
        elif self.judge.verdict is None and (missing := self.rounds.overdue(now)):
            self.judge.give_up(missing)
        self._advance(now)

    def change(self, gang: Gang, policy: Policy, now: float) -> None:
        """Apply a spec update: other limits, or another number of workers."""
        resized = self.roster.change(gang, policy)
        if self.rounds.running and (chief := self.roster.gang[self.roster.chief]).finished:
            self.judge.finished(chief)  # a changed success policy may make the job succeed now
            self._rest_if_judged()
        if not resized or self.judge.verdict is not None:
            return
        self.rounds.resized = True
        if self.rounds.running and any(peer.name not in self.roster.gang for peer in self.roster.members):
            self._stop(self._blame.fewer(now), now)
        self._advance(now)

    def announce(self) -> None:
        """Send the verdict to all connected members."""
        for peer in self.roster.peers.values():
            self.outbox.end(peer)

    def _watch(self, now: float) -> None:
        self.rounds.note_training(now)
        if (incident := self._blame.standstill(now)) is not None:
            self._stop(incident, now)

    # Starts.

    def _advance(self, now: float) -> None:
        """Start every round, single member and evaluator that can start now."""
        if self.judge.verdict is not None:
            return
        if self.rounds.running and (come := self.rounds.newcomers(now)):
            self._stop(self._blame.more(come, self.rounds.resized, now), now)
        elif members := self.rounds.next(now):
            self._start(members, now)
        since = self.rounds.leases_end(now)
        for peer in self.roster.members if self.rounds.running else ():
            ready = self.roster.alone(peer) and quorum.available(peer) and quorum.settled(peer, since)
            if ready and now >= peer.not_before:
                self._start_alone(peer, now)
        for peer in self.roster.evaluators.values():
            if quorum.available(peer) and now >= peer.not_before:
                self._begin(peer, peer.round + 1, now)

    def _start(self, members: list[Peer], now: float) -> None:
        if self.rounds.begin(members, now):
            self.judge.count_restart()
        told = {**self.roster.told(), "memoryBackup": memory_backups.order(members, self.roster.trainers)}
        for peer in members:
            self._begin(peer, self.rounds.number, now, **told)

    def _start_alone(self, peer: Peer, now: float) -> None:
        """Start one member in a round number of its own; the others run on."""
        if self.rounds.begin_alone(peer):
            self.judge.count_restart()
        if self.incident is not None and self.incident.member == peer.name:
            self.back = now
        self._begin(peer, self.rounds.number, now, **self.roster.told())

    def _begin(self, peer: Peer, number: int, now: float, **gang: Any) -> None:
        peer.begin(number, now)
        self.outbox.start(peer, **gang)

    # Ends.

    def _strike(self, peer: Peer, incident: Incident, now: float) -> None:
        """Restart a member whose program an incident ended: alone, or with the whole gang."""
        if not self.roster.alone(peer):
            self._stop(incident, now)
        elif (judged := self._judged(incident, now)) is not None:
            self.incident, self.back = replace(judged, alone=True), None
            peer.not_before = now + ledgers.wait(self.judge.ledger)
            self.outbox.stop(peer, judged)

    def _stop(self, incident: Incident, now: float) -> None:
        """End the round because of an incident; the next round or the verdict follows."""
        judged = self._judged(incident, now)
        self.incident = judged or incident
        self.rounds.end(now, ledgers.wait(self.judge.ledger) * (incident.reason not in ASKED_FOR))
        for peer in self.roster.members if judged is not None else ():
            self.outbox.stop(peer, self.incident)

    def _judged(self, incident: Incident, now: float) -> Incident | None:
        judged = self.judge.judge(incident, self.rounds.progressed(now), self.rounds.proven)
        self._rest_if_judged()
        return judged

    def _rest_if_judged(self) -> None:
        """After the verdict, ignore the exits of programs."""
        if self.judge.verdict is not None:
            self.rounds.running = False

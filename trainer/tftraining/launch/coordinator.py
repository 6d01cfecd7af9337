"""The rendezvous of one gang, as its chief's launcher holds it: what members tell, and what they are told.

Pure: frames and times (monotonic seconds) come in, frames for the members are put into the `outbox`. Who is there is in
`roster`, when a round starts in `rounds`, whose fault it is that one ends in `blame`, what that costs in `judge`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tftraining.launch import elastic
from tftraining.launch import ledger as ledgers
from tftraining.launch.blame import Blame
from tftraining.launch.elastic import ASKED_FOR
from tftraining.launch.incident import Incident, exit_from_frame
from tftraining.launch.judgement import Judge
from tftraining.launch.ledger import Ledger
from tftraining.launch.outbox import Outbox
from tftraining.launch.peer import Peer
from tftraining.launch.progress import QUIET_PROGRESS
from tftraining.launch.roster import Job, Roster
from tftraining.launch.rounds import Rounds
from tftraining.launch.settings import Gang, Policy


class Coordinator:
    """Made at `now`. `wall` is the clock for what people read."""

    def __init__(self, job: Job, ledger: Ledger, wall: Callable[[], float], now: float) -> None:
        self.roster = Roster(job)
        self.rounds = Rounds(self.roster, now)
        self.judge = Judge(self.roster, ledger)
        self.incident: Incident | None = None
        self.back: float | None = None  # when the member that was last restarted alone ran again
        self.outbox = Outbox(self.roster, self.judge)
        self._blame = Blame(self.roster, wall)
        self._ticked: float | None = None

    # What members tell.

    def hello(self, frame: Mapping[str, Any], now: float) -> str:
        """A member wants to join: "" if it may, otherwise why not. KeyError, TypeError, ValueError for a bad frame."""
        name, incarnation = str(frame["member"]), str(frame["incarnation"])
        refusal = self.roster.refusal(name, incarnation, frame)
        if refusal:
            return refusal
        ledger, last_round = Ledger.from_json(frame["ledger"]), int(frame["known"])
        peer = self.roster.welcome(name)
        if peer.connected:
            self.lost(name, now)
        peer.join(incarnation, frame, now)
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
        """The connection of a member is gone. That nothing runs there is known only by its own word before."""
        peer = self.roster.known(name)
        if not peer.connected:
            return
        needed = self.rounds.running and self.rounds.has(peer) and peer.state == "running"
        peer.gone, peer.state = peer.gone or peer.state == "ready", "lost"
        if needed:
            self._strike(peer, self._blame.loss(peer, now), now)

    def heard(self, name: str, frame: Mapping[str, Any], now: float) -> None:
        """A frame of a member that has joined; KeyError, TypeError or ValueError if it is a bad one."""
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
            peer.state, peer.pid = "ready", None
            self._advance(now)

    def _hear_of_earlier_rounds(self, last_round: int, frame: Mapping[str, Any], now: float) -> None:
        """A chief's new launcher learns from the others where the rounds are, since when they stand still, and whether
        steps were made, or restored, before it came. A training that has only begun is at step 0."""
        self.rounds.proven = self.rounds.proven or int(frame.get("step") or 0) > 0
        if last_round:  # an older launcher does not tell since when it is away
            self.rounds.hear_of_departure(now - float(frame.get("left") or 0.0))
        if self.rounds.hear_of(last_round) and frame.get("down") is not None:
            self.incident = self._blame.chief_lost(float(frame["down"]), frame.get("step"), now)

    def _exited(self, peer: Peer, frame: Mapping[str, Any], now: float) -> None:
        ended = exit_from_frame(frame["exit"])
        peer.end(ended, frame, now)
        self.rounds.note_step(peer, now)  # it may have been too short for a beat
        if peer.name in self.roster.evaluators:
            self._exited_aside(peer, now)
        elif ended.success and not peer.leaving:
            self.judge.finished(peer)
            self._rest_if_judged()
        elif self.rounds.running:
            self._strike(peer, self._blame.failure(peer, ended, self.incident, now), now)

    def _exited_aside(self, peer: Peer, now: float) -> None:
        """An evaluator has ended: it is run again, after longer and longer waits if it is short-lived."""
        if peer.ended is None or peer.ended.success or peer.leaving or self.judge.verdict is not None:
            return
        incident = self._blame.own(peer, peer.ended, now)
        self.judge.judge_evaluator(incident, self.rounds.proven)
        self._rest_if_judged()
        if self.judge.verdict is None:
            peer.failures = 1 if now - peer.started > QUIET_PROGRESS else peer.failures + 1
            peer.not_before = now + ledgers.wait(Ledger(without_progress=peer.failures))
            self.outbox.stop(peer, incident)

    # What others tell.

    def tick(self, now: float) -> None:
        """Time has passed; to be called a few times in `member_timeout`."""
        timeout = self.roster.policy.member_timeout
        late = self._ticked is not None and now - self._ticked > timeout / 2
        self._ticked = now
        for peer in [each for each in self.roster.peers.values() if each.connected]:
            if late:
                peer.heard = now  # it was we who did not listen: what they said lies unread until the next look
            elif now - peer.told > timeout:
                self.outbox.close(peer)
                self.lost(peer.name, now)
        if self.judge.verdict is None and self.rounds.running:
            self._watch(now)
        elif self.judge.verdict is None and (missing := self.rounds.overdue(now)):
            self.judge.give_up(missing)
        self._advance(now)

    def change(self, gang: Gang, policy: Policy, now: float) -> None:
        """The job's spec has changed: other limits, or another number of workers."""
        resized = self.roster.change(gang, policy)
        if self.rounds.running and (chief := self.roster.gang[self.roster.chief]).finished:
            self.judge.finished(chief)  # under another success policy that may be enough
            self._rest_if_judged()
        if not resized or self.judge.verdict is not None:
            return
        self.rounds.resized = True
        if self.rounds.running and any(peer.name not in self.roster.gang for peer in self.roster.members):
            self._stop(self._blame.fewer(now), now)
        self._advance(now)

    def announce(self) -> None:
        """Tell the verdict to all who are there."""
        for peer in self.roster.peers.values():
            self.outbox.end(peer)

    def _watch(self, now: float) -> None:
        self.rounds.note_training(now)
        if (incident := self._blame.standstill(now)) is not None:
            self._stop(incident, now)

    # Starts.

    def _advance(self, now: float) -> None:
        """Start whatever can be started."""
        if self.judge.verdict is not None:
            return
        if self.rounds.running and (come := self.rounds.newcomers(now)):
            self._stop(self._blame.more(come, self.rounds.resized, now), now)
        elif members := self.rounds.next(now):
            self._start(members, now)
        since = self.rounds.leases_end(now)
        for peer in self.roster.members if self.rounds.running else ():
            ready = self.roster.alone(peer) and elastic.available(peer) and elastic.settled(peer, since)
            if ready and now >= peer.not_before:
                self._start_alone(peer, now)
        for peer in self.roster.evaluators.values():
            if elastic.available(peer) and now >= peer.not_before:
                self._begin(peer, peer.round + 1, now)

    def _start(self, members: list[Peer], now: float) -> None:
        if self.rounds.begin(members, now):
            self.judge.count_restart()
        told = self.roster.told()
        for peer in members:
            self._begin(peer, self.rounds.number, now, **told)

    def _start_alone(self, peer: Peer, now: float) -> None:
        """Into a round of its own; nobody else takes notice."""
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
        """The program of a member has ended because of an incident: it starts again alone, or the gang does."""
        if not self.roster.alone(peer):
            self._stop(incident, now)
        elif (judged := self._judged(incident, now)) is not None:
            self.incident, self.back = replace(judged, alone=True), None
            peer.not_before = now + ledgers.wait(self.judge.ledger)
            self.outbox.stop(peer, judged)

    def _stop(self, incident: Incident, now: float) -> None:
        """End the round because of an incident: the next one, or the end of the job."""
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
        """After the verdict no end of a program means anything any more."""
        if self.judge.verdict is not None:
            self.rounds.running = False

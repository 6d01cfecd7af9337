"""The decisions of the rendezvous: who is there, when a round starts, what ends it, and what becomes of the job.

Pure: frames and times (monotonic seconds) come in, frames for the members come out in `outbox`. Two rules hold always:
a round starts only when every member of the gang has said that no program of its runs, and rounds only rise. So there
are never two rounds at once, whatever was lost, late or repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tftraining.launch import alone, elastic, rules
from tftraining.launch import ledger as ledgers
from tftraining.launch.elastic import ASKED_FOR, GROWN, RESIZED
from tftraining.launch.ending import Exit
from tftraining.launch.incident import Incident, describe, exit_from_frame, reason_of
from tftraining.launch.ledger import Ledger
from tftraining.launch.peer import Peer
from tftraining.launch.progress import QUIET_PROGRESS, QUIET_START, reports
from tftraining.launch.settings import Gang, Policy, role_of
from tftraining.launch.snapshot import Snapshot
from tftraining.launch.verdict import FAILED, SUCCEEDED, Verdict
from tftraining.launch.watchdog import stalled

DARK = 1.5  # member timeouts after which a chief that is cut off has ended its round
FIRST_STEPS = 2.0  # seconds after the first member's first step in which those of the others are waited for

CLOSE = "close"  # in the outbox: not a frame, but the order to close that member's connection


@dataclass(frozen=True)
class Job:
    """Whose rendezvous it is: members must name the UID and the attempt."""

    uid: str
    attempt: int
    gang: Gang
    policy: Policy


class Coordinator:
    """The rendezvous of one gang at its chief's launcher. `wall` is the clock for what people read."""

    def __init__(self, job: Job, ledger: Ledger, wall: Callable[[], float], now: float) -> None:
        self.job = job
        self.policy = job.policy
        self.ledger = ledger
        self.gang = {name: Peer(name) for name in job.gang.members}
        self.chief = job.gang.chief
        self.evaluators: dict[str, Peer] = {}
        self.members = list(self.gang.values())  # of the round
        self.round = 0
        self.running = False
        self.trained: float | None = None  # when the last member of this round made its first step
        self.incident: Incident | None = None
        self.back: float | None = None  # when the member that was last restarted alone ran again
        self.failure: Incident | None = None
        self.verdict: Verdict | None = None
        self.not_before = 0.0
        self.outbox: list[tuple[str, dict[str, Any]]] = []
        self._earlier = Snapshot()  # the progress of the last round
        self._wall = wall
        self._born = now
        self._since = now  # when the gang began to gather
        self._ticked: float | None = None
        self._started = 0.0
        self._launchers: dict[str, str] = {}  # of the last round, by incarnation
        self._mark: int | None = None  # the newest epoch at the last incident
        self._proven = False  # some round got as far as a step
        self._surplus: dict[str, Peer] = {}  # members of a larger gang, until they are gone
        self._resized = False  # since the last round
        self._came: tuple[float, int | None] | None = None  # when those who were missing came, and in which epoch
        self._overdue = False  # the start deadline is over: those who are there may be enough

    @property
    def peers(self) -> dict[str, Peer]:
        """All members that may join, the evaluators that have joined included."""
        return {**self._surplus, **self.gang, **self.evaluators}

    @property
    def trainers(self) -> list[Peer]:
        """The members of the round that make steps."""
        return [peer for peer in self.members if role_of(peer.name) != "ps"]

    @property
    def size(self) -> int:
        """How many members make steps when all are there."""
        return len(self.job.gang.trainers)

    @property
    def progress(self) -> Snapshot:
        """The chief's progress, or that of the first who reports; in a round without any yet, that of the last one."""
        return next((peer.progress for peer in self.trainers if reports(peer.progress)), self._earlier)

    @property
    def missing(self) -> list[str]:
        """The members of the gang that the round is without, or, before one, that are not there or not done yet."""
        if self.running:
            return [name for name, peer in self.gang.items() if peer not in self.members]
        return [name for name, peer in self.gang.items() if not elastic.available(peer)]

    # What members tell.

    def hello(self, frame: Mapping[str, Any], now: float) -> str:
        """A member wants to join: "" if it may, otherwise why not. KeyError, TypeError, ValueError for a bad frame."""
        name, incarnation = str(frame["member"]), str(frame["incarnation"])
        refusal = self._refusal(name, incarnation, frame)
        if refusal:
            return refusal
        ledger, last_round = Ledger.from_json(frame["ledger"]), int(frame["known"])
        if name not in self.gang:
            self.evaluators.setdefault(name, Peer(name))
        peer = self.peers[name]
        if peer.connected:
            self.lost(name, now)
        peer.join(incarnation, frame, now)
        if self._done(peer):
            peer.state = "done"
        self.ledger = ledgers.merge(self.ledger, ledger)
        if name in self.gang:
            self._hear_of_earlier_rounds(last_round, frame, now)
        known = {"round": self.round, "ledger": self.ledger.to_json(), "startDeadline": self.policy.start_deadline}
        self._send(name, type="welcome", echo=frame["t"], done=peer.state == "done", **known)
        self._tell_verdict(name)
        self._advance(now)
        return ""

    def lost(self, name: str, now: float, gone: bool = False) -> None:
        """The connection of a member is gone; `gone`: it was closed at the other end, so nothing runs there."""
        peer = self.peers[name]
        if not peer.connected:
            return
        peer.gone = gone
        why = "was told to stop" if peer.leaving else f"was not heard of for {now - peer.heard:.1f} s"
        needed = self.running and peer in self.members and peer.state == "running"
        peer.state = "lost"
        if needed:
            message = f"{name} {why}" if peer.leaving or now - peer.heard > 1 else f"{name}'s launcher is gone"
            self._strike(peer, self._incident(name, "Terminated" if peer.leaving else "MemberLost", message, now), now)

    def heard(self, name: str, frame: Mapping[str, Any], now: float) -> None:
        """A frame of a member that has joined; KeyError, TypeError or ValueError if it is a bad one."""
        peer = self.peers[name]
        peer.heard = now
        if frame["type"] == "leaving":
            peer.leaving = True
        elif frame["type"] == "beat":
            peer.beat(frame, now)
            self._send(name, type="beat", echo=frame["t"])
            self._note_training(now)
        elif frame["type"] == "exited" and frame["round"] == peer.round and peer.state == "running":
            self._exited(peer, frame, now)
        elif frame["type"] == "ready" and frame["round"] == peer.round and peer.connected:
            peer.state, peer.pid = "ready", None
            self._advance(now)

    def tick(self, now: float) -> None:
        """Time has passed; to be called a few times in `member_timeout`."""
        late = self._ticked is not None and now - self._ticked > self.policy.member_timeout / 2
        self._ticked = now
        for peer in self.peers.values():
            if not peer.connected:
                continue
            if late:
                peer.heard = now  # it was we who did not listen: what they said lies unread
            elif now - peer.heard > self.policy.member_timeout:
                self.outbox.append((peer.name, {"type": CLOSE}))
                self.lost(peer.name, now)
        if self.verdict is None:
            self._watch(now) if self.running else self._hold_start_deadline(now)
        self._advance(now)

    def change(self, gang: Gang, policy: Policy, now: float) -> None:
        """The job's spec has changed: other limits, or another number of workers."""
        self.policy = policy
        self.job = replace(self.job, gang=gang, policy=policy)
        if list(gang.members) == list(self.gang):
            return
        self._surplus |= {name: peer for name, peer in self.gang.items() if name not in gang.members}
        known = self.peers
        self.gang = {name: known.get(name) or Peer(name) for name in gang.members}
        self._surplus = {name: peer for name, peer in self._surplus.items() if name not in self.gang}
        self._resized = True
        if self.running and any(peer.name not in self.gang for peer in self.members):
            self._stop(self._incident(self.chief, RESIZED, f"the gang becomes one of {len(self.gang)}", now), now)
        self._advance(now)

    def announce(self) -> None:
        """Tell the verdict to all who are there."""
        for peer in self.peers.values():
            if peer.connected:
                self._tell_verdict(peer.name)

    # Joining.

    def _refusal(self, name: str, incarnation: str, frame: Mapping[str, Any]) -> str:
        if frame["uid"] != self.job.uid:
            return "this is the rendezvous of another job"
        if frame["attempt"] != self.job.attempt:
            return f"this is attempt {self.job.attempt}, not {frame['attempt']}"
        if name not in self.gang and role_of(name) != "evaluator":
            return f"{name} is not a member of this job"
        known = self.peers.get(name)
        if known is not None and known.connected and known.incarnation != incarnation:
            # Whoever is there keeps its place until it is silent: its program may still run.
            return f"another {name} is connected"
        return ""

    def _hear_of_earlier_rounds(self, last_round: int, frame: Mapping[str, Any], now: float) -> None:
        """A chief's new launcher learns from the others where the rounds are, and since when they stand still."""
        if last_round > self.round and frame.get("down") is not None and self._launchers == {}:
            at = now - float(frame["down"])
            lost = self._incident(self.chief, "MemberLost", f"{self.chief}'s launcher was lost", at)
            self.incident = replace(lost, time=self._wall() - float(frame["down"]), step=frame.get("step"))
        self.round = max(self.round, last_round)

    # Rounds.

    def _advance(self, now: float) -> None:
        """Start whatever can be started."""
        if self.verdict is not None:
            return
        if self.running:
            self._make_room(now)
        elif now >= self.not_before and not self._in_doubt(now) and (members := self._lineup(now)):
            self._start(members, now)
        for peer in self.members if self.running else ():
            if self._may_rejoin(peer) and now >= peer.not_before:
                self._start_alone(peer, now)
        for peer in self.evaluators.values():
            if elastic.available(peer) and now >= peer.not_before:
                self._begin(peer, peer.round + 1, now)

    def _in_doubt(self, now: float) -> bool:
        """Whether a launcher that we never knew may still run the last round: the chief's before us, or a lost member.

        Not if all others were in that round and saw the chief's launcher go. Otherwise the time tells.
        """
        if not self.round or self._launchers or now - self._born > DARK * self.policy.member_timeout:
            return False
        return any(peer.witness != self.round for peer in self.gang.values() if peer.name != self.chief)

    def _lineup(self, now: float) -> list[Peer]:
        """The members of the next round, if it can start."""
        since = now - self.policy.member_timeout
        if not all(elastic.quiet(peer, since) for peer in self._surplus.values()):
            return []
        least, begun = self.policy.min_workers, self.round > 0 or self._overdue
        lost = [name for name in self.gang if role_of(name) == "worker" and name != self.chief]
        added = [name for name in lost if self._launchers and name not in self._launchers]
        return elastic.lineup(self.gang.values(), lost if least and begun else added, least or 0, since)

    def _make_room(self, now: float) -> None:
        """End a round of fewer members when those who were missing stand ready, if it can be after a backup."""
        come = elastic.newcomers(self.gang.values(), [peer.name for peer in self.members], now)
        if not come or any(peer.finished for peer in self.trainers):
            self._came = None
            return
        since, epoch = self._came = self._came or (now, self.progress.epoch)
        if not elastic.soon_backed_up(self.progress, epoch, now - since):
            names = some([peer.name for peer in come])
            reason, message = (RESIZED, f"{names} joins") if self._resized else (GROWN, f"{names} is back")
            self._stop(self._incident(come[0].name, reason, message, now), now)

    def _start(self, members: list[Peer], now: float) -> None:
        launchers = {peer.name: peer.incarnation for peer in members}
        old = self._launchers.items()
        if old and (launchers.items() <= old or old <= launchers.items()):
            self.ledger = replace(self.ledger, in_place=self.ledger.in_place + 1)
        self._launchers = launchers
        self._earlier = self.progress
        self.round += 1
        self.running, self.trained, self._started, self._came = True, None, now, None
        self.members, self._resized = members, self._resized and len(members) < len(self.gang)
        told = self._told()
        for peer in members:
            self._begin(peer, self.round, now, **told)

    def _may_rejoin(self, peer: Peer) -> bool:
        """Whether a member of the round that is there may start while the others are at it."""
        return elastic.available(peer) and alone.restarts_alone(peer.name, self.job.gang, self.policy)

    def _start_alone(self, peer: Peer, now: float) -> None:
        """Into a round of its own, so that rounds only rise; nobody else takes notice."""
        if self._launchers.get(peer.name) == peer.incarnation:
            self.ledger = replace(self.ledger, in_place=self.ledger.in_place + 1)
        self._launchers[peer.name] = peer.incarnation
        self.round += 1
        if self.incident is not None and self.incident.member == peer.name:
            self.back = now
        self._begin(peer, self.round, now, **self._told())

    def _told(self) -> dict[str, Any]:
        """With whom the members of the round train."""
        return {"workers": elastic.runs(peer.name for peer in self.members), "size": self.size}

    def _begin(self, peer: Peer, number: int, now: float, **gang: Any) -> None:
        peer.begin(number, now)
        self._send(peer.name, type="start", round=number, ledger=self.ledger.to_json(), **gang)

    def _exited(self, peer: Peer, frame: Mapping[str, Any], now: float) -> None:
        ended = exit_from_frame(frame["exit"])
        peer.end(ended, frame, now)
        if peer.name in self.evaluators:
            self._exited_alone(peer, now)
        elif ended.success and not peer.leaving:
            if self.verdict is None and (who := self._finished(peer)):
                self.running = False
                self.verdict = Verdict(SUCCEEDED, SUCCEEDED, f"{who} has finished", self.chief, None)
        elif self.running:
            self._strike(peer, self._blame(peer, now), now)

    def _finished(self, peer: Peer) -> str:
        """Who has finished, if the job has succeeded by the end of this member's program (spec.successPolicy)."""
        if not self.policy.all_workers:
            return self.chief if peer.name == self.chief else ""
        return "every chief and worker" if all(each.finished for each in self.trainers) else ""

    def _done(self, peer: Peer) -> bool:
        """Whether a member's program has done its work, and has nothing more to do unless the round ends."""
        return peer.finished and (peer.name in self.evaluators or (self.running and peer in self.members))

    def _exited_alone(self, peer: Peer, now: float) -> None:
        """An evaluator has ended. That is never charged; only a rule can make it the job's failure."""
        if peer.ended is None or peer.ended.success or peer.leaving or self.verdict is not None:
            return
        incident = replace(self._own(peer, peer.ended, now), charged=False)
        decision = self._decide(incident)
        if decision.rule and decision.action == rules.FAIL_JOB:
            self.failure = incident
            self._fail(rules.REASON, f"{incident.message}; {decision.rule}", incident)
            return
        peer.failures = 1 if now - peer.started > QUIET_PROGRESS else peer.failures + 1
        peer.not_before = now + ledgers.wait(Ledger(without_progress=peer.failures))
        self._send(peer.name, type="stop", round=peer.round, why=incident.message, dump=False)

    def _blame(self, peer: Peer, now: float) -> Incident:
        """Whose incident a failed program is: perhaps not its own, but that of a peer it could not do without."""
        assert peer.ended is not None
        told = describe(peer.name, peer.ended)
        if peer.leaving:
            return self._incident(peer.name, "Terminated", f"{peer.name} was told to stop", now)
        # A signal comes from outside, never from a peer's end; who is restarted alone needs nobody.
        if peer.ended.signal is not None or alone.restarts_alone(peer.name, self.job.gang, self.policy):
            return self._own(peer, peer.ended, now)
        return self._of_another(peer.ended, told, now) or self._own(peer, peer.ended, now)

    def _of_another(self, ended: Exit, told: str, now: float) -> Incident | None:
        """The incident of the peer whose condition explains why a program has ended."""
        for other in [each for each in self.members if each.state == "running"]:
            if other.leaving:
                return self._incident(other.name, "Terminated", f"{other.name} was told to stop", now)
            if now - other.heard > self.policy.member_timeout / 2:
                return self._incident(other.name, "MemberLost", f"{other.name} is silent; {told}", now)
            if other.stuck >= self.policy.member_timeout:
                message = f"{other.name} stands still (stopped or hanging for {other.stuck:.0f} s); {told}"
                return replace(self._incident(other.name, "Stalled", message, now), charged=True)
        if self.incident is not None and alone.follows(ended, self.incident, now):
            return self._incident(self.incident.member, self.incident.reason, f"{self.incident.message}; {told}", now)
        return None

    def _own(self, peer: Peer, ended: Exit, now: float) -> Incident:
        mine = self._incident(peer.name, reason_of(ended), describe(peer.name, ended), now)
        return replace(mine, charged=True, exit=ended)

    def _incident(self, name: str, reason: str, message: str, at: float) -> Incident:
        """An uncharged incident."""
        steps = [peer.progress.step for peer in self.members if peer.progress.step is not None]
        return Incident(name, reason, message, False, at, self._wall(), step=max(steps, default=None))

    def _strike(self, peer: Peer, incident: Incident, now: float) -> None:
        """The program of a member has ended because of an incident: it starts again alone, or the gang does."""
        if not alone.restarts_alone(peer.name, self.job.gang, self.policy):
            self._stop(incident, now)
        elif (judged := self._judge(incident, now)) is not None:
            self.incident, self.back = replace(judged, alone=True), None
            peer.not_before = now + ledgers.wait(self.ledger)
            if peer.connected:
                self._send(peer.name, type="stop", round=peer.round, why=judged.message, dump=False)

    def _stop(self, incident: Incident, now: float) -> None:
        """End the round because of an incident: the next one, or the end of the job."""
        judged = self._judge(incident, now)
        self.incident, self.trained = judged or incident, None
        self.running = False
        self._since = now
        self.not_before = now + ledgers.wait(self.ledger) * (incident.reason not in ASKED_FOR)
        if judged is not None:
            self._stop_all(judged)

    def _judge(self, incident: Incident, now: float) -> Incident | None:
        """Charge an incident, as the rules say; the incident as it was judged, None if the job has failed by it."""
        progressed, failed = self._progressed(now), incident.reason not in ASKED_FOR
        decision = self._decide(incident) if incident.charged else rules.Decision(rules.RESTART)
        self.failure = incident if incident.charged else self.failure
        if decision.action == rules.IGNORE:
            incident = replace(incident, charged=False, message=f"{incident.message}; {decision.rule}")
        account = {"charged": incident.charged, "refill": self.policy.refill, "failed": failed}
        ledger = ledgers.account(self.ledger, progressed=progressed, **account)
        if decision.action == rules.FAIL_JOB and decision.rule:
            self._fail(rules.REASON, f"{incident.message}; {decision.rule}", incident)
        elif decision.action == rules.FAIL_JOB:
            self._fail(incident.reason, incident.message, incident)
        elif incident.charged and ledger.used > self.policy.max_restarts:
            budget = f"all {self.policy.max_restarts} restarts (spec.restartPolicy.maxRestarts) are used up"
            self._fail("MaxRestartsExceeded", f"{incident.message}; {budget}", incident)
        if self.verdict is not None:
            return None  # what ends the job is no restart: the counts stay as they are
        self.ledger = ledger
        return incident

    def _decide(self, incident: Incident) -> rules.Decision:
        failure = rules.Failure.of(role_of(incident.member), incident.reason, incident.exit)
        return rules.decide(self.policy.rules, failure, self._proven)

    def _stop_all(self, incident: Incident) -> None:
        dump = incident.reason == "Stalled"
        for peer in self.members:
            if peer.connected:
                self._send(peer.name, type="stop", round=peer.round, why=incident.message, dump=dump)

    def _fail(self, reason: str, message: str, incident: Incident | None = None) -> None:
        member, ended = (incident.member, incident.exit) if incident is not None else (None, None)
        self.running = False
        self.verdict = Verdict(FAILED, reason, message, member, ended)

    # What the time brings.

    def _watch(self, now: float) -> None:
        self._note_training(now)
        timeout = self.policy.stall_timeout
        if timeout is None:
            return
        names = stalled([peer.look() for peer in self.trainers if peer.state == "running"], timeout, now)
        if names:
            message = f"{', '.join(names)}: no step for {timeout:g} s (spec.runPolicy.stallTimeoutSeconds)"
            self._stop(replace(self._incident(names[0], "Stalled", message, now), charged=True), now)

    def _hold_start_deadline(self, now: float) -> None:
        since = max(self._since, self.not_before)
        if self.missing and now - since > self.policy.start_deadline:
            self._overdue = True
            if self._lineup(now):
                return
            limit = f"{self.policy.start_deadline:g} s (spec.runPolicy.startDeadlineSeconds)"
            self._fail("StartDeadlineExceeded", f"{some(self.missing)} did not join within {limit}")

    def _note_training(self, now: float) -> None:
        """Note when the round came to train: all have made a step, or will never tell."""
        if not self.running or self.trained is not None:
            return
        first = [at for peer in self.trainers if (at := peer.progress.first_step_time) is not None]
        if first and (len(first) == len(self.trainers) or now - min(first) > FIRST_STEPS):
            self.trained = max(first)
            self._proven = True
        elif not any(reports(peer.progress) for peer in self.trainers) and now - self._started > QUIET_START:
            self.trained = max(peer.started for peer in self.trainers)

    def _progressed(self, now: float) -> bool:
        """Whether there is a newer epoch than at the last incident, or, without reports, the round ran for a while."""
        self._note_training(now)
        long = self.trained is not None and now - self._started > QUIET_PROGRESS
        told = [peer.progress for peer in self.trainers if peer.progress.epoch is not None]
        if not told:
            self._proven = self._proven or long
            return long
        newest = max(each.epoch or 0 for each in told)
        mark = self._mark if self._mark is not None else min(each.first_epoch or 0 for each in told) + 1
        self._mark = max(mark, newest)
        return newest > mark

    def _tell_verdict(self, name: str) -> None:
        if self.verdict is not None:
            known = {"ledger": self.ledger.to_json(), "evaluatorGrace": self.policy.evaluator_grace}
            self._send(name, type="end", **known, **self.verdict.to_frame())

    def _send(self, name: str, **frame: Any) -> None:
        self.outbox.append((name, frame))


def some(names: list[str]) -> str:
    """The first three by name, the others as a number."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

"""Which backup in memory (copy) a round resumes from, and which failures the restored copy may have caused.

Pure. A copy is named after the round that made it and its step, so equal names are of the same training at the same
step. Members hold two copies at most times; the frames of others are not trusted to name few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tftraining.launch.failure.exit import OOM_KILLED
from tftraining.launch.failure.incident import DIFFERS, Incident
from tftraining.launch.failure.traceback_folding import of_a_lost_peer
from tftraining.launch.failure_and_restart_messages import differs, was_oom_killed
from tftraining.launch.gang.backup_report import MEMORY, PEER, STORAGE
from tftraining.launch.gang.backup_summary import Summary, summarize, violation_of
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.peer import Peer
from tftraining.launch.gang.suspect_copies import (
    MOST,
    SOON_SECONDS,
    Copy,
    SuspectCopies,
    failure_of,
    has_crashed,
    is_fault_of_program,
)
from tftraining.launch.gang.verdict import Verdict

# The field of a `hello` or `ready` frame with the copies of a member. Members that vote at different copies must not
# make copies together (memory_backup/copier.py): whoever changes when they copy renames the field. Was: copies,
# heldCopies, memoryCopies.
HELD = "copiesHeld"
SKIPPING_SECONDS = 10.0  # after a start; an input that is skipped in less is not told
LIMIT = 2**52  # of rounds and steps; /status must hold the next one exactly


def from_frame(told: object) -> frozenset[Copy] | None:
    """The copies of a `hello` or `ready` frame; None if the member makes none. ValueError or TypeError if malformed.

    They are the names of files that the program can write: one beyond any training counts as absent.
    """
    if told is None:
        return None
    if not isinstance(told, list) or len(told) > MOST:
        raise ValueError("a frame names no list of copies, or too many")
    copies = ((int(number), int(step)) for number, step in told)
    return frozenset((number, step) for number, step in copies if 0 <= number < LIMIT and 0 <= step < LIMIT)


def choose(held: Mapping[str, Collection[Copy]], servers: Collection[str]) -> Copy | None:
    """The copy to restore: the newest that all members hold, those without any left aside; else the newest of any.

    None if some member would have neither the copy nor one of the `servers` to fetch it from. A later round's copy is
    newer than any of an earlier round.
    """
    everywhere = _intersection(held.values())
    usable = everywhere.union(*(held[name] for name in servers))
    common = _intersection(each for each in held.values() if each)
    return max(common & usable, default=None) or max(usable, default=None)


def spread(needy: Iterable[str], servers: Sequence[str]) -> dict[str, str]:
    """The server of each member that has to fetch the copy: the servers in turn."""
    return {name: servers[place % len(servers)] for place, name in enumerate(needy)}


def _intersection(sets: Iterable[Collection[Copy]]) -> frozenset[Copy]:
    found = [frozenset(each) for each in sets]
    return found[0].intersection(*found[1:]) if found else frozenset()


def newest_common_step(trainers: Collection[Peer]) -> int | None:
    """The step of the newest copy that each trainer has made in this round or resumed from; None if one has none."""
    reports = [peer.backup for peer in trainers if peer.backup is not None]
    steps = [report.newest for report in reports if report.newest is not None]
    return min(steps) if steps and len(steps) == len(trainers) else None


def common_resumption(trainers: Collection[Peer]) -> int | None:
    """The step of the copy that this round has resumed from; None if it has resumed from none, or not yet."""
    return next((peer.backup.resumed_step for peer in trainers if peer.backup and peer.backup.resumed_from), None)


def makes_copies(trainers: Iterable[Peer]) -> bool:
    """Whether all members of the round run and make copies."""
    return all(peer.state == "running" and peer.backup is not None and peer.backup.on for peer in trainers)


def has_storage(trainers: Iterable[Peer]) -> bool:
    """Whether a program has reported a checkpoint in the storage."""
    return any(peer.progress.checkpoint and not has_only_resumed_from_copy(peer) for peer in trainers)


def has_only_resumed_from_copy(peer: Peer) -> bool:
    """Whether the newest checkpoint that a member reports is just the backup in memory from which its program has
    resumed."""
    resumed = peer.backup is not None and bool(peer.backup.resumed_from)
    return resumed and peer.progress.checkpoint == peer.progress.first_step


class MemoryBackups:
    """The copies of one gang. The suspect ones are known only to this launcher of the chief; but the members remove
    them, so that no later one restores them."""

    def __init__(self, membership: Membership, verdict: Verdict) -> None:
        self._membership = membership
        self._verdict = verdict
        self.suspects = SuspectCopies()
        self.restored: Copy | None = None  # the copy that the members of this round have to restore
        self._number = 0  # of this round
        self._failure = ""  # the last failure of a program by an exception of its own
        self._has_storage = False  # the storage is known to have a checkpoint
        self._earlier: Summary | None = None  # of that copy
        self._off = ""  # why this launcher has ended the backups
        self._violation = ""  # how a resumed training differed

    def start_round(self, number: int) -> dict[str, dict[str, Any]]:
        """The part of the `start` frame of each member that copies; empty without copies. The programs agree by
        collectives, so either all of these members make copies, or none does."""
        earlier, copiers = self.summarize(), self._membership.copiers
        self.restored, self._earlier, self._number = None, None, number
        held = {
            peer.name: {copy for copy in peer.memory_copies if copy not in self.suspects}
            for peer in copiers
            if peer.memory_copies is not None
        }
        if self._why_off or len(held) < len(copiers):
            return {}
        servers = [peer for peer in copiers if peer.hello.copy_port is not None]
        copy = self.restored = choose(held, [peer.name for peer in servers])
        if copy is None:
            return {name: {"restore": None, **self._for_all} for name in held}
        self._earlier = _summary_of(copy, earlier, sum(copy in copies for copies in held.values()))
        return self._orders(copy, held, [peer for peer in servers if copy in held[peer.name]])

    def _orders(
        self, copy: Copy, held: Mapping[str, Collection[Copy]], servers: list[Peer]
    ) -> dict[str, dict[str, Any]]:
        chief = self._membership.chief
        servers = sorted(servers, key=lambda peer: peer.name == chief)  # the chief's launcher has the rendezvous to do
        needy = [name for name, copies in held.items() if copy not in copies]
        senders = spread(needy, [peer.name for peer in servers])
        return {name: self._order(copy, name, senders.get(name)) for name in held}

    def _order(self, copy: Copy, name: str, sender: str | None) -> dict[str, Any]:
        """The order to one member; `sender` is the member from which it has to fetch the copy."""
        origin = self._membership.get_peer(sender or name)
        source = STORAGE if copy in origin.stored_copies else PEER if sender else MEMORY
        address = {"member": origin.name, "host": self._host(origin), "port": origin.hello.copy_port}
        return {"restore": list(copy), "source": source, "fetchFrom": address if sender else None, **self._for_all}

    @property
    def _for_all(self) -> dict[str, Any]:
        """What each order says beside the copy: whether copies are set aside, and which backups in the storage may have
        the difference of replicas for which the training went back."""
        ledger = self._verdict.ledger
        found: dict[str, Any] = {"setsAside": True} if self._membership.policy.restores else {}
        return {**found, "doubted": [ledger.went_back_to, ledger.went_back_from]} if ledger.went_back_to else found

    def _host(self, peer: Peer) -> str:
        """The host of a member's launcher. The chief reaches its own launcher by another address than the others."""
        return self._membership.job.host if peer.name == self._membership.chief else peer.hello.host

    @property
    def _why_off(self) -> str:
        """Why the job makes no backups any more; "" while it may. The reason stands in the ledger, which outlives the
        chief's launcher."""
        differed = "a resumed training differed from the undisturbed one" if self._verdict.ledger.violations else ""
        return self._off or differed

    def summarize(self) -> Summary | None:
        """The copies of the gang, for people; None if the job has none. Until a new round reports a copy, it is the one
        that the round has to restore."""
        violations = self._verdict.ledger.violations
        if why := self._why_off or self._membership.job.backups_off:
            return Summary(False, why, violation=self._violation, violations=violations)
        found = summarize(self._membership.copiers)
        if found is None or found.step is not None or self._earlier is None:
            return found
        return found.with_copy_of(self._earlier)

    def skipping(self, now: float) -> int:
        """The batches of input that the programs skip to where they resume, once that takes a while; 0 if they do not.
        How far they are is not known: `tf.data` skips by itself."""
        late = [each.backup for each in self._membership.copiers if now - each.started_at > SKIPPING_SECONDS]
        return max((report.skipping for report in late if report is not None), default=0)

    def judge(self, incident: Incident) -> Incident:
        """The incident that ends the round. If its cause may be the restored copy, that copy is not used again, and the
        failure does not count as a repeated one: the next round resumes elsewhere. A program that ran out of memory
        ends the backups of the job, for they may be the cause; so does a resumed training that differs."""
        if all(peer.memory_copies is None for peer in self._membership.copiers):
            return incident  # no launcher can keep copies
        if incident.exit is not None and incident.exit.kind == OOM_KILLED:
            self._off = was_oom_killed(incident.member)
        if violation := violation_of(peer.backup for peer in self._membership.copiers):
            self._violation, self._off = violation, self._off or f"the resumed training differed: {violation}"
            return self._judge_violation(replace(incident, violation=violation, back_to=None))
        if incident.back_to is not None:
            self.suspects.add_all_behind(incident.back_to, self._number)
            return replace(incident, suspects=self.suspects.to_frame())
        self._has_storage = self._has_storage or has_storage(self._membership.trainers)
        copy = self.restored if self._may_have_resumed() else None
        if copy is not None:
            self.suspects.note_restoration(self._number, copy)
        repeated = self._repeats_the_failure_before(incident)
        if copy is None or not incident.charged or not self._may_be_caused_by(copy, incident, repeated):
            return incident
        self.suspects.add(copy)
        told = f"{incident.message}; the backup in memory of step {copy[1]} is not used again"
        return replace(incident, message=told, same="", suspects=self.suspects.to_frame())

    def _judge_violation(self, incident: Incident) -> Incident:
        """The end of a round whose resumed training was found to differ. If the programs ended for that, it is not
        charged, once a job: they begin again from the storage. The incident may be that of a member that only noticed
        the end of another one."""
        exception = "" if incident.exit is None else incident.exit.exception
        ended_for_it = exception.partition(":")[0].rpartition(".")[2] == DIFFERS or of_a_lost_peer(exception)
        if not (incident.charged and ended_for_it) or self._verdict.ledger.violations:
            return incident
        told = f"{incident.member}: {differs(incident.violation)}"
        return replace(incident, reason=DIFFERS, message=told, charged=False, same="")

    def _repeats_the_failure_before(self, incident: Incident) -> bool:
        """Whether a program ended as one did before, by an exception of its own. Failures of other kinds in between do
        not count."""
        if not incident.charged or incident.exit is None or not is_fault_of_program(incident.exit):
            return False
        before, self._failure = self._failure, failure_of(incident.exit)
        return self._failure == before

    def _may_be_caused_by(self, copy: Copy, incident: Incident, repeated: bool) -> bool:
        """Whether the restored copy may have caused the incident: see suspect_copies.py."""
        newest = newest_common_step(self._membership.copiers)
        if newest is None or newest <= copy[1]:
            is_fault = is_fault_of_program(incident.exit) or has_crashed(incident.exit)
            return is_fault or self._stalled_at_the_begin(incident)
        return repeated and (self._has_storage or self._is_soon(incident.at))

    def _is_soon(self, at: float) -> bool:
        """Whether the first step of this round is not long ago."""
        first = [peer.progress.first_step_time for peer in self._membership.copiers]
        return at - min((each for each in first if each is not None), default=at) < SOON_SECONDS

    def _stalled_at_the_begin(self, incident: Incident) -> bool:
        """Whether the programs stalled before their first step: to skip the input up to the copy's position may take
        longer than spec.runPolicy.stallTimeoutSeconds."""
        copiers = self._membership.copiers
        return incident.reason == "Stalled" and all(peer.progress.first_step_time is None for peer in copiers)

    def _may_have_resumed(self) -> bool:
        """Whether the programs have restored the copy, or have not reported yet that they left it aside."""
        copiers = self._membership.copiers
        reports = [peer.backup for peer in copiers if peer.backup is not None]
        return len(reports) < len(copiers) or any(report.resumed_from for report in reports)


def _summary_of(copy: Copy, earlier: Summary | None, members: int) -> Summary:
    """The copy that a round has to restore, with its fields if it is the one that was reported last."""
    step = copy[1]
    if earlier is not None and earlier.step == step:
        return replace(earlier, members=members)
    return Summary(True, step=step, members=members)

"""Which backup in memory (copy) a round resumes from, and which copy is dropped because the program fails from there.

Pure. A copy is named after the round that made it and its step, so equal names are of the same training at the same
step. Members hold two copies at most times; the frames of others are not trusted to name few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tftraining.launch.failure.exit import OOM_KILLED, Exit
from tftraining.launch.failure.incident import Incident
from tftraining.launch.failure.same_failure import counts_as_same_failure
from tftraining.launch.gang.backup_report import MEMORY, PEER, STORAGE
from tftraining.launch.gang.backup_summary import Summary, summarize
from tftraining.launch.gang.membership import Membership
from tftraining.launch.gang.peer import Peer

Copy = tuple[int, int]  # round and step
# The field of a `hello` or `ready` frame with the copies of a member. Members that vote at different copies must not
# make copies together (memory_backup/interval.py): whoever changes when they vote renames the field. Was: copies.
HELD = "heldCopies"
MOST = 16  # copies that one frame may name
LIMIT = 2**52  # of rounds and steps; /status must hold the next one exactly
SIGNALED = 128  # a shell reports its child's signal n as exit code 128 + n


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


def is_fault_of_program(ended: Exit | None) -> bool:
    """Whether a program ended by an exception of its own: a restored state may have caused it. No signal counts, nor
    an exception that comes from the program's surroundings."""
    if ended is None or ended.signal is not None or ended.kind == OOM_KILLED:
        return False
    blames_program = not ended.exception or counts_as_same_failure(ended.exception)
    return 0 < (ended.code or 0) <= SIGNALED and blames_program


class MemoryBackups:
    """The copies of one gang. The dropped ones are known only to this launcher of the chief: a later one may restore
    such a copy once more, and drops it again."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.dropped: set[Copy] = set()
        self.restored: Copy | None = None  # the copy that the members of this round have to restore
        self._earlier: Summary | None = None  # of that copy
        self._off = ""  # why this launcher has ended the backups

    def start_round(self) -> dict[str, dict[str, Any]]:
        """The part of the `start` frame of each member that copies; empty without copies. The programs agree by
        collectives, so either all of these members make copies, or none does."""
        earlier, copiers = self.summarize(), self._membership.copiers
        self.restored = self._earlier = None
        held = {peer.name: peer.memory_copies - self.dropped for peer in copiers if peer.memory_copies is not None}
        if self._off or len(held) < len(copiers):
            return {}
        servers = [peer for peer in copiers if peer.copy_port is not None]
        copy = self.restored = choose(held, [peer.name for peer in servers])
        if copy is None:
            return {name: {"restore": None} for name in held}
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
        address = {"member": origin.name, "host": self._host(origin), "port": origin.copy_port} if sender else None
        return {"restore": list(copy), "source": source, "fetchFrom": address}

    def _host(self, peer: Peer) -> str:
        """The host of a member's launcher. The chief reaches its own launcher by another address than the others."""
        return self._membership.job.host if peer.name == self._membership.chief else peer.host

    def summarize(self) -> Summary | None:
        """The copies of the gang, for people; None if the job has none. Until a new round reports a copy, it is the one
        that the round has to restore."""
        if why := self._off or self._membership.job.backups_off:
            return Summary(False, why)
        found = summarize(self._membership.copiers)
        if found is None or found.step is not None or self._earlier is None:
            return found
        return found.with_copy_of(self._earlier)

    def judge(self, incident: Incident) -> Incident:
        """The incident that ends the round. If its cause may be the restored copy, that copy is dropped, and the
        failure does not count as a repeated one: the next round resumes elsewhere. A program that ran out of memory
        ends the backups of the job, for they may be the cause."""
        if incident.exit is not None and incident.exit.kind == OOM_KILLED:
            self._off = f"{incident.member} was OOMKilled"
        may_repeat = is_fault_of_program(incident.exit) or self._stalled_at_the_begin(incident)
        if not incident.charged or not may_repeat or not self._may_be_the_cause():
            return incident
        assert self.restored is not None
        self.dropped.add(self.restored)
        told = f"{incident.message}; the backup in memory of step {self.restored[1]} is not used again"
        return replace(incident, message=told, same="")

    def _stalled_at_the_begin(self, incident: Incident) -> bool:
        """Whether the programs stalled before their first step: to skip the input up to the copy's position may take
        longer than spec.runPolicy.stallTimeoutSeconds."""
        copiers = self._membership.copiers
        return incident.reason == "Stalled" and all(peer.progress.first_step_time is None for peer in copiers)

    def _may_be_the_cause(self) -> bool:
        """Whether the gang has restored a copy, and has made no copy since."""
        copiers = self._membership.copiers
        reports = [peer.backup for peer in copiers if peer.backup is not None]
        refused = len(reports) == len(copiers) and not any(report.resumed_from for report in reports)
        if self.restored is None or refused:
            return False
        newest = newest_common_step(copiers)
        return newest is None or newest <= self.restored[1]


def _summary_of(copy: Copy, earlier: Summary | None, members: int) -> Summary:
    """The copy that a round has to restore, with its fields if it is the one that was reported last."""
    step = copy[1]
    if earlier is not None and earlier.step == step:
        return replace(earlier, members=members)
    return Summary(True, step=step, members=members)

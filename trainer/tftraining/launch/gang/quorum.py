"""Elastic rounds: which members the next round has when some are missing, and which newcomers it admits.

When the round starts is decided in rounds.py.

Pure. A smaller gang trains only where the job allows it (spec.minReplicas), or while newly added workers are still
starting. It must never leave out a member whose program may still run: the next round waits for a silent member until
its lease is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tftraining.launch.gang.peer import Peer
from tftraining.launch.progress import Snapshot, fit_step
from tftraining.launch.roles import traits_of

BACKUP_WAIT_SECONDS = 60.0  # the longest wait of newcomers for the backup at the end of an epoch
NEWCOMER_WAIT_SECONDS = 30.0  # seconds for which newcomers wait for members that are still missing


def is_available(peer: Peer) -> bool:
    """Whether the member's launcher is ready for a start and is not leaving."""
    return peer.state == "ready" and not peer.leaving


def predecessor_stopped(peer: Peer, cutoff: float) -> bool:
    """Whether no earlier launcher of the member can still run its program: the last one said so, or is silent since
    before `cutoff`."""
    return peer.predecessor_seen_at < cutoff


def can_start(peer: Peer, cutoff: float) -> bool:
    """Whether the member can start now: available, and no earlier launcher of it can still run its program."""
    return is_available(peer) and predecessor_stopped(peer, cutoff)


def is_stopped(peer: Peer, cutoff: float) -> bool:
    """Whether it is certain that no program of the member runs, nor will before the member joins again.

    A member that has been silent since before `cutoff` has already killed its program. An absent member has none:
    `Rounds` waits until the programs of rounds before this launcher of the chief have ended.
    """
    if not predecessor_stopped(peer, cutoff):
        return False
    if peer.state == "lost":
        return peer.left_cleanly or peer.last_seen_at < cutoff
    return peer.state in ("absent", "ready")


def blocks_round(peer: Peer, optional: Callable[[Peer], bool], cutoff: float) -> bool:
    """Whether this member prevents the next round: it cannot start, and the round may not leave it out."""
    return not can_start(peer, cutoff) and not (optional(peer) and is_stopped(peer, cutoff))


def select_members(gang: Sequence[Peer], least: int, cutoff: float, is_cold: Callable[[Peer], bool]) -> list[Peer]:
    """The members of the next round; empty if it cannot start yet. No member of `gang` may block the start.

    A partial gang needs at least `least` workers. A member whose launcher is new and has not prepared its program
    (`is_cold`) takes part only if the others are too few.
    """
    startable = [peer for peer in gang if can_start(peer, cutoff)]
    warm = [peer for peer in startable if not is_cold(peer)]
    return next((each for each in (warm, startable) if len(each) == len(gang) or _is_quorum(each, least)), [])


def _is_quorum(members: Sequence[Peer], least: int) -> bool:
    """Whether these members are enough for a round without the rest of the gang."""
    return sum(1 for peer in members if traits_of(peer.name).resizable) >= least


def find_newcomers(gang: Iterable[Peer], members: Collection[str], now: float) -> list[Peer]:
    """The ready members outside the running round, if it is time to start a round with them.

    They wait at most NEWCOMER_WAIT_SECONDS for other missing members: an unschedulable pod must not keep them out.
    """
    outside = [peer for peer in gang if peer.name not in members]
    prepared = [peer for peer in outside if peer.prepared_at is not None]
    ready_newcomers = [peer for peer in prepared if is_available(peer)]
    since = max((peer.prepared_at for peer in ready_newcomers if peer.prepared_at is not None), default=now)
    is_time = len(ready_newcomers) == len(outside) or now - since > NEWCOMER_WAIT_SECONDS
    return ready_newcomers if ready_newcomers and is_time else []


def is_backup_near(progress: Snapshot, epoch: int | None, waited: float) -> bool:
    """Whether the current epoch ends so soon that newcomers should wait for the backup at its end: a round that starts
    before it repeats the steps of the epoch. `epoch` is the epoch in which they came; in the last one the job may end
    while they wait."""
    rate, size, step = progress.steps_per_second, progress.steps_per_epoch, fit_step(progress)
    if epoch is None or progress.epoch != epoch or not rate or size is None or step is None:
        return False
    return waited + (epoch * size - step) / rate < BACKUP_WAIT_SECONDS


def index_ranges(names: Iterable[str]) -> list[list[int]]:
    """The indices of the workers, as [first, last] of each run without a gap: short even for thousands of workers."""
    found: list[list[int]] = []
    for index in sorted(int(name.rpartition("-")[2]) for name in names if traits_of(name).resizable):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return found

"""Elastic rounds: selects the next round's members when some are missing, and decides when a round admits newcomers.

Pure. A smaller gang trains only where the job allows it (spec.minReplicas), or while newly added workers are still
starting. It must never leave out a member whose program may still run: the next round waits for a silent member until
its lease is over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tftraining.launch.gang.peer import Peer
from tftraining.launch.progress import Snapshot
from tftraining.launch.roles import traits_of

RESIZED = "Resized"  # the spec's number of workers has changed
GROWN = "Grown"  # a lost worker is back
ASKED_FOR = (RESIZED, GROWN)  # intended restarts: nothing failed
EPOCH_SECONDS = 60.0  # the longest wait of newcomers for the backup at the end of an epoch
PATIENCE = 30.0  # seconds for which newcomers wait for members that are still missing


def available(peer: Peer) -> bool:
    """Whether the member's launcher is ready for a start and is not leaving."""
    return peer.state == "ready" and not peer.leaving


def settled(peer: Peer, since: float) -> bool:
    """Whether no earlier launcher of the member can still run its program: it said so, or is silent since before
    `since`."""
    return peer.predecessor < since


def startable(peer: Peer, since: float) -> bool:
    """Whether the member can start now: available, and no earlier launcher of it can still run its program."""
    return available(peer) and settled(peer, since)


def quiet(peer: Peer, since: float) -> bool:
    """Whether certainly no program of the member runs, nor will before it joins again.

    A member silent since before `since` has already killed its program. An absent member has none: `Rounds` waits out
    the programs of earlier rendezvous.
    """
    if not settled(peer, since):
        return False
    if peer.state == "lost":
        return peer.gone or peer.heard < since
    return peer.state in ("absent", "ready")


def blocks(peer: Peer, optional: Callable[[Peer], bool], since: float) -> bool:
    """Whether this member prevents the next round: it cannot start, and the round may not leave it out."""
    return not startable(peer, since) and not (optional(peer) and quiet(peer, since))


def lineup(gang: Sequence[Peer], least: int, since: float, is_cold: Callable[[Peer], bool]) -> list[Peer]:
    """The members of the next round; empty if it cannot start yet. No member of `gang` may block the start.

    A partial gang needs at least `least` workers. A member whose new launcher is cold takes part only if the others
    are too few.
    """
    there = [peer for peer in gang if startable(peer, since)]
    warm = [peer for peer in there if not is_cold(peer)]
    return next((each for each in (warm, there) if len(each) == len(gang) or _suffices(each, least)), [])


def _suffices(members: Sequence[Peer], least: int) -> bool:
    """Whether these members are enough for a round without the rest of the gang."""
    workers = sum(1 for peer in members if traits_of(peer.name).resizable)
    return workers >= least and all(peer.elastic for peer in members)


def newcomers(gang: Iterable[Peer], members: Collection[str], now: float) -> list[Peer]:
    """The ready members outside the running round, if it is time to start a round with them.

    They wait at most PATIENCE for other missing members: an unschedulable pod must not keep them out for ever.
    """
    out = [peer for peer in gang if peer.name not in members]
    come = [peer for peer in out if available(peer) and peer.elastic and peer.prepared is not None]
    since = max((peer.prepared for peer in come if peer.prepared is not None), default=now)
    return come if come and (len(come) == len(out) or now - since > PATIENCE) else []


def soon_backed_up(progress: Snapshot, epoch: int | None, waited: float) -> bool:
    """Whether the current epoch ends so soon that newcomers should wait for its backup, which saves repeating its
    steps. `epoch` is the epoch in which they came. In the last epoch, the job may even end first."""
    rate, size, step = progress.steps_per_second, progress.steps_per_epoch, progress.step
    if epoch is None or progress.epoch != epoch or not rate or size is None or step is None:
        return False
    return waited + (epoch * size - step) / rate < EPOCH_SECONDS


def runs(names: Iterable[str]) -> list[list[int]]:
    """The workers' indices as [first, last] of each contiguous run: short even for thousands of workers."""
    found: list[list[int]] = []
    for index in sorted(int(name.rpartition("-")[2]) for name in names if traits_of(name).resizable):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return found

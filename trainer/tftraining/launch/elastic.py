"""Who trains the next round when not all members are there, and when a round makes room for those who have come.

Pure. A gang of fewer workers trains on only where the job allows it (spec.minReplicas), or while workers that have been
added are still on their way. It must never leave out a member whose program may still run: who is silent, but was not
seen to end, is waited for as long as its lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tftraining.launch.peer import Peer
from tftraining.launch.settings import role_of
from tftraining.launch.snapshot import Snapshot

RESIZED = "Resized"  # the job's spec says another number of workers
GROWN = "Grown"  # a worker that was lost is back
ASKED_FOR = (RESIZED, GROWN)  # no incidents at all: nothing failed
EPOCH_SECONDS = 60.0  # the longest wait for a backup that saves the steps of an epoch
PATIENCE = 30.0  # seconds for which those who have come back wait for the others who have not


def available(peer: Peer) -> bool:
    """Whether the member can be started."""
    return peer.state == "ready" and not peer.leaving


def settled(peer: Peer, since: float) -> bool:
    """Whether no launcher before the member's own can still run its program: it has said so, or was silent ever
    `since`."""
    return peer.predecessor < since


def startable(peer: Peer, since: float) -> bool:
    """Whether the member can be started now: it is there, and no launcher before its own can still run its program."""
    return available(peer) and settled(peer, since)


def quiet(peer: Peer, since: float) -> bool:
    """Whether certainly nothing of the member runs, and nothing will before it joins again. `since` is when whoever has
    been silent ever since has ended its program. That nothing ran before this rendezvous was made is known before."""
    if not settled(peer, since):
        return False
    if peer.state == "lost":
        return peer.gone or peer.heard < since
    return peer.state in ("absent", "ready")


def blocks(peer: Peer, optional: Callable[[Peer], bool], since: float) -> bool:
    """Whether no round can start because of this member: it is not there, and may not be left out."""
    return not startable(peer, since) and not (optional(peer) and quiet(peer, since))


def lineup(gang: Sequence[Peer], least: int, since: float, is_cold: Callable[[Peer], bool]) -> list[Peer]:
    """The members of the next round, of a gang in which no member blocks the start; none if it cannot start yet.

    At least so many workers must take part if some of the gang do not. A member whose new launcher is cold takes part
    only where the others are too few.
    """
    there = [peer for peer in gang if startable(peer, since)]
    warm = [peer for peer in there if not is_cold(peer)]
    return next((each for each in (warm, there) if len(each) == len(gang) or _suffices(each, least)), [])


def _suffices(members: Sequence[Peer], least: int) -> bool:
    """Whether a round can do with these members only."""
    workers = sum(1 for peer in members if role_of(peer.name) == "worker")
    return workers >= least and all(peer.elastic for peer in members)


def newcomers(gang: Iterable[Peer], members: Collection[str], now: float) -> list[Peer]:
    """Those who stand ready beside a round without them, if it is time to begin the next one with them.

    All who are out are waited for, but not for ever: one that cannot be placed must not keep the others away.
    """
    out = [peer for peer in gang if peer.name not in members]
    come = [peer for peer in out if available(peer) and peer.elastic and peer.prepared is not None]
    since = max((peer.prepared for peer in come if peer.prepared is not None), default=now)
    return come if come and (len(come) == len(out) or now - since > PATIENCE) else []


def soon_backed_up(progress: Snapshot, epoch: int | None, waited: float) -> bool:
    """Whether the epoch in which the newcomers came ends so soon that they had better wait for its backup: its steps
    would have to be done again. In the last epoch the job may even end first."""
    rate, size, step = progress.steps_per_second, progress.steps_per_epoch, progress.step
    if epoch is None or progress.epoch != epoch or not rate or size is None or step is None:
        return False
    return waited + (epoch * size - step) / rate < EPOCH_SECONDS


def runs(names: Iterable[str]) -> list[list[int]]:
    """The indices of the workers among the names, as first and last of each run: short for thousands of them."""
    found: list[list[int]] = []
    for index in sorted(int(name.rpartition("-")[2]) for name in names if role_of(name) == "worker"):
        if found and index == found[-1][1] + 1:
            found[-1][1] = index
        else:
            found.append([index, index])
    return found

"""Which backup in memory a round resumes from: the newest that all its members hold.

Pure. A copy is named after the round that made it and its step, so equal names are of the same training at the same
step. Members hold two copies at most times; the frames of others are not trusted to name few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tftraining.launch.gang.peer import Peer

Copy = tuple[int, int]  # round and step
MOST = 16  # copies that one frame may name


def from_frame(told: object) -> frozenset[Copy] | None:
    """The copies of a `hello` or `ready` frame; None if the member makes none. ValueError or TypeError if malformed."""
    if told is None:
        return None
    if not isinstance(told, list) or len(told) > MOST:
        raise ValueError("a frame names no list of copies, or too many")
    return frozenset((int(number), int(step)) for number, step in told)


def newest_common(held: Iterable[Collection[Copy]]) -> Copy | None:
    """The newest copy that all hold, a later round's before an earlier one's; None if there is none."""
    sets = [set(each) for each in held]
    return max(set.intersection(*sets), default=None) if sets else None


def order(members: Iterable[Peer], trainers: Iterable[Peer]) -> dict[str, Any] | None:
    """The part of the `start` frame that is equal for all members: which copy to restore. None without copies: the
    programs agree by collectives, so either all members make copies, or none does."""
    held = [peer.memory_copies for peer in trainers]
    if len(held) != len(list(members)) or any(each is None for each in held):
        return None
    common = newest_common(each for each in held if each is not None)
    return {"restore": None if common is None else list(common)}

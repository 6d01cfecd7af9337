"""What members report of the variables that all replicas ought to hold alike, and whether they do.

Pure. Replicas with one digest hold the same bytes. Of others the cells of a summary are compared, each with a
tolerance (replica_digest.py): the values of most replicas are taken for right. Nothing that a program reports is
trusted: what is malformed counts as absent.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_DIGESTS, MOST_REPLICAS, MOST_CELLS = 32, 64, 4096
LONGEST_NAMES, LONGEST_NAME = 1 << 20, 80
MOST_NAMES = 3  # of variables and replicas in a message
_CELL = struct.Struct("<ff")
Cells = Sequence[tuple[float, float]]  # the sum of each cell, and how far another one may lie from it
ReplicaName = tuple[str, int]  # a member, and the number of its replica
Groups = Mapping[str, Sequence[ReplicaName]]  # members and numbers of replicas, by the digest of their copies


@dataclass(frozen=True)
class ReplicaSummary:
    """The cells of each replica of a member in its copy of `step`, and the variable in which each cell begins."""

    step: int
    cells: Sequence[Cells]
    names: Sequence[str]


def digests_of(told: object) -> Mapping[int, tuple[str, ...]]:
    """The digests of each replica in a report, by the step of the copy. Never raises."""
    if not isinstance(told, Mapping) or len(told) > MOST_DIGESTS:
        return {}
    steps = {step: each for step, each in told.items() if isinstance(step, str) and step.isdecimal() and len(step) < 16}
    lists = {int(step): each for step, each in steps.items() if isinstance(each, list) and len(each) <= MOST_REPLICAS}
    return {step: tuple(str(digest)[:16] for digest in each) for step, each in lists.items()}


def summary_of(told: object) -> ReplicaSummary | None:
    """The summary in a report; None if it has none. Never raises."""
    if not isinstance(told, Mapping):
        return None
    try:
        step, replicas = int(told["step"]), int(told["replicas"])
        cells = list(_CELL.iter_unpack(base64.b64decode(told["values"])))
        packed = zlib.decompressobj().decompress(base64.b64decode(told["names"]), LONGEST_NAMES)
        names = [each[:LONGEST_NAME] for each in packed.decode(errors="replace").split("\n")]
        count = len(cells) // replicas
    except (KeyError, TypeError, ValueError, ArithmeticError, struct.error, zlib.error):
        return None
    if not 0 < len(cells) <= MOST_CELLS or not 0 < replicas <= MOST_REPLICAS or count * replicas != len(cells):
        return None
    return ReplicaSummary(step, [cells[begin : begin + count] for begin in range(0, len(cells), count)], names)


@dataclass(frozen=True)
class Comparison:
    """What the comparison of one step has found: `differs` is whether it is more than rounding, in `words`. Of the
    members only the `odd` ones hold other values than most replicas, as far as that is known."""

    differs: bool
    words: str
    odd: frozenset[str] = frozenset()


def compare(groups: Groups, summaries: Mapping[str, ReplicaSummary], several: bool) -> Comparison | None:
    """The verdict on replicas with different digests. None if the summary of a group is missing: that of any of its
    members will do. `several`: there are several members, and a message does not count the replicas of one."""
    found = {digest: _cells_of(replicas, summaries) for digest, replicas in groups.items()}
    cells = {digest: each for digest, each in found.items() if each is not None}
    if len(cells) < len(groups):
        return None
    one = next(iter(summaries.values()))
    everyone = _replicas(sorted(each for group in groups.values() for each in group), several)
    if len({len(each) for each in cells.values()}) > 1:
        return Comparison(True, f"at step {one.step} {everyone} hold other variables than each other")
    wrong, unclear = _outliers(groups, cells)
    names = _some([_name(one.names, place) for place in sorted({*wrong, *unclear})])
    if not names:
        return Comparison(False, f"at step {one.step} the values of {everyone} differ in their last bits only")
    odd = [each for digest in {each: None for found in wrong.values() for each in found} for each in groups[digest]]
    if unclear or not odd:
        return Comparison(True, f"at step {one.step} {everyone} hold other values than each other: {names}")
    hold = "holds" if len(odd) == 1 else "hold"
    words = f"at step {one.step} {_replicas(odd, several)} {hold} other values than the rest: {names}"
    return Comparison(True, words, frozenset(member for member, _ in odd))


def _cells_of(replicas: Sequence[ReplicaName], summaries: Mapping[str, ReplicaSummary]) -> Cells | None:
    """The cells of the first replica that a summary has."""
    told = ((summaries[name].cells, number) for name, number in replicas if name in summaries)
    return next((cells[number] for cells, number in told if number < len(cells)), None)


def _outliers(groups: Groups, cells: Mapping[str, Cells]) -> tuple[dict[int, list[str]], list[int]]:
    """For each cell the digests whose values are not those of most replicas; the cells in which most do not agree."""
    total, wrong, unclear = sum(map(len, groups.values())), {}, []
    for place, values in enumerate(zip(*cells.values())):
        if all(_agree(values[0], each) for each in values[1:]):
            continue
        near = [[digest for digest, other in zip(cells, values) if _agree(one, other)] for one in values]
        most = max(near, key=lambda each: sum(len(groups[digest]) for digest in each))
        if 2 * sum(len(groups[digest]) for digest in most) > total:
            wrong[place] = [digest for digest in cells if digest not in most]
        else:
            unclear.append(place)
    return wrong, unclear


def _agree(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two cells hold the same values but for rounding. Numbers that are not finite are equal to each other."""
    if not (math.isfinite(one[0]) and math.isfinite(other[0])):
        return math.isfinite(one[0]) == math.isfinite(other[0])
    return abs(one[0] - other[0]) <= min(one[1], other[1])


def _name(names: Sequence[str], place: int) -> str:
    return names[place] if place < len(names) and names[place] else f"variable {place + 1}"


def _some(names: Sequence[str]) -> str:
    """`dense/kernel, dense/bias and 4 more`."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else ""
    return ", ".join(every[:MOST_NAMES]) + more


def _replicas(replicas: Sequence[ReplicaName], several: bool) -> str:
    counted = any(number for _, number in replicas) or not several
    return _some([f"replica {number} of {member}" if counted else member for member, number in replicas])

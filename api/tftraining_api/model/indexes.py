"""Indexes of replicas as text, in the format of a batch/v1 Job's `completedIndexes`: `1,3-5`. Never raises on text."""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable

_RUN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def pack(indexes: Iterable[int]) -> str:
    """The indexes as text, sorted, with consecutive ones joined to runs."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def unpack(text: str, among: Collection[int]) -> set[int]:
    """The indexes of `among` that the text contains. Invalid parts of the text are ignored."""
    if not text or not among:
        return set()
    starts, ends = _runs(text)
    return {index for index in among if (place := bisect_right(starts, index)) and index <= ends[place - 1]}


def _runs(text: str) -> tuple[list[int], list[int]]:
    """First and last indexes of the runs in the text, in ascending order; runs inside another are dropped."""
    found = (_RUN.fullmatch(part) for part in text.split(","))
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted((int(each[1]), int(each[2] or each[1])) for each in found if each):
        if end >= start and (not ends or end > ends[-1]):
            starts.append(start)
            ends.append(end)
    return starts, ends

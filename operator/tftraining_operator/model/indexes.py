"""Indexes of replicas as text, in the format of `completedIndexes` of a batch/v1 Job: `1,3-5`. Never raises on text."""

import re
from collections.abc import Collection, Iterable


def pack(indexes: Iterable[int]) -> str:
    """The indexes as text, sorted, runs joined."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def chosen(text: str, among: Collection[int]) -> set[int]:
    """Those of `among` that the text names. Parts of the text that make no sense name none."""
    found = (re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part) for part in text.split(","))
    runs = [range(int(each[1]), int(each[2] or each[1]) + 1) for each in found if each]
    return {index for index in among if any(index in run for run in runs)}

"""What the program tells its launcher about backups in memory: `report.json` in their directory, replaced by rename."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .input_kind import STORAGE

NAME = "report.json"
# A report has digests of the newest copies, and of the newest one at each power of two. Members send their heartbeats
# at different times and may have made any number of copies between them: so their reports still have a step in common.
NEWEST, POWERS = 4, 16
# What a restart of a `fit` without copies does not restore: BackupAndRestore saves the variables alone.
NOT_STORED = ("callbacks", "random numbers", "the input, if it is shuffled or of unknown size")


def without_copies(why: str, anew: Sequence[str] = NOT_STORED) -> str:
    """What the user is told of a training without copies, and what a restart from the storage does not restore."""
    lost = f" (a restart from the storage does not restore: {', '.join(anew)})" if anew else ""
    return f"no backups in memory: {why}{lost}"


class CopyReport:
    """The report of one training of this process. Writing it never fails: the next one may succeed."""

    def __init__(self, directory: str, number: int) -> None:
        self._directory = directory
        self._fields: dict[str, Any] = {
            "round": number,
            "on": False,
            "reason": "",
            "resumed": None,
            "epochResumed": "",
        }
        self._written = ""

    def tell(self, **fields: Any) -> None:
        """Change these fields, and write the report if it is another one now."""
        self._fields.update(fields)
        self._write()

    def note_digests(self, step: int, digests: Sequence[str], summary: Mapping[str, Any] | None) -> None:
        """Note for the next report what tells whether this copy is equal in all replicas, and the summary of this copy
        or of an earlier one."""
        known = {**self._fields.get("digests", {}), str(step): list(digests)}
        steps = sorted(map(int, known), reverse=True)
        powers = (next((each for each in steps if each % (1 << power) == 0), step) for power in range(POWERS))
        self._fields["digests"] = {str(each): known[str(each)] for each in sorted({*steps[:NEWEST], *powers})}
        self._fields["summary"] = summary

    def tell_storage(self, why: str, anew: Sequence[str]) -> None:
        """Say that a restart resumes from the storage, as without backups in memory, and what begins anew there."""
        self.tell(resumesAt=STORAGE, resumesAtReason=why, beginsAnew=list(anew))

    def tell_end(self, reason: str) -> None:
        """Say that there are no copies any more, and where the last one was."""
        if (last := self._fields.get("step")) is not None:
            self._fields["lastStep"] = last
        for name in ("step", "time", "bytes", "digests", "summary", "setAside"):
            self._fields.pop(name, None)
        self.tell(on=False, reason=reason)

    def _write(self) -> None:
        text = json.dumps(self._fields)
        if text == self._written:
            return
        new = os.path.join(self._directory, f"{NAME}.new")
        try:
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
            os.rename(new, os.path.join(self._directory, NAME))
            self._written = text
        except OSError:
            pass

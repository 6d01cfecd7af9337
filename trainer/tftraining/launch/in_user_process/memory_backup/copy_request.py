"""What the launcher asks of the program: numbers of 8 bytes each, in a file that both map. 0 asks for nothing.

The first one is that of a copy before the launcher stops the program: it writes the step at most some seconds ahead,
and the program makes the copy at the end of that step and waits, so that no step is made that would be lost. The
second one asks for a summary of the variables in the copy of this step, if it is held, or else in the first one behind
it (replica_digest.py). The third one asks to set aside the first copy at this step or behind it; round and step of the
copy on which all members agree follow, which stays set aside.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

NAME = "request"
HOLD_SECONDS = 10.0  # then the launcher is not going to stop the program
STEP = struct.Struct("<Q")
SUMMARY, ASIDE = STEP.size, 2 * STEP.size  # the places of the second and the third step
AGREED = struct.Struct("<QQ")  # behind the third step, and written before it
_POLL_SECONDS = 0.01


class CopyRequest:
    """The launcher's request; none, for ever, if an older launcher has made no file."""

    def __init__(self, directory: str) -> None:
        self._map: mmap.mmap | None = None
        try:
            with open(os.path.join(directory, NAME), "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            return

    def step(self) -> int:
        """The step to copy at; 0 for none."""
        return self._at(0)

    def summary_from(self) -> int:
        """The step of the copy that is to be summarized, or the first one behind it; 0 for none."""
        return self._at(SUMMARY)

    def set_aside_from(self) -> int:
        """The step from which on the next copy is to be set aside; 0 for none."""
        return self._at(ASIDE)

    def agreed(self) -> tuple[int, int] | None:
        """The copy on which all members agree; None for none. Ask behind `set_aside_from`."""
        number = self._at(ASIDE + STEP.size)
        return (number, self._at(ASIDE + 2 * STEP.size)) if number else None

    def _at(self, place: int) -> int:
        told = b"" if self._map is None else self._map[place : place + STEP.size]
        return int(STEP.unpack(told)[0]) if len(told) == STEP.size else 0

    def is_for(self, before: int, after: int) -> bool:
        """Whether the launcher asks for a copy at one of the steps after `before` up to `after`. A step that has passed
        before is not made up for."""
        return before < self.step() <= after

    def hold(self, seconds: float = HOLD_SECONDS) -> None:
        """Wait until the launcher takes the request back. Usually it stops the program before that."""
        end = time.monotonic() + seconds
        while self.step() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

"""The step at which the launcher asks for a copy before it stops the program: 8 bytes in a file that both map.

The launcher writes the step, at most some seconds ahead. The program makes the copy at the end of that step and waits,
so that no step is made that would be lost. 0 asks for nothing.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

NAME = "request"
HOLD_SECONDS = 10.0  # then the launcher is not going to stop the program
STEP = struct.Struct("<Q")
_POLL_SECONDS = 0.01


class CopyRequest:
    """The launcher's request; none, for ever, if an older launcher has made no file."""

    def __init__(self, directory: str) -> None:
        self._map: mmap.mmap | None = None
        try:
            with open(os.path.join(directory, NAME), "rb") as file:
                self._map = mmap.mmap(file.fileno(), STEP.size, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            return

    def step(self) -> int:
        """The step to copy at; 0 for none."""
        return int(STEP.unpack_from(self._map)[0]) if self._map is not None else 0

    def is_for(self, before: int, after: int) -> bool:
        """Whether it is for one of the steps after `before` up to `after`: one that has passed is not made up for."""
        return before < self.step() <= after

    def hold(self, seconds: float = HOLD_SECONDS) -> None:
        """Wait until it is taken back. The launcher stops the program meanwhile."""
        end = time.monotonic() + seconds
        while self.step() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

"""Which backups in memory (copies) may be the cause of failures: such a suspect copy is never restored again.

Pure. The restored copy of a round becomes suspect
* if the programs fail before all of them have made a copy since: by an exception of their own, by a crash (SIGSEGV), or
  by a stall before the first step;
* if they fail later with the exception of the failure before, its numbers aside. Only soon after the restoration,
  unless the storage is known to have a checkpoint: hours after it, the begin of the training would be worse than a try.

What is born of a suspect copy is suspect: the later copies of its round, and all copies of a round that has restored a
suspect copy. So a fault that is noticed late, such as a NaN, is followed back from failure to failure: to the copy
before it, and to the storage at last. A SIGKILL, an OOMKilled, a lost member and an exception that comes from the
program's surroundings make no copy suspect.
"""

from __future__ import annotations

import re
import signal

from tftraining.launch.failure.exit import OOM_KILLED, SIGNALED, Exit
from tftraining.launch.failure.same_failure import counts_as_same_failure

Copy = tuple[int, int]  # round and step
SOON_SECONDS = 600.0  # of training behind a restoration
MOST = 16  # copies that one frame may name
CRASHES = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV})
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d*)?(?:e[+-]?\d+)?|\b(?:nan|inf)\b", re.IGNORECASE)


class SuspectCopies:
    """The suspect copies of one gang, as far as this launcher of the chief has seen the failures."""

    def __init__(self) -> None:
        self._restored: dict[int, Copy] = {}  # the copy that each round has restored, if it has
        self._first: dict[int, int] = {}  # of a round, the step of its first suspect copy

    def __contains__(self, copy: Copy) -> bool:
        first = self._first.get(copy[0])
        return first is not None and first <= copy[1]

    def note_restoration(self, number: int, copy: Copy) -> None:
        """Note which copy the programs of a round have restored."""
        self._restored[number] = copy

    def add(self, copy: Copy) -> None:
        """Make a copy suspect, with all that is born of it."""
        number, step = copy
        self._first[number] = min(step, self._first.get(number, step))
        for later, restored in sorted(self._restored.items()):  # a round restores a copy of an earlier one
            if restored in self:
                self._first[later] = 0

    def add_all_behind(self, copy: Copy, number: int) -> None:
        """Make all later copies than this one suspect, up to those of the round `number`."""
        first, step = copy
        self._first[first] = min(step + 1, self._first.get(first, step + 1))
        self._first |= dict.fromkeys(range(first + 1, number + 1), 0)

    def to_frame(self) -> list[Copy]:
        """For the members, which remove them: of each round the first suspect copy; the later ones are meant, too."""
        return sorted(self._first.items())[-MOST:]


def is_fault_of_program(ended: Exit | None) -> bool:
    """Whether a program ended by an exception of its own. No signal counts, nor an exception that comes from the
    program's surroundings."""
    if ended is None or ended.signal is not None or ended.kind == OOM_KILLED:
        return False
    blames_program = not ended.exception or counts_as_same_failure(ended.exception)
    return 0 < (ended.code or 0) <= SIGNALED and blames_program


def has_crashed(ended: Exit | None) -> bool:
    """Whether a program ended by a signal of its own fault, as values that no code expects may cause it."""
    return ended is not None and (ended.signal or (ended.code or 0) - SIGNALED) in CRASHES


def failure_of(ended: Exit) -> str:
    """What equal failures of a program have in common: a loss, a step or an address in the message may differ."""
    return _NUMBER.sub("#", ended.exception) or f"exit code {ended.code}"

"""Decides how many steps lie between two backups in memory. Copies may block the training for a share of its time at
most. Where they are so cheap that this share would allow many, the interval is the one with the least loss: the time
for copies and the steps that failures repeat, together.

Pure; times come in. Intervals are powers of two, so the steps of a longer interval are steps of a shorter one. All
members must use the same interval at the same step, so it changes only by a vote of all (copier.py).
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median_low

FIRST = 4  # the exponent of the first interval, before anything is measured
LARGEST = 24
GROWTH = 2  # of the exponent in one vote: a moment in which the machine is busy must not cost many copies
EVERY = 64  # copies between two votes with the first interval, after those that follow copy 2, 4, 8, 16 and 32
COPIES = 0.8  # the part of the share that copies may take; the rest is for the votes
_KEPT = 8  # measurements
# The failures for which cheap copies are balanced, at this share. A copy that blocks for C seconds, every T seconds,
# and failures every F seconds take C/T + T/2F of the time: the least at T = sqrt(2 C F) (Young, CACM 17, 1974).
FAILURES_EVERY, AT_SHARE = 60.0, 0.01


def votes_after(copies: int, exponent: int) -> bool:
    """Whether the members vote after so many copies of a `fit`, the last ones with this interval.

    A longer interval has fewer copies between two votes, so that as many steps lie between them.
    """
    every = max(1, EVERY >> max(0, exponent - FIRST))
    return copies > 1 and (copies % every == 0 or copies & (copies - 1) == 0)


def crosses(before: int, after: int, exponent: int) -> bool:
    """Whether the steps after `before` up to `after` have a multiple of the interval among them."""
    return before >> exponent != after >> exponent


class Measured:
    """What this member has measured: the seconds that a copy blocks, and the seconds of a step without copies."""

    def __init__(self) -> None:
        self._blocked: deque[float] = deque(maxlen=_KEPT)
        self._steps: deque[float] = deque(maxlen=_KEPT)
        self._mark: tuple[float, int] | None = None

    def start(self, now: float, step: int) -> None:
        """Measure the speed from now on: after the first step of an epoch, and after each copy."""
        self._mark = (now, step)

    def stop(self, now: float, step: int) -> None:
        """Note the speed since the start, if steps were made: before each copy, and at the end of an epoch."""
        if self._mark is not None and step > self._mark[1]:
            self._steps.append((now - self._mark[0]) / (step - self._mark[1]))
        self._mark = None

    def blocked(self, seconds: float) -> None:
        """Note how long a copy has blocked."""
        self._blocked.append(seconds)

    def exponent(self, present: int, share: float) -> int:
        """The exponent of the interval that this member votes for; `present` while something is not measured."""
        if not self._blocked or not self._steps:
            return present
        # The lower one of two: a busy moment is more frequent than a fast one.
        blocked, step = median_low(self._blocked), max(median_low(self._steps), 1e-9)
        fewest = _log2(blocked / (max(share, 1e-9) * COPIES * step))
        balanced = _log2(math.sqrt(2 * blocked * FAILURES_EVERY) * AT_SHARE / max(share, 1e-9) / step)
        return min(max(math.ceil(fewest), round(balanced)), present + GROWTH, LARGEST)


class Schedule:
    """After which steps the copies of a training are due: equal for all members."""

    def __init__(self) -> None:
        self.exponent = FIRST
        self.measured = Measured()
        self.turns = 0  # copies that were due, also those left out because the loss was no finite number
        self.last = 0  # the step of the last copy that was due, at first the one behind which this process began
        self._wait_until = 0  # no copies before this step, unless an epoch ends earlier

    def begin(self, step: int, wait: int) -> None:
        """Begin to train behind this step, with no copy in the first epoch or `wait` steps."""
        self.last, self._wait_until = step, step + wait

    def waits(self, step: int) -> bool:
        """Whether it is too early for copies at this step."""
        return step < self._wait_until

    def end_wait(self) -> None:
        """Note that an epoch has ended: what it needs is known now. All members call it at the same steps."""
        self._wait_until = 0

    def is_due(self, before: int, after: int) -> bool:
        """Whether a copy is due after the step `after`, when the one before the last batch was `before`."""
        return crosses(before, after, self.exponent) and not self.is_soon(after)

    def is_soon(self, step: int) -> bool:
        """Whether the last copy that was due lies less than half of the interval before this step."""
        return 2 * (step - self.last) < 1 << self.exponent

    def leaves_to_epoch_end(self, left: int) -> bool:
        """Whether a copy that is due waits for the end of the epoch, because so few steps are left."""
        return 2 * left <= 1 << self.exponent


def _log2(steps: float) -> float:
    return math.log2(max(steps, 1.0))

"""Finds the member that the others of a gang wait for, by the own time that each measures of its steps (own_time.py).

Pure. A member is slow in a window if its own time a step is LIMIT times the median of all. It is named once it is slow
in WINDOWS windows in a row, and until it is slow in none of so many: a disturbance of seconds names nobody. A window
ends when each member has measured STEPS more steps, SECONDS after its begin at the earliest. It must never name a
member of which a figure is missing or impossible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from tftraining.launch.progress import Snapshot

LIMIT, LARGEST = 1.25, 1000.0  # of the factor
STEPS, SECONDS, WINDOWS = 4, 4.0, 3
COMPUTES, WAITS_FOR_INPUT = "Computes", "WaitsForInput"


@dataclass(frozen=True)
class SlowMember:
    """The slow `member`, its own time as a multiple of the median, and what it does meanwhile. Without a name: none of
    the members is slow."""

    member: str = ""
    factor: float = 1.0
    cause: str = ""


@dataclass(frozen=True)
class Totals:
    """What a member has measured in its round so far, or in a window."""

    steps: int
    seconds: float
    of_input: float

    @classmethod
    def of(cls, snapshot: Snapshot) -> Totals | None:
        """Those of a program; None if it measures nothing."""
        if snapshot.own_steps is None:
            return None
        return cls(snapshot.own_steps, snapshot.own_seconds or 0.0, snapshot.input_seconds or 0.0)

    def since(self, begin: Totals) -> Totals:
        """What has been measured since then."""
        return Totals(self.steps - begin.steps, self.seconds - begin.seconds, self.of_input - begin.of_input)

    @property
    def is_possible(self) -> bool:
        """Whether a program can have measured that in a window."""
        return math.isfinite(self.seconds) and self.seconds > 0 and 0 <= self.of_input <= self.seconds


def judge(windows: Mapping[str, Totals]) -> dict[str, SlowMember]:
    """The slow members of a window."""
    if len(windows) < 2 or not all(each.is_possible for each in windows.values()):
        return {}
    own = {name: each.seconds / each.steps for name, each in windows.items()}
    inputs = {name: each.of_input / each.steps for name, each in windows.items()}
    usual, usual_input = median_low(own.values()), median_low(inputs.values())
    return {
        name: SlowMember(
            name, min(round(seconds / usual, 2), LARGEST), _cause(seconds - usual, inputs[name] - usual_input)
        )
        for name, seconds in own.items()
        if seconds >= LIMIT * usual
    }


def _cause(excess: float, of_input: float) -> str:
    return WAITS_FOR_INPUT if of_input > excess / 2 else COMPUTES


class SlowMemberSearch:
    """What is known of one gang: the slow member that was `found`; None until a round has shown something."""

    def __init__(self) -> None:
        self.found: SlowMember | None = None
        self._round = 0
        self._begin: dict[str, Totals] = {}
        self._begun_at = 0.0
        self._verdicts: list[dict[str, SlowMember]] = []

    def look(self, number: int, programs: Mapping[str, Snapshot], now: float) -> None:
        """End the window if it is long enough. `programs`: those of the members that train together in the round of
        this `number`. Another round, or other members, begin anew, but do not end what was found."""
        told = {name: Totals.of(snapshot) for name, snapshot in programs.items()}
        totals = {name: each for name, each in told.items() if each is not None}
        is_other = number != self._round or totals.keys() != self._begin.keys()
        if is_other or any(totals[name].steps < self._begin[name].steps for name in totals):
            self._round, self._begin, self._begun_at, self._verdicts = number, totals, now, []
            return
        windows = {name: each.since(self._begin[name]) for name, each in totals.items()}
        if len(windows) < 2 or now < self._begun_at + SECONDS or min(each.steps for each in windows.values()) < STEPS:
            return
        self._begin, self._begun_at = totals, now
        self._verdicts = [*self._verdicts[-WINDOWS + 1 :], judge(windows)]
        if len(self._verdicts) == WINDOWS:
            self._conclude()

    def _conclude(self) -> None:
        """Name the slowest member of those that were slow in all windows. It stays while it is slow in one of them."""
        named = self.found.member if self.found is not None else ""
        always = [name for name in self._verdicts[-1] if all(name in each for each in self._verdicts)]
        if always and named not in always:
            self.found = max((self._verdicts[-1][name] for name in always), key=lambda each: each.factor)
        elif not any(named in each if named else each for each in self._verdicts):
            self.found = SlowMember()

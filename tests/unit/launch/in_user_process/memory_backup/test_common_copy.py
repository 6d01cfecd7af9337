"""Whenever a gang is killed, its members hold a common copy: the newest that all have made, or a newer one.

Three members make their copies in any order within a step, and hear of a request or not; a kill comes before, during or
after the copy of any of them, round after round. The chief's choice is that of gang/memory_backups.py.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.random_seeds import seeds
from tests.unit.launch.in_user_process.memory_backup.test_copier import State, take_copy
from tftraining.launch.gang.memory_backups import choose
from tftraining.launch.in_user_process.memory_backup import copy_file, interval
from tftraining.launch.in_user_process.memory_backup.copier import Copier
from tftraining.launch.in_user_process.memory_backup.copy_file import held
from tftraining.launch.in_user_process.memory_backup.settings import CopySettings

MEMBERS = 3
EXPONENT = 1


class Killed(BaseException):
    """The program is gone, in the middle of a copy."""


class Member:
    """One member's program in one round."""

    def __init__(self, directory: Path, number: int, restore: tuple[int, int] | None) -> None:
        told = json.dumps({"directory": str(directory), "percent": 1, "restore": restore})
        sums = lambda numbers: [MEMBERS * each for each in numbers]  # noqa: E731  # all members say the same
        self.copier = Copier(
            CopySettings(told, {"TFTRAINING_ROUND": str(number)}), MEMBERS, sums, list, lambda text: None
        )
        self.state = State()
        self.begun = take_copy(self.copier, self.state)
        assert self.begun == self.state.value == (restore[1] if restore else 0)
        self.copier.schedule.exponent = EXPONENT
        self.requested = 0
        request: Any = self.copier._request
        request.step, request.hold = lambda: self.requested, lambda: None

    def make_step(self, step: int) -> None:
        self.state.value = step
        due, asked = self.copier.due(step - 1, step), self.copier.asked(step - 1, step)
        if due:
            self.copier.copy(step, {})
        if asked:
            self.copier.answer(step, {})


def run_round(members: list[Member], chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> int:
    """Train until a kill; the step of the newest copy that all have completed, 0 for none in this round."""
    step, complete, commit = members[0].begun, 0, copy_file.Slots.commit

    def killed(*_: object) -> None:
        raise Killed

    while True:
        step += 1
        if chance.random() < 0.3:  # asked for a step that some have passed before they hear of it
            hear = chance.sample(members, chance.randint(0, MEMBERS))
            for member in hear:
                member.requested = step
        for member in chance.sample(members, MEMBERS):
            event = chance.random()
            if event < 0.02:
                return complete
            if event < 0.06:
                monkeypatch.setattr(copy_file.Slots, "commit", killed)
            try:
                member.make_step(step)
            except Killed:
                return complete
            finally:
                monkeypatch.setattr(copy_file.Slots, "commit", commit)
        if step >> EXPONENT != (step - 1) >> EXPONENT:
            complete = step


@pytest.mark.parametrize("seed", seeds(8, 25))
def test_after_any_kill_all_members_hold_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(interval.Measured, "exponent", lambda self, present, share: present)
    directories = [tmp_path / str(number) for number in range(MEMBERS)]
    for directory in directories:
        directory.mkdir()
    restore: tuple[int, int] | None = None
    for number in range(1, 8):
        members = [Member(directory, number, restore) for directory in directories]
        assert {member.state.value for member in members} == {restore[1] if restore else 0}
        complete = run_round(members, chance, monkeypatch)
        common = choose({str(directory): held(str(directory)) for directory in directories}, [])
        newest = max(complete, restore[1] if restore else 0)
        assert (common[1] if common else 0) >= newest
        restore = common
        for member in members:
            if (reserving := member.copier._reserving) is not None:
                reserving.join()

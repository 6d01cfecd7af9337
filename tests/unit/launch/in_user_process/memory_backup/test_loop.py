"""The order of the calls that a custom loop makes for its copies. Copies of a real one: tests/processes/launch."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tftraining.launch.in_user_process.memory_backup.interval import Schedule
from tftraining.launch.in_user_process.memory_backup.loop import Loop
from tftraining.launch.in_user_process.memory_backup.settings import CopySettings


class CopierThatIsAsked:
    """Makes copies at each step, and is asked for one at each step: this member alone."""

    agreed = True

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.schedule = Schedule()

    def asked(self, before: int, after: int) -> bool:
        return True

    def due(self, before: int, after: int) -> bool:
        self.calls.append("due")
        return True

    def copy(self, step: int, where: Any) -> None:
        self.calls.append("copy")

    def answer(self, step: int, where: Any) -> None:
        self.calls.append("answer")


def test_a_member_that_alone_is_asked_makes_the_copy_that_is_due_for_all() -> None:
    loop, copier = Loop.__new__(Loop), CopierThatIsAsked()
    loop._step, loop._began = 0, False
    loop._copier = copier  # type: ignore[assignment]
    loop.step(16)
    assert copier.calls == ["due", "copy", "answer"]


@pytest.mark.parametrize(("storage", "newer"), [(20, True), (32, False), (33, True), (90, True), (91, False)])
def test_a_backup_of_the_storage_that_may_have_the_difference_of_replicas_is_no_better_than_an_older_copy(
    storage: int, newer: bool
) -> None:
    """The training went back from step 90 at most to step 32, of which there is a copy."""
    told = json.dumps({"directory": "/none", "percent": 1, "doubted": [32, 90]})
    loop, chosen = Loop.__new__(Loop), list[bool]()
    loop._settings = CopySettings(told, {"TFTRAINING_ROUND": "2"})

    class Found(SimpleNamespace):
        def close(self) -> None:
            pass

    class Copier(SimpleNamespace):
        agreed = True
        restored_in = 0.0

        def choose(self, found: Any, is_newer: bool) -> None:
            chosen.append(is_newer)

    copier = Copier(agree=lambda: None, find=lambda: Found(step=32), begin=lambda step: None)
    loop._copier = copier  # type: ignore[assignment]
    assert loop.restore(storage) == storage
    assert chosen == [newer]

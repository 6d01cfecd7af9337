"""The order of the calls that a custom loop makes for its copies. Copies of a real one: tests/processes/launch."""

from __future__ import annotations

from typing import Any

from tftraining.launch.in_user_process.memory_backup.interval import Schedule
from tftraining.launch.in_user_process.memory_backup.loop import Loop


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

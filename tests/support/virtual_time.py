"""An asyncio event loop whose clock jumps to the next timer: a test of minutes takes milliseconds, without real I/O."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting, adds the time to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """No file is ever ready. The loop wakes itself up only if it has nothing to wait for, which is a deadlock."""
        if timeout is None:
            raise RuntimeError("deadlock: every task waits for another one")
        self.now += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual; it begins at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """The virtual time."""
        return self._jump.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; tasks that are left are cancelled."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)

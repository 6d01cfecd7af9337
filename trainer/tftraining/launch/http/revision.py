"""The revision of /status: a number that rises with each relevant change.

A client that sends the last revision it has seen is answered once there is a newer one (see server). A revision belongs
to one launcher: no revision of an earlier launcher equals one of this launcher. Progress is no relevant change: it
changes all the time, and clients can ask for it at any time.
"""

from __future__ import annotations

from collections.abc import Callable


class RevisionCounter:
    """Counts the changes of `read_state`, which returns all relevant state as comparable values."""

    def __init__(self, incarnation: str, read_state: Callable[[], object]) -> None:
        self._incarnation = incarnation
        self._read_state = read_state
        self._last_state: object = None
        self._number = 0

    def current(self) -> str:
        """The revision of the present state; opaque to clients."""
        state = self._read_state()
        if self._number == 0 or state != self._last_state:
            self._last_state = state
            self._number += 1
        return f"{self._incarnation}.{self._number}"

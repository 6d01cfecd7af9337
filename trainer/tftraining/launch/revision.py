"""Which version of /status a client has: a number that rises with each change of consequence.

A client that names the revision it has seen is answered when there is a newer one (see server). A revision is of one
launcher: what the launcher before this one has said is never taken for what this one says. Steps are no change: how far
the training is can be asked for at any time, and would be news all the time.
"""

from __future__ import annotations

from collections.abc import Callable


class Revisions:
    """`look` gives all that is of consequence, as values that can be compared."""

    def __init__(self, incarnation: str, look: Callable[[], object]) -> None:
        self._incarnation = incarnation
        self._look = look
        self._seen: object = None
        self._number = 0

    def current(self) -> str:
        """The revision of what there is to see now; opaque to clients."""
        seen = self._look()
        if self._number == 0 or seen != self._seen:
            self._seen = seen
            self._number += 1
        return f"{self._incarnation}.{self._number}"

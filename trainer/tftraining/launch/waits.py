"""Requests that are answered when something has changed: how many may hang at a time, and for how long.

They must never keep anybody else from an answer. When one more comes than there may be, the one that has hung longest
is answered at once with what there is: a client that is gone without a word cannot keep the others out.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from urllib.parse import parse_qs

HANGING = 4  # the operator, the one that takes its place in an upgrade, two for people
LONGEST_SECONDS = 60.0
LOOK_SECONDS = 0.1  # between two looks: what changes in between is answered as one change
SPARED = 20  # times as long as a look takes, it is not looked again: that of a gang of thousands takes milliseconds


class Wait:
    """What a query asks for: the revision that is known, "" to be answered at once, for how long to wait, and whether
    it is the short answer that is wanted."""

    def __init__(self, known: str = "", seconds: float = 0.0, short: bool = False) -> None:
        self.known = known
        self.seconds = seconds
        self.short = short

    @classmethod
    def of(cls, query: str) -> Wait:
        """From `changedSince=REVISION&timeoutSeconds=SECONDS&members=false`; ValueError for what is no number of
        seconds."""
        given = parse_qs(query)
        text = given.get("timeoutSeconds", [str(LONGEST_SECONDS)])[-1]
        seconds = float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else -1.0
        if seconds < 0:
            raise ValueError(f"timeoutSeconds must be a number of seconds, not {text[:32]!r}")
        short = given.get("members", ["true"])[-1] == "false"
        return cls(given.get("changedSince", [""])[-1], min(seconds, LONGEST_SECONDS), short)


class Waits:
    """Those that hang now, the longest first. `revision` tells what there is."""

    def __init__(self, revision: Callable[[], str]) -> None:
        self._revision = revision
        self._hanging: list[asyncio.Future[bytes]] = []

    async def until_changed(self, wait: Wait, gone: asyncio.Future[bytes]) -> None:
        """Return when there is another revision than the known one, when the time is over, when the client is gone, or
        when too many others wait."""
        released: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._hanging.append(released)
        if len(self._hanging) > HANGING:
            _release(self._hanging[0])
        deadline = time.monotonic() + wait.seconds
        try:
            while not (released.done() or gone.done()):
                looked = time.monotonic()
                if looked >= deadline or self._revision() != wait.known:
                    return
                pause = max(LOOK_SECONDS, (time.monotonic() - looked) * SPARED)
                await asyncio.wait({gone, released}, timeout=min(pause, deadline - looked), return_when=FIRST_COMPLETED)
        finally:
            self._hanging.remove(released)

    def release(self) -> None:
        """Answer all at once."""
        for each in self._hanging:
            _release(each)


def _release(hanging: asyncio.Future[bytes]) -> None:
    if not hanging.done():
        hanging.set_result(b"")

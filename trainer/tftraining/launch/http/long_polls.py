"""Requests that are answered once something has changed (long polling): how many may wait at a time, and how long.

They must never keep another client from an answer. One waiting request too many has the oldest one answered at once, so
a client that vanished without closing cannot keep others out.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from urllib.parse import parse_qs

MAX_WAITING = 4  # the operator, its successor in an upgrade, two for people
LONGEST_SECONDS = 60.0
CHECK_SECONDS = 0.1  # between two looks: all changes in between count as one
PAUSE_FACTOR = (
    20  # a pause is at least so many times a look's duration: a look at thousands of members takes milliseconds
)


class PollQuery:
    """A parsed query: the client's revision (`known`; "" to be answered at once), how long to wait, and whether the
    client wants the short answer."""

    def __init__(self, known: str = "", seconds: float = 0.0, short: bool = False) -> None:
        self.known_revision = known
        self.seconds = seconds
        self.short = short

    @classmethod
    def parse(cls, query: str) -> PollQuery:
        """Parse `changedSince=REVISION&timeoutSeconds=SECONDS&members=false`; ValueError for invalid seconds."""
        given = parse_qs(query)
        text = given.get("timeoutSeconds", [str(LONGEST_SECONDS)])[-1]
        seconds = float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else -1.0
        if seconds < 0:
            raise ValueError(f"timeoutSeconds must be a number of seconds, not {text[:32]!r}")
        short = given.get("members", ["true"])[-1] == "false"
        return cls(given.get("changedSince", [""])[-1], min(seconds, LONGEST_SECONDS), short)


class LongPolls:
    """The waiting requests, the oldest first. `revision` returns the present revision."""

    def __init__(self, revision: Callable[[], str]) -> None:
        self._revision = revision
        self._waiting: list[asyncio.Future[bytes]] = []

    async def wait_for_change(self, wait: PollQuery, gone: asyncio.Future[bytes]) -> None:
        """Return when the revision differs from the known one, the time is over, the client is gone, or too many
        others wait."""
        released: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(released)
        if len(self._waiting) > MAX_WAITING:
            _answer(self._waiting[0])
        deadline = time.monotonic() + wait.seconds
        try:
            while not (released.done() or gone.done()):
                looked = time.monotonic()
                if looked >= deadline or self._revision() != wait.known_revision:
                    return
                pause = max(CHECK_SECONDS, (time.monotonic() - looked) * PAUSE_FACTOR)
                await asyncio.wait({gone, released}, timeout=min(pause, deadline - looked), return_when=FIRST_COMPLETED)
        finally:
            self._waiting.remove(released)

    def answer_all(self) -> None:
        """Answer all waiting requests now."""
        for each in self._waiting:
            _answer(each)


def _answer(hanging: asyncio.Future[bytes]) -> None:
    if not hanging.done():
        hanging.set_result(b"")

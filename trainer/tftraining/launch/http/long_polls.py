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
CHECK_SECONDS = 0.1  # between two checks: all changes in between count as one
PAUSE_FACTOR = 20  # the pause after a check, in durations of the check: thousands of members take milliseconds


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
        parameters = parse_qs(query)
        text = parameters.get("timeoutSeconds", [str(LONGEST_SECONDS)])[-1]
        seconds = float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else -1.0
        if seconds < 0:
            raise ValueError(f"timeoutSeconds must be a number of seconds, not {text[:32]!r}")
        short = parameters.get("members", ["true"])[-1] == "false"
        return cls(parameters.get("changedSince", [""])[-1], min(seconds, LONGEST_SECONDS), short)


class LongPolls:
    """The waiting requests, the oldest first. `revision` returns the present revision."""

    def __init__(self, revision: Callable[[], str]) -> None:
        self._revision = revision
        self._waiting: list[asyncio.Future[bytes]] = []

    async def wait_for_change(self, query: PollQuery, disconnected: asyncio.Future[bytes]) -> None:
        """Return when the revision differs from the known one, the time is over, the client is gone, or too many
        others wait."""
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        if len(self._waiting) > MAX_WAITING:
            _answer(self._waiting[0])
        deadline = time.monotonic() + query.seconds
        try:
            while not (answered.done() or disconnected.done()):
                checked_at = time.monotonic()
                if checked_at >= deadline or self._revision() != query.known_revision:
                    return
                pause = max(CHECK_SECONDS, (time.monotonic() - checked_at) * PAUSE_FACTOR)
                await asyncio.wait(
                    {disconnected, answered}, timeout=min(pause, deadline - checked_at), return_when=FIRST_COMPLETED
                )
        finally:
            self._waiting.remove(answered)

    def answer_all(self) -> None:
        """Answer all waiting requests now."""
        for each in self._waiting:
            _answer(each)


def _answer(request: asyncio.Future[bytes]) -> None:
    if not request.done():
        request.set_result(b"")

"""One watch of a collection that lasts: it is resumed after a disconnection, and the collection is listed again only
when the API server has forgotten the version (410)."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal, NamedTuple

import aiohttp

from tftraining_api.kube.api import Api, ApiError, Query
from tftraining_api.model.spec import Manifest

logger = logging.getLogger(__name__)
WATCH_SECONDS = 3600
# The API server sends no bookmarks for events: only TCP tells a dead connection, and each watch is short.
EVENTS_SECONDS = 300
EVENTS_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=EVENTS_SECONDS + 30)
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
# After a watch that lasted so long the pause starts from FIRST_PAUSE again.
STEADY_SECONDS = 10.0
FATAL = (401, 403, 404)


class Change(NamedTuple):
    """A change of one object. LISTED, without an object, follows the last object of each list."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "LISTED"]
    object: Manifest


class Watch:
    """The changes of a collection: first each object as ADDED, then LISTED, then what happens.

    An error of the first list is raised; later ones only if repeating cannot help (a missing right). `interrupted` is
    called with each other error, `opened` when the API server accepts the watch, also after an interruption.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        query: Query,
        interrupted: Callable[[ApiError], None],
        events: bool = False,
        opened: Callable[[], None] | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._query = query
        self._interrupted = interrupted
        self._opened = opened
        self._seconds = EVENTS_SECONDS if events else WATCH_SECONDS
        self._patience = EVENTS_TIMEOUT if events else None
        self._known: dict[str, Manifest] = {}
        self._version = ""
        self._listed = False

    async def changes(self) -> AsyncGenerator[Change, None]:
        """The changes, without end."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                async with aclosing(self._once()) as changes:
                    async for change in changes:
                        yield change
                pause = FIRST_PAUSE if time.monotonic() - began > 1 else pause
            except ApiError as error:
                self._note(error)
                await asyncio.sleep(pause)
                pause = FIRST_PAUSE if time.monotonic() - began > STEADY_SECONDS else min(LONGEST_PAUSE, pause * 2)

    async def _once(self) -> AsyncGenerator[Change, None]:
        """One watch, after a list if the version is unknown."""
        if not self._version:
            raws, version = await self._api.list(self._path, self._query)
            changes = self._compared(raws)
            # Set before the first yield: the caller may stop here.
            self._version, self._listed = str(version), True
            for change in changes:
                yield change
            yield Change("LISTED", {})
        query = [
            *self._query,
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(self._seconds)),
            ("resourceVersion", self._version),
        ]
        async with aclosing(self._api.watch(self._path, query, self._patience, self._opened)) as events:
            async for event in events:
                raw = event["object"]
                self._version = raw["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._remember(event["type"], raw)
                    yield Change(event["type"], raw)

    def _remember(self, kind: str, raw: Manifest) -> None:
        if kind == "DELETED":
            self._known.pop(raw["metadata"]["uid"], None)
        else:
            self._known[raw["metadata"]["uid"]] = raw

    def _compared(self, raws: list[Manifest]) -> list[Change]:
        """The changes between the objects known so far and those of a new list."""
        now = {raw["metadata"]["uid"]: raw for raw in raws}
        gone = [Change("DELETED", raw) for uid, raw in self._known.items() if uid not in now]
        fresh = [
            Change("MODIFIED" if uid in self._known else "ADDED", raw)
            for uid, raw in now.items()
            if uid not in self._known or _version(self._known[uid]) != _version(raw)
        ]
        self._known = now
        return [*gone, *fresh]

    def _note(self, error: ApiError) -> None:
        """Raises the error if another try cannot help."""
        if error.status == 410:
            logger.info("the watch of %s has expired; listing again", self._path)
            self._version = ""
        elif not self._listed or error.status in FATAL:
            raise error
        else:
            self._interrupted(error)


def _version(raw: Manifest) -> str:
    return str(raw["metadata"]["resourceVersion"])

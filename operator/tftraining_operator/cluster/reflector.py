"""Keeps a store equal to what the API server has: list, watch, and list again when the watch has expired.

Unlike kopf's index it synthesises the deletes that fell into a gap, selects by label on the server, and starts up in
linear time (kopf's took 77 CPU seconds with 4,000 pods).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable

from tftraining_operator.cluster.api import WATCH_SILENCE, Api, ApiError
from tftraining_operator.cluster.store import Store
from tftraining_operator.model.names import LABEL_JOB, Key
from tftraining_operator.model.spec import Manifest

logger = logging.getLogger(__name__)
PAGE = 1000
WATCH_SECONDS = 300
LONGEST_PAUSE = 30.0


class Reflector:
    """Watches the children of one kind (`pods`, `services`) in one namespace, or in all if it is empty."""

    def __init__(self, api: Api, kind: str, namespace: str, store: Store, changed: Callable[[Key], None]) -> None:
        self._api = api
        self.what = f"{kind} in {namespace or 'all namespaces'}"
        self._path = f"/api/v1/namespaces/{namespace}/{kind}" if namespace else f"/api/v1/{kind}"
        self._namespace = namespace
        self._store = store
        self._changed = changed
        self._version = ""
        self._heard = time.monotonic()
        self.synced = asyncio.Event()

    @property
    def alive(self) -> bool:
        """Whether the API server has been heard of lately; a bookmark a minute is enough."""
        return time.monotonic() - self._heard < WATCH_SILENCE + LONGEST_PAUSE

    async def run(self) -> None:
        """Reflect until cancelled. Errors are logged once each and retried, ever more slowly."""
        pause = 0.5
        while True:
            try:
                await self._once()
                pause = 0.5
            except ApiError as error:
                if error.status == 410:
                    logger.info("the watch of %s has expired: listing again", self.what)
                    self._version = ""
                    continue
                logger.warning("watching %s: %s; trying again in %.0f s", self.what, error, pause)
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(LONGEST_PAUSE, pause * 2)

    async def _once(self) -> None:
        """One watch, after a list where one is needed."""
        if not self._version:
            await self._list()
            self.synced.set()
        query = [
            ("labelSelector", LABEL_JOB),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_SECONDS)),
            ("resourceVersion", self._version),
        ]
        async for event in self._api.watch(self._path, query):
            self._heard = time.monotonic()
            self._take(event["type"], event["object"])

    async def _list(self) -> None:
        query, more = [("labelSelector", LABEL_JOB), ("limit", str(PAGE))], ""
        raws: list[Manifest] = []
        while True:
            page = await self._api.request("GET", self._path, query=query + ([("continue", more)] if more else []))
            raws += page.get("items") or []
            meta = page["metadata"]
            if not (more := meta.get("continue", "")):
                break
        self._heard = time.monotonic()
        for key in self._store.replace(self._namespace, raws, int(meta["resourceVersion"])):
            self._changed(key)
        self._version = meta["resourceVersion"]

    def _take(self, kind: str, raw: Manifest) -> None:
        self._version = raw["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        key = self._store.discard(raw) if kind == "DELETED" else self._store.upsert(raw)
        if key is not None:
            self._changed(key)

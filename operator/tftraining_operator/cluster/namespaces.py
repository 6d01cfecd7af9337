"""The watches of one namespace, or of all namespaces under an empty name: pods, Services, jobs and events.

A namespace is served once its pods and Services are cached: before that, every pod of its jobs would look lost. One
whose objects the API server refuses to this account is tried again and again, and holds up no other: it has been
deleted, or its Role is still to come. Never changes anything in a namespace.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.names import GROUP, PLURAL, VERSION, Key
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.reflector import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    LONGEST_REFUSED_PAUSE,
    Reflector,
    jittered,
    log_refusal,
)

logger = logging.getLogger(__name__)


class Namespace:
    """One namespace. `serve` is called with its name when its jobs may be watched, `changed` with the key of a job
    whose children have changed."""

    def __init__(
        self,
        api: Api,
        name: str,
        children: Children,
        changed: Callable[[Key], None],
        serve: Callable[[str], Awaitable[None]],
    ) -> None:
        self._api, self._serve = api, serve
        self.name = name
        self.caches: list[Reflector[Any]] = [
            Reflector(api, kind, name, store, changed)
            for kind, store in (("pods", children.pods), ("services", children.services))
        ]
        self.events: Reflector[Any] = Reflector(api, "events", name, children.warnings, changed)
        self._jobs = f"jobs in {name}"
        self._jobs_refused = False
        self._jobs_tried = asyncio.Event()

    @property
    def refused(self) -> list[str]:
        """What the API server refuses."""
        watches = [each.description for each in (*self.caches, self.events) if each.refused]
        return [*watches, *([self._jobs] if self._jobs_refused else [])]

    async def settled(self) -> None:
        """Wait until the namespace is served, or refused."""
        await asyncio.gather(*(each.tried.wait() for each in self.caches))
        if not any(each.refused for each in self.caches):
            await self._jobs_tried.wait()

    def parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The watches to run, by what they are."""
        parts = {f"the watch of {each.description}": each.run() for each in self.caches}
        return {**parts, f"the watch of {self.events.description}": self._run()}

    async def _run(self) -> None:
        """Serve the namespace once its caches are filled; events come later: one about an unknown pod is dropped."""
        await asyncio.gather(*(each.synced.wait() for each in self.caches))
        if self.name:
            await self._until_jobs_may_be_listed()
        await self._serve(self.name)
        self._jobs_tried.set()
        await self.events.run()

    async def _until_jobs_may_be_listed(self) -> None:
        """kopf ends the process if they may not."""
        path, pause = f"/apis/{GROUP}/{VERSION}/namespaces/{self.name}/{PLURAL}", FIRST_PAUSE
        while True:
            try:
                await self._api.request("GET", path, query=[("limit", "1")])
            except ApiError as error:
                if error.status in (403, 404):
                    if not self._jobs_refused:
                        log_refusal(self._jobs, "", error)
                    self._jobs_refused = True
                    self._jobs_tried.set()
            else:
                self._jobs_refused = False
                return
            await asyncio.sleep(jittered(pause))
            pause = min(LONGEST_REFUSED_PAUSE if self._jobs_refused else LONGEST_PAUSE, pause * 2)

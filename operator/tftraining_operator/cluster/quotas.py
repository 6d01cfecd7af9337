"""Wakes the jobs whose pods a ResourceQuota has refused, when the quota has room for them.

The quotas of a namespace are watched only while a job there is refused, because a watch takes a connection. Each change
wakes only a few jobs, because a retry costs requests. Without the right to watch quotas, which is tried again,
a job waits for its own next retry. Never retries anything itself, and never decides what a refusal means.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.names import Key
from tftraining_api.model.quantity import in_milli
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.reflector import Reflector
from tftraining_operator.model.observed import Refusal

logger = logging.getLogger(__name__)
KIND = "resourcequotas"
MOST_WATCHES = 50
READ_SECONDS = 2.0
# Free quota is seldom enough for many jobs: those that wait longest are woken first, and move to the end of the queue.
MOST_WOKEN = 5
# The API server's message about a request that exceeds a quota.
_EXCEEDED = re.compile(r"exceeded quota: (?P<quota>[^,]+), requested: (?P<requested>.*?), used: ")


class QuotaRequest(NamedTuple):
    """The refused amounts by resource, in thousandths, and the name of the quota that refused them."""

    quota: str
    requested: dict[str, int]


class _Watch(NamedTuple):
    reflector: Reflector[Any]
    task: asyncio.Task[None]


class Quotas:
    """The jobs that quotas hold back. Calls `wake` with each job that has room; `everywhere` is whether one watch may
    cover all namespaces."""

    def __init__(self, api: Api, wake: Callable[[Key], None], everywhere: bool) -> None:
        self._api = api
        self._wake = wake
        self._everywhere = everywhere
        # In the order in which to wake the jobs.
        self._held: dict[Key, QuotaRequest] = {}
        self._with_room: set[Key] = set()
        self._watches: dict[str, _Watch] = {}
        self._without: dict[str, float] = {}
        self._put_off: dict[str, tuple[float, ApiError]] = {}

    @property
    def watches(self) -> int:
        """The number of open watches; each takes a connection."""
        return sum(1 for each in self._watches.values() if not (each.task.done() or each.reflector.refused))

    @property
    def refused(self) -> list[str]:
        """The watches that the API server refuses to this account."""
        return [each.reflector.description for each in self._watches.values() if each.reflector.refused]

    async def read(self, namespace: str, fresh: bool = False) -> list[Manifest]:
        """The quotas of the namespace; none if this account may not list them. That a namespace has none may be known
        from READ_SECONDS ago unless the answer has to be `fresh`: a thousand new jobs are no thousand lists. If the
        server has asked one job to wait, all wait: the answer is the same ApiError, without a request."""
        now = asyncio.get_running_loop().time()
        if not fresh and now - self._without.get(namespace, -READ_SECONDS) < READ_SECONDS:
            return []
        until, told = self._put_off.get(namespace, (now, None))
        if told is not None and now < until:
            raise ApiError(told.status, told.reason, told.message, until - now)
        self._without.pop(namespace, None)
        self._put_off.pop(namespace, None)
        try:
            quotas, _ = await self._api.list(f"/api/v1/namespaces/{namespace}/{KIND}", [])
        except ApiError as error:
            if error.status not in (403, 404):
                if error.retry_after > 0:
                    self._put_off[namespace] = (now + error.retry_after, error)
                raise
            quotas = []
        if not quotas:
            self._without[namespace] = now
        return quotas

    def follow(self, key: Key, refusal: Refusal | None, request: QuotaRequest | None = None) -> None:
        """Watch the quotas for this job while its last refusal is by a quota, or it waits for the room of `request`."""
        request = request or (parse_exceeded_quota(refusal.message) if refusal is not None else None)
        if request is not None:
            self._held[key] = request
            self._begin(self._scope(key))
        elif self._held.pop(key, None) is not None:
            self._end_if_unused(self._scope(key))
        self._with_room.discard(key)

    def has_room(self, key: Key) -> bool:
        """Whether the quota has had room for the job since the job's last attempt."""
        return key in self._with_room

    async def close(self) -> None:
        """End all watches."""
        tasks = [each.task for each in self._watches.values()]
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _scope(self, key: Key) -> str:
        return "" if self._everywhere else key.namespace

    def _begin(self, scope: str) -> None:
        known = self._watches.get(scope)
        there = known is not None and not known.task.done()
        if not there and self.watches < MOST_WATCHES:
            reflector = Reflector(self._api, KIND, scope, self, self.note_room)
            self._watches[scope] = _Watch(reflector, asyncio.create_task(reflector.run()))

    def _end_if_unused(self, scope: str) -> None:
        if scope in self._watches and not any(self._scope(key) == scope for key in self._held):
            self._watches.pop(scope).task.cancel()

    def note_room(self, key: Key) -> None:
        """Let the job try again."""
        logger.debug("%s: retrying: its quota has room", key)
        # Move the job to the end, so that the next change wakes another job.
        self._held[key] = self._held.pop(key)
        self._with_room.add(key)
        self._wake(key)

    # --- the reflector's Cache protocol

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The quota's metadata and status only."""
        return {name: raw[name] for name in ("metadata", "status") if name in raw}

    def upsert(self, raw: Manifest) -> set[Key]:
        """Take in a new or changed quota; returns the jobs to wake."""
        room = room_of(raw.get("status") or {})
        return self._first(raw, lambda request: fits(request, room))

    def discard(self, raw: Manifest) -> set[Key]:
        """Take in the deletion of a quota; returns the jobs to wake."""
        return self._first(raw, lambda request: fits(request, {}))

    def replace(self, _: str, __: Iterable[Manifest], ___: int) -> set[Key]:
        """Do nothing: no quotas are cached. A job whose quota was deleted in a gap of the watch retries by itself."""
        return set()

    def _first(self, raw: Manifest, is_met: Callable[[QuotaRequest], bool]) -> set[Key]:
        namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
        held = (
            (key, request) for key, request in self._held.items() if (key.namespace, request.quota) == (namespace, name)
        )
        woken = [key for key, request in held if key not in self._with_room and is_met(request)]
        return set(woken[:MOST_WOKEN])


def parse_exceeded_quota(message: str) -> QuotaRequest | None:
    """Parse an API server's message about an exceeded quota; None for any other message."""
    found = _EXCEEDED.search(message)
    if found is None:
        return None
    pairs = (each.partition("=") for each in found["requested"].split(","))
    requested = {resource: in_milli(amount) for resource, _, amount in pairs}
    known = {resource: amount for resource, amount in requested.items() if amount is not None}
    return QuotaRequest(found["quota"], known) if len(known) == len(requested) else None


def room_of(status: Manifest) -> dict[str, int]:
    """The free amounts of a quota, by resource, in thousandths. What is no quantity counts as 0."""
    hard, used = status.get("hard") or {}, status.get("used") or {}
    return {each: (in_milli(limit) or 0) - (in_milli(used.get(each)) or 0) for each, limit in hard.items()}


def fits(request: QuotaRequest, room: dict[str, int]) -> bool:
    """Whether the requested amounts fit in `room`, which has only the limited resources."""
    return all(amount <= room[each] for each, amount in request.requested.items() if each in room)

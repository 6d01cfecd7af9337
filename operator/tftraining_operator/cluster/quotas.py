"""Wakes the jobs that a ResourceQuota holds, when there is room for what it has refused them.

The quotas of a namespace are watched only while a job there is held, and a few jobs are woken by each change: a watch
takes a connection, and a try costs requests. Without the right to watch them each job's own next try has to do. Never
tries anything itself, and never decides what a refusal means.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import NamedTuple

from kubernetes.utils.quantity import parse_quantity

from tftraining_operator.cluster.api import Api
from tftraining_operator.cluster.reflector import Reflector, may_read
from tftraining_operator.model.names import Key
from tftraining_operator.model.observed import Refusal
from tftraining_operator.model.spec import Manifest

logger = logging.getLogger(__name__)
KIND = "resourcequotas"
MOST_WATCHES = 50
# What is left in a quota is seldom enough for many: those that wait longest come first, and go to the end of the line.
MOST_WOKEN = 5
# How the API server words what a quota has not allowed.
_EXCEEDED = re.compile(r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>.*?), used: ")
_UNTOLD = "jobs that a quota holds are not woken when it changes: this account may not list and watch resourcequotas"


class Ask(NamedTuple):
    """What the quota of that name has not allowed, by resource."""

    quota: str
    asked: dict[str, Decimal]


class Quotas:
    """The jobs that quotas hold. `wake` is told of those that have room; `everywhere` is whether all namespaces may be
    watched at once."""

    def __init__(self, api: Api, wake: Callable[[Key], None], everywhere: bool) -> None:
        self._api = api
        self._wake = wake
        self._everywhere = everywhere
        # In the order in which they are to be woken.
        self._held: dict[Key, Ask] = {}
        self._with_room: set[Key] = set()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._unreadable: set[str] = set()

    @property
    def watches(self) -> int:
        """How many watches there are: each takes a connection."""
        return sum(1 for each in self._watches.values() if not each.done())

    def follow(self, key: Key, refusal: Refusal | None) -> None:
        """Watch the quotas for this job as long as its last refusal was by one of them."""
        ask = parse_ask(refusal.message) if refusal is not None else None
        if ask is not None:
            self._held[key] = ask
            self._begin(self._scope(key))
        elif self._held.pop(key, None) is not None:
            self._end_if_unused(self._scope(key))
        self._with_room.discard(key)

    def has_room(self, key: Key) -> bool:
        """Whether there was room for what was refused, since that was last tried."""
        return key in self._with_room

    async def close(self) -> None:
        """Watch nothing any more."""
        tasks = list(self._watches.values())
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _scope(self, key: Key) -> str:
        return "" if self._everywhere else key.namespace

    def _begin(self, scope: str) -> None:
        known = self._watches.get(scope)
        there = known is not None and not known.done()
        if not there and scope not in self._unreadable and self.watches < MOST_WATCHES:
            self._watches[scope] = asyncio.create_task(self._watch(scope))

    def _end_if_unused(self, scope: str) -> None:
        if scope in self._watches and not any(self._scope(key) == scope for key in self._held):
            self._watches.pop(scope).cancel()

    async def _watch(self, scope: str) -> None:
        reflector = Reflector(self._api, KIND, scope, self, self.note_room)
        if not await may_read(self._api, reflector.path, "" if self._unreadable else _UNTOLD):
            self._unreadable.add(scope)
            return
        await reflector.run()

    def note_room(self, key: Key) -> None:
        """The job may try again."""
        logger.debug("%s: the quota that holds it has room", key)
        # The next one that is woken is another one.
        self._held[key] = self._held.pop(key)
        self._with_room.add(key)
        self._wake(key)

    # --- what the reflector feeds

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The quota without what nobody asks for."""
        return {name: raw[name] for name in ("metadata", "status") if name in raw}

    def upsert(self, raw: Manifest) -> set[Key]:
        """Take in a new or changed quota; the jobs to wake."""
        room = room_of(raw.get("status") or {})
        return self._first(raw, lambda ask: fits(ask, room))

    def discard(self, raw: Manifest) -> set[Key]:
        """The quota is gone; the jobs to wake."""
        return self._first(raw, lambda ask: fits(ask, {}))

    def replace(self, _: str, __: Iterable[Manifest], ___: int) -> set[Key]:
        """Nothing is kept that could be missing. Whoever is held by a quota that is gone tries by itself."""
        return set()

    def _first(self, raw: Manifest, is_met: Callable[[Ask], bool]) -> set[Key]:
        namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
        held = ((key, ask) for key, ask in self._held.items() if (key.namespace, ask.quota) == (namespace, name))
        woken = [key for key, ask in held if key not in self._with_room and is_met(ask)]
        return set(woken[:MOST_WOKEN])


def parse_ask(message: str) -> Ask | None:
    """What a quota has not allowed, in the API server's words; None if it was no quota, or the words are others."""
    found = _EXCEEDED.search(message)
    if found is None:
        return None
    pairs = (each.partition("=") for each in found["asked"].split(","))
    try:
        return Ask(found["quota"], {resource: parse_quantity(amount) for resource, _, amount in pairs})
    except ValueError:
        return None


def room_of(status: Manifest) -> dict[str, Decimal]:
    """What a quota has left, by resource."""
    hard, used = status.get("hard") or {}, status.get("used") or {}
    return {each: parse_quantity(limit) - parse_quantity(used.get(each, "0")) for each, limit in hard.items()}


def fits(ask: Ask, room: dict[str, Decimal]) -> bool:
    """Whether there is room for what was asked for; what is not limited is not in `room`."""
    return all(amount <= room[each] for each, amount in ask.asked.items() if each in room)

"""A Lease in memory behind a network that delays and loses what a test tells it to; the API server's semantics only."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import NamedTuple, TypeVar

from tftraining_api.kube.api import ApiError
from tftraining_operator.cluster.lease import LEASE_SECONDS, LeaseName
from tftraining_operator.model.lease import LeaseClaim, LeaseRecord

T = TypeVar("T")


class Hop(NamedTuple):
    """One request through the network: the seconds to the server and back. A lost request never arrives; a lost answer
    does not come back, although the server has carried the request out."""

    there: float = 0.005
    back: float = 0.005
    request_lost: bool = False
    answer_lost: bool = False


class LeaseServer:
    """The only lease, and its history. A write must name the version that it changes."""

    def __init__(self) -> None:
        self.history: list[LeaseRecord | None] = [None]
        self._changed = asyncio.Event()

    @property
    def record(self) -> LeaseRecord | None:
        """The lease; None if there is none."""
        return self.history[-1]

    def write(self, holder: str, claim: LeaseClaim) -> LeaseRecord:
        """Create the lease, or change that version of it; ApiError otherwise."""
        if claim.version and self.record is None:
            raise ApiError(404, "NotFound", "no such lease")
        if claim.version != (self.record.version if self.record is not None else ""):
            raise ApiError(409, "Conflict" if claim.version else "AlreadyExists", "the lease has changed")
        record = LeaseRecord(holder, LEASE_SECONDS, claim.transitions, str(len(self.history)))
        self._append(record)
        return record

    def delete(self) -> None:
        """Delete the lease, as somebody does by hand."""
        self._append(None)

    def _append(self, record: LeaseRecord | None) -> None:
        self.history.append(record)
        self._changed.set()
        self._changed = asyncio.Event()

    async def after(self, place: int) -> LeaseRecord | None:
        """The change at this place of the history, when it is there."""
        while place >= len(self.history):
            await self._changed.wait()
        return self.history[place]


class LeaseConnection:
    """A candidate's connection to the server, in place of Lease. Each request takes the next hop; without any left the
    network is quick and loses nothing. While `is_cut` everything is lost, and watches are silent."""

    name = LeaseName("system", "operator")

    def __init__(self, server: LeaseServer, hops: Iterator[Hop], is_cut: Callable[[], bool] = lambda: False) -> None:
        self._server = server
        self._is_cut = is_cut
        self._hops = hops
        self._arrivals: set[asyncio.Task[object]] = set()

    async def read(self) -> LeaseRecord | None:
        """As Lease.read."""
        return await self._request(lambda: self._server.record)

    async def write(self, holder: str, claim: LeaseClaim, acquired: bool) -> LeaseRecord:
        """As Lease.write."""
        return await self._request(lambda: self._server.write(holder, claim))

    async def changes(self, version: str) -> AsyncGenerator[LeaseRecord | None, None]:
        """As Lease.changes; a lost request or answer is a watch that stays silent."""
        hop = next(self._hops, Hop())
        await asyncio.sleep(hop.there)
        if hop.request_lost or hop.answer_lost or self._is_cut():
            await _never()
        place = int(version) + 1
        while True:
            record = await self._server.after(place)
            await asyncio.sleep(hop.back)
            if self._is_cut():
                await _never()
            yield record
            place += 1

    async def _request(self, act: Callable[[], T]) -> T:
        """Carry a request out, even if the client gives up on it meanwhile."""
        arrival = asyncio.ensure_future(self._arrive(act, next(self._hops, Hop())))
        self._arrivals.add(arrival)
        arrival.add_done_callback(self._arrived)
        return await asyncio.shield(arrival)

    def _arrived(self, arrival: "asyncio.Task[object]") -> None:
        self._arrivals.discard(arrival)
        if not arrival.cancelled():
            arrival.exception()

    async def _arrive(self, act: Callable[[], T], hop: Hop) -> T:
        await asyncio.sleep(hop.there)
        if hop.request_lost or self._is_cut():
            await _never()
        try:
            return act()
        finally:
            await asyncio.sleep(hop.back)
            if hop.answer_lost or self._is_cut():
                await _never()


async def _never() -> None:
    # A timer far away: a loop in virtual time without any would be taken for a deadlock.
    await asyncio.sleep(1e6)

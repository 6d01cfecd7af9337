"""Elects one leader among the operator's processes, by a Lease: acquires the lease, renews it, and releases it.

The semantics are those of client-go, except that a process counts the age of a lease by its own monotonic clock, and
that a candidate watches the lease instead of polling. The leader's deadline counts from the moment at which it sent
its last renewal, a candidate's wait from the later moment at which it saw that renewal: between the two are at least
LEASE_SECONDS - RENEW_DEADLINE, for writes that are on their way.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from tftraining_api.kube.api import ApiError
from tftraining_operator.cluster.fence import STALL_SECONDS, Fence
from tftraining_operator.cluster.lease import RENEW_DEADLINE, RETRY_PERIOD, LeaderLease
from tftraining_operator.model.lease import LeaseClaim, LeaseRecord, Observation, Wait, decide, observe

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)
# A request that hangs leaves time for another one, on a new connection, before the deadline.
REQUEST_SECONDS = RENEW_DEADLINE / 2
# Less time than that is too short for a request.
LAST_MOMENT = 0.05
JITTER, RACE_PAUSE = 0.2, 0.1
# A failure that lasts is logged so often.
REPORT_SECONDS = 60.0
FORBIDDEN = "the operator's account needs the chart's Role and RoleBinding for the leader election"


class LeaderElector:
    """One candidate. `identity` is unique for each process; `may_lead` returns why this process must not lead yet, such
    as a process that takes part in no election, or "" if it may."""

    def __init__(self, lease: LeaderLease, identity: str, fence: Fence, may_lead: Callable[[], Awaitable[str]]) -> None:
        self.fence = fence
        self._lease = lease
        self._identity = identity
        self._may_lead = may_lead
        self._clock = fence.clock
        self._seen: Observation | None = None
        self._reported = ("", 0.0)

    @property
    def knows_lease(self) -> bool:
        """Whether the API server has let this process look for the lease."""
        return self._seen is not None

    async def run(self) -> str:
        """Acquire the lease, and renew it until it is lost; returns why it is lost."""
        await self._acquire()
        return await self._renew()

    async def release(self) -> None:
        """Release the lease, if this process holds it, so that another candidate leads at once."""
        try:
            await self._bounded(self._release())
        except (ApiError, TimeoutError) as error:
            logger.warning("cannot release the lease %s: %s", self._lease.name, _words(error))

    async def _release(self) -> None:
        try:
            await self._write_release()
        except ApiError as error:
            if error.status != 409:
                raise
            # The answer to a renewal was lost when `run` was cancelled.
            self._note(await self._lease.read())
            await self._write_release()

    async def _write_release(self) -> None:
        record = self._seen.record if self._seen is not None else None
        if record is not None and record.holder == self._identity:
            await self._lease.write("", LeaseClaim(record.version, record.transitions), acquired=False)
            logger.info("released the lease %s", self._lease.name)

    # --- a candidate

    async def _acquire(self) -> None:
        while True:
            began, pause = self._clock(), RETRY_PERIOD
            try:
                self._note(await self._bounded(self._lease.read()))
                if await self._claim_when_free():
                    return
            except (ApiError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.status == 409:
                    # Another candidate was faster, or this one missed the answer to its own claim.
                    pause = RACE_PAUSE
                else:
                    self._report(f"cannot acquire the lease {self._lease.name}: {_words(error)}", logging.WARNING)
            # A watch ends every few minutes: the next one begins at once.
            if self._clock() - began < RETRY_PERIOD:
                await asyncio.sleep(pause * random.uniform(1, 1 + JITTER))

    async def _claim_when_free(self) -> bool:
        """Claim the lease once it is free. False if that is unknown: the watch has ended, or there is no lease."""
        step = self._decide()
        if isinstance(step, Wait):
            step = await self._watch(step)
        if isinstance(step, Wait) or self.fence.stands_still:
            return False
        if why := await self._bounded(self._may_lead()):
            self._report(f"waiting to lead: {why}", logging.WARNING)
            return False
        await self._claim(step)
        logger.info("leading: %s holds the lease %s", self._identity, self._lease.name)
        return True

    async def _watch(self, wait: Wait) -> LeaseClaim | Wait:
        """Watch the lease until this process may claim it, or the watch has ended."""
        record = self._seen.record if self._seen is not None else None
        if record is None:
            return wait
        self._report(f"standing by: {record.holder} holds the lease {self._lease.name}")
        step: LeaseClaim | Wait = wait
        try:
            async with (
                asyncio.timeout(wait.until - self._clock()) as limit,
                aclosing(self._lease.changes(record.version)) as changes,
            ):
                async for each in changes:
                    self._note(each)
                    step = self._decide()
                    if isinstance(step, LeaseClaim):
                        return step
                    limit.reschedule(asyncio.get_running_loop().time() + step.until - self._clock())
        except TimeoutError:
            return self._decide()
        return step

    # --- the leader

    async def _renew(self) -> str:
        why = f"not renewed within {RENEW_DEADLINE:g} s"
        while (left := self._left()) > LAST_MOMENT:
            await asyncio.sleep(min(RETRY_PERIOD, left))
            if self._left() <= LAST_MOMENT:
                break
            if self.fence.stands_still:
                why = f"not renewed, because the event loop has stood still for {STALL_SECONDS:g} s"
                continue
            try:
                if holder := await self._renew_once():
                    why = f"{holder} holds it"
                    break
            except (ApiError, TimeoutError) as error:
                why = f"not renewed within {RENEW_DEADLINE:g} s: {_words(error)}"
                logger.warning("cannot renew the lease %s: %s", self._lease.name, _words(error))
        self.fence.close()
        return why

    def _left(self) -> float:
        """The seconds for which this process leads without another renewal."""
        return self.fence.deadline - self._clock() if self.fence.open else 0.0

    async def _renew_once(self) -> str:
        """Renew the lease; returns the holder if that is another process."""
        try:
            await self._claim(self._decide())
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        else:
            return ""
        # The lease has changed: this process missed the answer to a renewal, or somebody else wrote it.
        self._note(await self._bounded(self._lease.read()))
        record = self._seen.record if self._seen is not None else None
        if record is not None and record.holder not in ("", self._identity):
            return record.holder
        await self._claim(self._decide())
        return ""

    # --- both

    def _decide(self) -> LeaseClaim | Wait:
        assert self._seen is not None, "decided before the first look at the lease"
        return decide(self._identity, self._seen, self._clock())

    async def _claim(self, step: LeaseClaim | Wait) -> None:
        assert isinstance(step, LeaseClaim), "the leader's own lease is never waited for"
        held = self._seen.record if self._seen is not None else None
        acquired = held is None or held.holder != self._identity
        sent = self._clock()
        self._note(await self._bounded(self._lease.write(self._identity, step, acquired)))
        self.fence.extend(sent + RENEW_DEADLINE)

    def _note(self, record: LeaseRecord | None) -> None:
        self._seen = observe(self._identity, self._seen, record, self._clock())

    async def _bounded(self, request: Awaitable[Answer]) -> Answer:
        left = self.fence.deadline - self._clock() if self.fence.was_opened else REQUEST_SECONDS
        async with asyncio.timeout(max(0.0, min(REQUEST_SECONDS, left))):
            return await request

    def _report(self, text: str, level: int = logging.INFO) -> None:
        """Log a state when it begins, and from time to time while it lasts."""
        said, at = self._reported
        if text != said or self._clock() - at >= REPORT_SECONDS:
            logger.log(level, "%s", text)
            self._reported = (text, self._clock())


def _words(error: Exception) -> str:
    if isinstance(error, ApiError) and error.status == 403:
        return f"{error}; {FORBIDDEN}"
    return str(error) or "no answer in time"

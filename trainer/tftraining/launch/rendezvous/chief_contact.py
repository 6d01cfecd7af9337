"""What a member knows of the chief's launcher: when it last answered, and what follows while there is none.

A member's lease is the time for which its program may run after the chief's last answer (echo) to a heartbeat. It is
shorter than the chief's member timeout, and the chief echoes only heartbeats that it has received. So the program is
dead before the chief replaces the member, whichever direction of the network fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tftraining.launch.config.settings import Settings
from tftraining.launch.failure import restart_budget
from tftraining.launch.failure.restart_scope import restarts_alone
from tftraining.launch.failure.result import FAILED, Result
from tftraining.launch.roles import traits_of
from tftraining.launch.success_record import FileRecord

LEASE = 5 / 6  # the maximum age of the last echo, as a fraction of the member timeout


class ChiefContact:
    """Times are monotonic seconds. `address` is the rendezvous, for messages; `log` logs a line; `record` is the one of
    the job's success."""

    def __init__(self, settings: Settings, address: str, log: Callable[[str], None], record: FileRecord) -> None:
        self.start_deadline = settings.policy.start_deadline_seconds
        self.closed_round = 0  # the last round in which the chief closed the connection
        self.bye_round = 0  # the last round in which the chief's launcher reported that its program has ended
        self.disconnected_at: float | None = None  # the end of the last rendezvous connection
        self._settings = settings
        self._address = address
        self._log = log
        self._echoed_at = 0.0  # when this member sent the newest heartbeat that the chief has echoed
        self._missing_since = time.monotonic()
        self._problem = ""
        self._record = record
        self._reading: asyncio.Future[Result | None] | None = None
        self._look_at = 0.0  # no look at the record before

    @property
    def lease_deadline(self) -> float:
        """When the program must be dead, unless the chief's echo renews the lease."""
        return self._echoed_at + self._settings.policy.member_timeout_seconds * LEASE

    def silent_seconds(self, now: float) -> float:
        """The age of the last echo."""
        return now - self._echoed_at

    def record_echo(self, sent_at: float) -> None:
        """Begin or renew the lease: the chief has answered the hello or heartbeat that was sent at this time."""
        self._echoed_at = max(self._echoed_at, sent_at)

    def record_loss(self) -> None:
        """Begin the time without a chief."""
        self._missing_since = time.monotonic()
        self._look_at = self._missing_since + self._record.first_look

    def close(self) -> None:
        """Cancel a look at the record."""
        if self._reading is not None:
            self._reading.cancel()

    def log_problem(self, problem: str) -> None:
        """Log why there is no rendezvous, once."""
        if problem != self._problem:
            self._problem = problem
            self._log(f"tftraining: {self._settings.gang.chief} at {self._address}: {problem}")

    async def result_without_chief(self) -> Result | None:
        """The result without a chief: a success recorded in the job's storage, or StartDeadlineExceeded, or None."""
        found = await self._read_success()
        if found is not None or not self._is_needed() or not self._is_late():
            return found
        within = restart_budget.start_limit(self.start_deadline)
        message = f"no rendezvous with {self._settings.gang.chief} within {within}: {self._problem}"
        return Result(FAILED, restart_budget.START_DEADLINE, message)

    def _is_needed(self) -> bool:
        """Whether the gang cannot train without this member."""
        gang, policy = self._settings.gang, self._settings.policy
        alone = restarts_alone(traits_of(gang.me), policy.scope, gang.me == gang.chief)
        return self._settings.indispensable and not alone

    def _is_late(self) -> bool:
        return time.monotonic() - self._missing_since > self.start_deadline + restart_budget.CHIEF_LATE_SECONDS

    async def _read_success(self) -> Result | None:
        """The success recorded in the job's storage. All looks share one read, for the storage may hang."""
        if self._reading is None:
            if time.monotonic() < self._look_at:
                return None
            self._look_at = time.monotonic() + self._record.pause
            self._reading = asyncio.ensure_future(self._record.read())
        done, _ = await asyncio.wait([self._reading], timeout=self._record.look_seconds)
        if not done:
            return None
        found, self._reading = self._reading.result(), None
        return found

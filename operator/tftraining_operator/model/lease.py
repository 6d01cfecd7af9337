"""The decisions of the leader election: which write of the Lease, if any, is next, and when.

No I/O and no clock: times are seconds of the caller's monotonic clock. No time of another machine counts: a candidate
measures the age of a lease from the moment at which it saw the lease's last change itself. So clocks that are wrong,
or that somebody sets, never make two leaders.
"""

from tftraining_api.model.spec import Frozen


class LeaseRecord(Frozen, frozen=True):
    """The content of a Lease. An empty `holder` means that it was released; `version` is its resourceVersion."""

    holder: str
    seconds: float
    transitions: int
    version: str


class Observation(Frozen, frozen=True):
    """A lease as this process saw it last, None if there is none. Its holder may lead until `free_at`."""

    record: LeaseRecord | None
    free_at: float


class LeaseClaim(Frozen, frozen=True):
    """Write the lease with this process as its holder: create it if `version` is empty, otherwise change exactly that
    version."""

    version: str
    transitions: int


class Wait(Frozen, frozen=True):
    """Another process may lead until then."""

    until: float


def observe(me: str, before: Observation | None, record: LeaseRecord | None, now: float) -> Observation:
    """The observation after this process has read `record`, None if there is no lease. A deleted lease protects the
    holder that it had: that holder has not noticed yet, and its last renewals may have reached the API server after
    this process last saw the lease."""
    if record is None:
        return _deleted(me, before, now)
    if before is not None and before.record is not None and before.record.version == record.version:
        return before
    return Observation(record, now + record.seconds if record.holder else now)


def _deleted(me: str, before: Observation | None, now: float) -> Observation:
    if before is None:
        return Observation(None, now)
    if before.record is None:
        return before
    return Observation(None, now if before.record.holder == me else now + before.record.seconds)


def decide(me: str, seen: Observation, now: float) -> LeaseClaim | Wait:
    """What the process `me` does next: renew its own lease, take a free one, or wait."""
    record = seen.record
    if record is not None and record.holder == me:
        return LeaseClaim(record.version, record.transitions)
    if now < seen.free_at:
        return Wait(seen.free_at)
    return LeaseClaim("", 0) if record is None else LeaseClaim(record.version, record.transitions + 1)

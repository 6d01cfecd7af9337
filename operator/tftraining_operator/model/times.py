"""Time arithmetic that is safe for any number of seconds, and any time in an object of the API. Reads no clock."""

from datetime import UTC, datetime, timedelta

from tftraining_api.model.times import FIRST

# Kubernetes tells times in whole seconds.
RESOLUTION = timedelta(seconds=1)
# So far the estimate of the API server's time may be off.
UNCERTAIN = timedelta(seconds=2)


def duration(seconds: int) -> timedelta:
    """So many seconds, at most a century: added to a saturated time they give a time."""
    return timedelta(seconds=max(0, min(seconds, 100 * 366 * 86400)))


def later(time: datetime, seconds: int) -> datetime | None:
    """The time `seconds` later; None if datetime cannot represent it."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return None


def earlier(time: datetime, seconds: int) -> datetime:
    """The time `seconds` earlier, at least FIRST."""
    return max(later(time, -seconds) or FIRST, FIRST)


def earliest(*times: datetime | None) -> datetime | None:
    """The earliest time; None if all are None."""
    return min((each for each in times if each is not None), default=None)


def is_ahead(time: datetime, now: datetime) -> bool:
    """Whether a clock that was ahead has written the time."""
    return time > now + UNCERTAIN


def clock(time: datetime) -> str:
    """The time as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Time arithmetic that is safe for any number of seconds in a user's spec. Never reads the clock."""

from datetime import UTC, datetime, timedelta


def later(time: datetime, seconds: int) -> datetime | None:
    """The time `seconds` later; None if datetime cannot represent it."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return None


def earliest(*times: datetime | None) -> datetime | None:
    """The earliest time; None if all are None."""
    return min((each for each in times if each is not None), default=None)


def clock(time: datetime) -> str:
    """The time as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""Arithmetic with times that users' numbers reach: no number of seconds may break a pass. Never asks for the time."""

from datetime import UTC, datetime, timedelta


def later(time: datetime, seconds: int) -> datetime | None:
    """The time so many seconds later; None if the calendar ends before it."""
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return None


def earliest(*times: datetime | None) -> datetime | None:
    """The first of those that are times; None if none is."""
    return min((each for each in times if each is not None), default=None)


def clock(time: datetime) -> str:
    """The time as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

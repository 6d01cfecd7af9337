"""Times and counts in an object of the API, which may be any that the API server takes. Reads no clock."""

import operator
from datetime import UTC, datetime
from typing import Any

import msgspec

# Earlier and later times count as these: they are as far away as these, and leave room for arithmetic. Kubernetes
# itself writes such times, because its durations overflow after 292 years.
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
# A count leaves room for more, too: the API server takes no status with a count beyond 32 bits.
MOST = 10**9
# The fields of a status that have times and counts, and those that lead to them.
TIMES = ("startTime", "completionTime", "admittedTime", "updatedTime", "lastTransitionTime", "time", "since")
COUNTS = (
    *("counted", "disruptions", "inPlace", "recreated", "budgetUsed", "withoutProgress", "podFailures", "count"),
    *("desired", "active", "ready", "succeeded", "failed", "highest", "attempt", "failedAttempts"),
)
PARTS = (
    *("conditions", "restarts", "sameFailure", "lastRestart", "progress", "backup", "history", "cleanup", "goodput"),
    *("replicas", "chief", "worker", "ps", "evaluator"),
)


def parse_time(text: object) -> datetime:
    """The time in an object of the API, in UTC and between FIRST and LAST. ValueError if it is no time."""
    try:
        return saturated(msgspec.convert(text, datetime))
    except msgspec.ValidationError:
        if str(text).startswith("0000-"):  # a year that Go writes and Python does not know
            return FIRST
        raise


def saturated(time: datetime) -> datetime:
    """The time in UTC, FIRST or LAST if it is beyond them. A time without a zone is one of UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return min(max(aware, FIRST), LAST).astimezone(UTC)


def readable(value: Any) -> Any:
    """A status, or a part of one, with every time between FIRST and LAST and every count between 0 and MOST. The API
    server takes times that are none, such as one with an offset of 99 hours: they count as FIRST."""
    if type(value) is list:
        items = [readable(each) for each in value]
        return value if all(map(operator.is_, items, value)) else items
    if type(value) is not dict:
        return value
    news = {}
    for name, old in value.items():
        if (read := READERS.get(name)) is not None and (new := read(old)) is not old:
            news[name] = new
    return {**value, **news} if news else value


def _readable_time(text: Any) -> Any:
    if type(text) is not str or (len(text) == 20 and text[19] == "Z" and "1970" <= text[:4] < "9000"):
        return text
    try:
        return saturated(msgspec.convert(text, datetime)).isoformat()
    except msgspec.ValidationError:
        return FIRST.isoformat()


def _readable_count(number: Any) -> Any:
    return number if type(number) is not int or 0 <= number <= MOST else min(max(number, 0), MOST)


READERS = dict.fromkeys(TIMES, _readable_time) | dict.fromkeys(COUNTS, _readable_count) | dict.fromkeys(PARTS, readable)

"""The operator's log as JSON: what a line has, and that a line never has the attempt of another job."""

import json
import logging
import sys
from typing import Any

import pytest

from tftraining_api.model.names import Key
from tftraining_operator.cluster import logs

KEY = Key("ns", "job")


def line(message: str, *given: object, exc_info: Any = None) -> dict[str, Any]:
    record = logging.LogRecord("tftraining_operator.x", logging.WARNING, __file__, 1, message, given, exc_info)
    text = logs.JsonFormatter().format(record)
    assert "\n" not in text
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@pytest.fixture(autouse=True)
def no_pass() -> None:
    logs.current.set(None)


def test_a_line_without_a_job() -> None:
    parsed = line("caches synced; %d", 3)
    assert parsed.pop("time").endswith("+00:00")
    assert parsed == {"level": "WARNING", "logger": "tftraining_operator.x", "message": "caches synced; 3"}


def test_a_line_of_a_pass_has_its_job_and_attempt_and_a_line_of_another_job_not() -> None:
    logs.current.set((KEY, 4))
    parsed = line("%s: %s", KEY, "Started")
    assert (parsed["namespace"], parsed["job"], parsed["attempt"]) == ("ns", "job", 4)
    other = line("%s: %s", Key("ns", "other"), "Started")
    assert other["job"] == "other" and "attempt" not in other


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise KeyError("bug")
    except KeyError:
        parsed = line("%s failed", KEY, exc_info=sys.exc_info())
    assert parsed["exception"].startswith("Traceback") and "KeyError: 'bug'" in parsed["exception"]

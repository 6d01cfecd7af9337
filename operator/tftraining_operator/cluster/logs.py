"""The operator's log: lines for people, or JSON objects, one a line, for a log store.

A JSON line has the job that its message names, and the attempt of that job if the line is part of a pass.
"""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime

from tftraining_api.model.names import Key

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
FORMATS = ("text", "json")
# The job of the present pass, and its attempt. A task that a pass starts inherits the value, so that a line has the
# attempt only if it names the same job.
current: ContextVar[tuple[Key, int] | None] = ContextVar("current", default=None)


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, logger, message; namespace, job and attempt if known; the exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_job(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _job(record: logging.LogRecord) -> dict[str, object]:
    """The first job among the arguments of the message."""
    given = record.args if isinstance(record.args, tuple) else ()
    key = next((each for each in given if isinstance(each, Key)), None)
    if key is None:
        return {}
    named: dict[str, object] = {"namespace": key.namespace, "job": key.name}
    passing = current.get()
    return named | {"attempt": passing[1]} if passing is not None and passing[0] == key else named


def configure(level: str, style: str) -> None:
    """Send all log records of this process to stderr, as text or JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level, handlers=[handler])

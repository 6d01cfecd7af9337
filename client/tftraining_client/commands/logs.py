"""`tftj logs`: each line behind the name of its replica; in a pipe the line as it is."""

import sys
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from tftraining_client.cluster.async_client import AsyncClient
from tftraining_client.cluster.log_position import SECOND
from tftraining_client.cluster.models import LogLine
from tftraining_client.commands.output import hint, is_coloured
from tftraining_client.visible import visible_log_line

# ANSI colours, by the order in which the replicas appear.
COLOURS = (36, 35, 32, 33, 34, 91)


async def print_logs(client: AsyncClient, name: str, *, follow: bool, timestamps: bool = False, **options: Any) -> int:
    """Print the logs; the exit code. A job that fails while it is followed is a JobFailed."""
    prefixes, shown = Prefixes(is_coloured()), visible_log_line if sys.stdout.isatty() else str
    async with aclosing(client.logs(name, follow=follow, **options)) as lines:
        async for line in lines:
            sys.stdout.write(f"{prefixes.of(line)}{stamp(line) if timestamps else ''}{shown(line.text)}\n")
            if follow:
                sys.stdout.flush()
    hint(*((f"status {name}", f"plot {name}") if follow else (f"logs {name} --follow", f"explain {name}")))
    return 0


def stamp(line: LogLine) -> str:
    """The time of the line as kubectl writes it."""
    seconds, nanoseconds = divmod(line.time, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z "


class Prefixes:
    """The names before the lines, as wide as the longest one so far, and coloured on a terminal."""

    def __init__(self, coloured: bool) -> None:
        self._coloured = coloured
        self._colours: dict[str, int] = {}
        self._width = 0

    def of(self, line: LogLine) -> str:
        """`worker-1 | `."""
        self._width = max(self._width, len(line.replica))
        text = f"{line.replica:<{self._width}} | "
        if not self._coloured:
            return text
        colour = self._colours.setdefault(line.replica, COLOURS[len(self._colours) % len(COLOURS)])
        return f"\x1b[{colour}m{text}\x1b[0m"

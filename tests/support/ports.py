"""Ports for what a test starts: outside the range from which the kernel takes those of outgoing connections.

Nothing holds them between this call and their use, so tests that run side by side (pytest-xdist) draw from parts of
their own, and none is given out twice.
"""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack

FIRST, PART, PARTS = 10_000, 2_000, 11  # up to 32,000; the kernel's own begin at 32,768


def _part() -> range:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    number = 1 + int(worker.removeprefix("gw")) % (PARTS - 1) if worker else 0
    return range(FIRST + number * PART, FIRST + (number + 1) * PART)


_mine = _part()
_next = random.SystemRandom().choice(_mine)  # another session may be at it on the same machine


def free_ports(count: int) -> list[int]:
    """So many TCP ports in a row that nobody listens on, on any address. OSError if the part has none left."""
    global _next  # noqa: PLW0603  # one process, one part
    for _ in range(PART):
        found = range(_next, _next + count)
        _next = found.stop
        if found.stop > _mine.stop:
            _next = _mine.start
        elif _are_free(found):
            return list(found)
    raise OSError(f"no {count} free ports in a row in {_mine}")


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


def _are_free(ports: range) -> bool:
    with ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.create_server(("", port)))
        except OSError:
            return False
    return True

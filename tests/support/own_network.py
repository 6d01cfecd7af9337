"""A network of this thread and of what it starts: only the loopback, with addresses of IPv6 that a test needs.

It must never change the network of this machine.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.needed import need_or_skip

NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h


@contextmanager
def own_network(addresses: Iterable[str]) -> Iterator[None]:
    """Be in a network of its own until the block ends; it goes with the last process in it. Needs root."""
    need_or_skip("ip")
    library = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if library.unshare(NEW_NETWORK):
            pytest.skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            for address in addresses:
                subprocess.run(["ip", "address", "add", f"{address}/128", "dev", "lo", "nodad"], check=True)
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert library.setns(before.fileno(), NEW_NETWORK) == 0

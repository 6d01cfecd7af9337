"""Runs a command in a bare Debian where that can be had, and says so in one line where it cannot.

It must never make one where nobody asked for it: it installs a package on this machine, so only CI gets one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from types import FrameType

from testbed import private_engine
from testbed.shell import Impossible, LabError, lock, say

from . import machine

CANNOT_RUN = 127


def main(words: list[str]) -> int:
    """Run the command and return its exit status."""
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as stack:
        try:
            check(os.environ)
            stack.enter_context(lock("bare-machine"))
            bare = stack.enter_context(machine.made())
        except (LabError, OSError) as error:
            say(f"running on this machine, not in a bare Debian: {error}")
            return _run_here(words)
        say(f"running in a bare Debian in {bare.root}, removed at the end: {' '.join(words)}")
        return bare.run(*words)


def _end(number: int, _: FrameType | None) -> None:
    """Leave by an exception, so that the bare machine is removed."""
    sys.exit(128 + number)


def check(environment: Mapping[str, str]) -> None:
    """Raise Impossible, with the reason, where no bare machine is to be made."""
    if environment.get("CI") != "true":
        raise Impossible("only CI=true gets one")
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Impossible("that needs root on Linux")
    if private_engine.data_is_in_use():
        raise Impossible(
            "a private Docker engine is running and would share its data: stop it with `make cluster-down`"
        )


def _run_here(words: list[str]) -> int:
    try:
        return subprocess.run(words, env=os.environ | {"CI": "true"}, check=False).returncode
    except FileNotFoundError as error:
        say(f"error: {error}")
        return CANNOT_RUN

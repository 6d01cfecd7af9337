"""Debian packages that the lab and the tests need on this machine, in one place.

It installs what is missing, says so, and must never start a service by doing it.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .shell import Impossible, lock, run, say, step

# program: package that brings it
PACKAGES = {
    "chromium": "chromium",
    "dockerd": "docker.io",
    "docker": "docker.io",
    "git": "git",
    "gcc": "build-essential",  # with the headers of the C library
    "ip": "iproute2",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
    "pgrep": "procps",
    "pkill": "procps",
    "runc": "runc",
}
POLICY = Path("/usr/sbin/policy-rc.d")


def need(*programs: str) -> None:
    """See to it that these programs are installed; Impossible where that cannot be done."""
    with lock("packages"):
        missing = sorted({PACKAGES[program] for program in programs if not shutil.which(program)})
        if missing:
            _install(missing)


def _install(packages: list[str]) -> None:
    names = " ".join(packages)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Impossible(f"missing programs: {names}: install them, or run as root on Debian")
    say(f"installing missing Debian packages: {names}")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing {names}"), _no_service_starts():
        run(["apt-get", "update", "-q"], env=quiet)
        run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages], env=quiet)


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Keep Debian from starting the services that packages bring: the lab starts its own, and stops it."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()

"""A registry of OCI images in memory, without TLS, for as long as a test runs."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from testbed import binaries
from tests.support.ports import free_port

PATIENCE = 20.0


@contextmanager
def served(*addresses: str) -> Iterator[int]:
    """The port of an empty registry on localhost, and on these addresses of this machine."""
    port = free_port()
    hosts = [f"{address}:{port}" for address in ("localhost", *addresses)]
    command: list[str | Path] = [binaries.ensure("registry") / "registry", *hosts]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_answer(f"http://localhost:{port}/v2/", process)
        yield port
    finally:
        process.kill()
        process.wait()


def _await_answer(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urlopen(address).close()
            return
        except URLError:
            assert process.poll() is None and time.monotonic() < deadline, "the registry does not answer"
            time.sleep(0.05)

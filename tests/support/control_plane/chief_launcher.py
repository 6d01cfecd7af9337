"""The chief's launcher as the operator sees it: an HTTP server that says what a test tells it to. Nobody can wait for
what it says, as with launchers that are older than that.

It must never be mistaken for the real one: how that behaves is tested with itself, in tests/processes/launch.
"""

import itertools
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8472
_numbers = itertools.count(1)
# The UIDs of the jobs, by the address of the chief's pod: a launcher knows its job from its pod.
JOBS: dict[str, str] = {}


def own_network() -> str:
    """The first three numbers of the addresses of this test run: the whole of 127/8 is this machine."""
    return f"127.{os.getpid() // 200 % 200 + 1}.{os.getpid() % 200 + 1}"


class ChiefLauncher:
    """Answers `/status` on that address, or one of its own; `asked` counts the questions, `paths` are what for. `job`
    is the UID of its job, by default that of JOBS."""

    def __init__(self, ip: str = "", job: str = "") -> None:
        self.ip = ip or f"{own_network()}.{next(_numbers) % 250 + 1}"
        self.job = job
        self.asked = 0
        self.paths: set[str] = set()
        self._page: dict[str, Any] = {}
        self.say()

    def say(self, phase: str = "Training", **fields: Any) -> None:
        """Answer like this from now on; what is not named is as for a gang that trains."""
        ledger = {"inPlace": 0, "processFailures": 0, "podFailures": 0, "refilledAt": 0, "withoutProgress": 0}
        ledger |= fields.pop("ledger", {})
        self._page = {"version": 1, "phase": phase, "round": 1, "ledger": ledger, **fields}

    @property
    def body(self) -> bytes:
        """The answer."""
        return json.dumps({"job": {"uid": self.job or JOBS.get(self.ip, "")}, **self._page}).encode()


@contextmanager
def chief_launcher(ip: str = "", job: str = "") -> Iterator[ChiefLauncher]:
    """A launcher that is there in the `with` block, on that address or one of its own."""
    launcher = ChiefLauncher(ip, job)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            launcher.asked += 1
            launcher.paths.add(self.path)
            self.send_response(200 if self.path == "/status" else 404)
            body = launcher.body
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in launcher.ip else socket.AF_INET

    server = Server((launcher.ip, PORT), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield launcher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

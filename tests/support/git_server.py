"""A Git repository behind HTTP: git's own server program, in the test's process, on the loopback."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from tests.support.needed import need_or_skip

ACCOUNT = "Basic " + base64.b64encode(b"robot:s3cr3t").decode()


@dataclass
class GitServer:
    """`/repository` is for all, `/private/repository` for ACCOUNT; `/moved/…` redirects to another server. `accounts`
    are the Authorization headers of all requests."""

    url: str
    moved_to: str = ""
    accounts: list[str | None] = field(default_factory=list)


@contextmanager
def git_server(directory: Path) -> Iterator[GitServer]:
    """Serve the repositories in a directory as long as the block runs."""
    need_or_skip("git")
    environment = {**os.environ, "GIT_PROJECT_ROOT": str(directory), "GIT_HTTP_EXPORT_ALL": "1"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer as git's server program does."""
            account = self.headers["Authorization"]
            served.accounts.append(account)
            if self.path.startswith("/moved"):
                self._answer(302, {"Location": served.moved_to + self.path.removeprefix("/moved")}, b"")
            elif self.path.startswith("/private") and account != ACCOUNT:
                self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
            else:
                self._backend(*self.path.removeprefix("/private").partition("?")[::2])

        do_POST = do_GET

        def _backend(self, path: str, query: str) -> None:
            variables = {
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers["Content-Type"] or "",
                "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
                "HTTP_GIT_PROTOCOL": self.headers["Git-Protocol"] or "",
            }
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            command = ["git", "http-backend"]
            done = subprocess.run(command, input=body, env=environment | variables, capture_output=True, check=False)
            head, _, rest = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self._answer(int(headers.pop("Status", "200").split()[0]), headers, rest)

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = GitServer(f"http://127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()

"""A `tftj dashboard` as a process of its own, and what its server answers."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

PATIENCE = 90.0


class Dashboard:
    """The command with these arguments; `with` ends it."""

    def __init__(self, kubeconfig: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tftraining_client", "dashboard", *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError(self.process.stderr.read())
        self.host, self.path = urlsplit(self.url).netloc, urlsplit(self.url).path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def ask(self, path: str = "", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of an answer; `path` is below the token unless it begins with a slash."""
        connection = HTTPConnection(self.host, timeout=PATIENCE)
        try:
            connection.request(method, path if path.startswith("/") else self.path + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def stream(self, path: str) -> "Stream":
        """A stream of messages."""
        return Stream(self.host, self.path + path)


class Stream:
    """Server-sent events, read in a thread; the newest message is in `last`, all are in `messages`."""

    def __init__(self, host: str, path: str) -> None:
        self.messages: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._connection = HTTPConnection(host, timeout=PATIENCE)
        self._connection.connect()
        self._socket = self._connection.sock
        self._connection.request("GET", path)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        assert self._answer.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # The reader sees the end, and closes nothing that the thread still uses.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._answer.close()
        self._connection.close()

    def wait_for(self, check: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Wait for a message that passes the check."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(check, self.messages)), PATIENCE), (what, self.messages[-2:])
            return next(message for message in reversed(self.messages) if check(message))

    def _read(self) -> None:
        with contextlib.suppress(OSError, HTTPException):
            while line := self._answer.readline():
                if line.startswith(b"data: {"):  # not the data of a ping
                    with self._changed:
                        self.messages.append(json.loads(line.removeprefix(b"data: ")))
                        self._changed.notify_all()

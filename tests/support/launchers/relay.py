"""A TCP relay between a member and the chief's launcher, which can fail as networks and proxies do."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Relay:
    """Listens at `port` of this machine and forwards each connection to the port `to`."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []  # of the member's side and the chief's
        self._silent: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in [self._server, *(side for pair in self._pairs for side in pair)]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in [self._server, *(side for pair in self._pairs for side in pair)]:
            each.close()

    def silence(self) -> None:
        """Keep all connections open and drop all data from now on."""
        self._silent.update(side for pair in self._pairs for side in pair)

    def close_towards_the_chief(self) -> None:
        """Close all connections on the chief's side only."""
        self.silence()
        for _, chiefs in self._pairs:
            chiefs.shutdown(socket.SHUT_WR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                member, _ = self._server.accept()
                try:
                    chief = socket.create_connection(("127.0.0.1", self.to))
                except OSError:
                    member.close()
                    continue
                self._pairs.append((member, chief))
                for pair in ((member, chief), (chief, member)):
                    self._threads.append(threading.Thread(target=self._pass_on, args=pair, daemon=True))
                    self._threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source not in self._silent:
                    sink.sendall(data)
            if source not in self._silent:
                sink.shutdown(socket.SHUT_WR)

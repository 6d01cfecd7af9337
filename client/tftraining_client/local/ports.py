"""Reserves free ports of this machine for a job until the job has ended.

A socket that is bound and never listens holds each port. A process of the job that sets SO_REUSEADDR, as TensorFlow and
the launcher do, can listen on the port again and again; the kernel never assigns the port to a process that asks for
any free one.
"""

import socket
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"


class Ports:
    """Holds the reserved ports until the end of the `with` block."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in self._held:
            each.close()

    def reserve(self) -> int:
        """Reserve one more port."""
        holder = socket.socket()
        self._held.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, 0))
        port: int = holder.getsockname()[1]
        return port

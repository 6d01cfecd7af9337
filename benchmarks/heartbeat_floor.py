"""The floor of `benchmarks.heartbeats`: a bare asyncio server with the choreography of a rendezvous, and nothing else.

`python -m benchmarks.heartbeat_floor PORT MEMBERS` greets each member, tells all to start once all have joined, echoes
heartbeats, tells all to stop once one reports an exit, and tells all to start once all are ready. Its lines have the
sizes of real frames, without JSON, signatures and decisions.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

BACKLOG = 4096


@dataclass(frozen=True)
class Line:
    """A line that begins with `letter` and has `size` bytes, its end included."""

    letter: bytes
    size: int

    @property
    def text(self) -> bytes:
        """The bytes of the line."""
        return self.letter.ljust(self.size - 1, b".") + b"\n"


# The sizes of the frames of a thousand simulated members, each with its signature.
GREETING, NONCE, HELLO, WELCOME = Line(b"g", 63), Line(b"n", 33), Line(b"h", 325), Line(b"w", 277)
BEAT, ECHO = Line(b"b", 444), Line(b"b", 119)
EXITED, STOP, READY, START = Line(b"x", 175), Line(b"t", 272), Line(b"r", 92), Line(b"s", 269)


class Floor:
    """The members that the server knows."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.transports: list[Any] = []
        self.ready = 0

    def is_ready(self) -> None:
        """Count a member that can start; start all when all can."""
        self.ready += 1
        if self.ready == self.members:
            self.ready = 0
            self.send_all(START)

    def send_all(self, line: Line) -> None:
        """Send a line to all members."""
        for transport in self.transports:
            transport.write(line.text)


class Served(asyncio.Protocol):
    """The connection of one member."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._transport: Any = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the member."""
        self._transport = transport
        self._transport.write(GREETING.text)

    def data_received(self, data: bytes) -> None:
        """Answer each line."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._answer(line[:1])

    def _answer(self, letter: bytes) -> None:
        if letter == BEAT.letter:
            self._transport.write(ECHO.text)
        elif letter == HELLO.letter:
            self._floor.transports.append(self._transport)
            self._transport.write(WELCOME.text)
            self._floor.is_ready()
        elif letter == EXITED.letter:
            self._floor.send_all(STOP)
        elif letter == READY.letter:
            self._floor.is_ready()


async def serve(port: int, members: int) -> None:
    """Serve until killed."""
    floor = Floor(members)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Served(floor), "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))

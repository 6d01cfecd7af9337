"""The floor of the rendezvous: a bare asyncio server that exchanges as many lines of the same sizes.

`python -m benchmarks.rendezvous_floor --port PORT --members N` greets each connection, answers heartbeats, starts a
round when all members are there, stops all when one has exited, and starts the next round when all are ready. It knows
no JSON, HMAC, lease or incident. The sizes are those of the frames of a gang of 1,000.
"""

import argparse
import asyncio
import resource
from typing import Any

GREETING = b'{"tftraining":1,"nonce":"' + b"0" * 32 + b'"}\n'
HELLO, WELCOME, BEAT, ECHO, START, STOP, READY, EXITED = (
    b"hello",
    b"welcome",
    b"beat",
    b"echo",
    b"s",
    b"stop",
    b"r",
    b"x",
)
SIZES = {HELLO: 480, WELCOME: 290, BEAT: 504, ECHO: 126, START: 300, STOP: 330, READY: 95, EXITED: 420}
BACKLOG = 4096


def bare_line(kind: bytes, number: int = 0) -> bytes:
    """A line of this kind, as long as the frame of that kind."""
    return (b"%s %d " % (kind, number)).ljust(SIZES[kind] - 1, b".") + b"\n"


class Gathering:
    """The connections, and how many of them are ready for the next round."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._round = self._ready = 0
        self.transports: set[Any] = set()

    def add_ready(self, known_round: int = 0) -> None:
        """Count a ready member; start the round with the last one."""
        self._ready, self._round = self._ready + 1, max(self._round, known_round)
        if self._ready == self._members:
            self._ready, self._round = 0, self._round + 1
            self.send_all(bare_line(START, self._round))

    def send_all(self, line: bytes) -> None:
        """Send a line to every member."""
        for transport in self.transports:
            transport.write(line)


class Bare(asyncio.Protocol):
    """The connection of one member."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._transport: Any = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self._transport = transport
        self._transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        """Answer each complete line."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._answer(*line.split(b" ", 2)[:2])

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the member."""
        self._gathering.transports.discard(self._transport)

    def _answer(self, kind: bytes, number: bytes) -> None:
        if kind == BEAT:
            self._transport.write(bare_line(ECHO))
        elif kind == HELLO:
            self._gathering.transports.add(self._transport)
            self._transport.write(bare_line(WELCOME))
            self._gathering.add_ready(int(number))
        elif kind == EXITED:
            self._gathering.send_all(bare_line(STOP))
        elif kind == READY:
            self._gathering.add_ready()


async def serve(port: int, members: int) -> None:
    """Serve until killed."""
    gathering = Gathering(members)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Bare(gathering), "127.0.0.1", port, backlog=BACKLOG)
    await server.serve_forever()


def main() -> None:
    """Read the arguments, and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rendezvous_floor", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--members", type=int, required=True)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(options.port, options.members))


if __name__ == "__main__":
    main()

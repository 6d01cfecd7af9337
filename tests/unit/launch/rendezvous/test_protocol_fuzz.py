"""Random and mutated frames against the readers of the rendezvous: they end the connection, and nothing else.

A stranger has no key, so whatever he sends ends at a signature. A hostile member has the key: his frames are JSON of
every kind, and reach the coordinator. Either way only the errors that the server expects may be raised, and nothing
that was read stays in memory. A connection ends at its first bad frame, so only the frames that a reader has judged
count: half a million of each kind are among the slow faults. The last test sends both kinds to a real server's port.
"""

import asyncio
import contextlib
import gc
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.rendezvous.protocol import (
    CHUNK_BYTES,
    FRAME_BYTES,
    FRAME_ERRORS,
    Channel,
    ConnectionClosedError,
    ProtocolError,
    accept,
    connect,
)
from tftraining.launch.rendezvous.server import RendezvousServer

SECRET, KEY = b"secret", b"k" * 32
COUNTS = [3_000, pytest.param(500_000, marks=[pytest.mark.slow_fault, pytest.mark.timeout(3600)])]
AT_ONCE = 20  # frames that a member sends over one connection
SOCKET_COUNTS = [400, pytest.param(20_000, marks=[pytest.mark.slow_fault, pytest.mark.timeout(1800)])]
OBJECTS, BYTES = 2_000, 16 * 1024 * 1024  # what a run may leave over, however long it is
STRANGE = (
    b"", b"\n", b" ", b"{", b"{}", b"[]", b"null", b"1", b'"', b"\xff\xfe", b"[" * 5000, b'{"a":' * 3000, b"9" * 5000,
    b'{"t":1e999}', b'{"t":NaN}', b'{"type":"\\ud800"}', b"0" * 64, b"0" * 64 + b" 8", b"0" * 64 + b" 99999999",
    b"x" * (FRAME_BYTES + 1), b'{"tftraining":1}', b'{"tftraining":1,"nonce":[]}',
    b'{"tftraining":true,"nonce":"\\ud800"}',
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 7, 2**31, 2**64, 10**400, 1.5, 1e308, float("inf"), float("-inf"), float("nan"), "",
    "worker-0", "\ud800", [], [[]], {}, {"code": 1}, {"worker-0": 1}, [0, "x"], "x" * 1000,
)  # fmt: skip
TYPES = ("hello", "leaving", "bye", "beat", "exited", "ready", "welcome", "result", "", "x")


class Sink:
    """A writer whose peer reads everything at once."""

    transport = None

    def __init__(self) -> None:
        self.transport = cast(Any, self)

    def write(self, data: bytes) -> None:
        """Forget it."""

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def connection(data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The chief's end of a connection over which these bytes come, and then the end."""
    reader = asyncio.StreamReader(limit=FRAME_BYTES)
    reader.feed_data(data)
    reader.feed_eof()
    return reader, cast(asyncio.StreamWriter, Sink())


def mutated(numbers: random.Random, data: bytes) -> bytes:
    """The bytes with a few of them changed, left out, doubled or put elsewhere."""
    for _ in range(numbers.randrange(1, 4)):
        place, other = numbers.randrange(len(data) + 1), numbers.randrange(len(data) + 1)
        first, last = sorted((place, other))
        part = numbers.choice((b"", numbers.randbytes(3), data[first:last] * 2, numbers.choice(STRANGE)[:200]))
        data = data[:first] + part + data[last if numbers.random() < 0.3 else first :]
    return data


def of_a_stranger(numbers: random.Random) -> bytes:
    """Lines without a valid signature."""
    valid = b"0" * 64 + b" " + json.dumps(heartbeat(1, 2.0)).encode()
    kinds = (numbers.randbytes(numbers.randrange(200)), numbers.choice(STRANGE), valid, mutated(numbers, valid))
    # The first line is the nonce, and at most one more is read.
    lines = [numbers.choice(kinds) for _ in range(numbers.randrange(4))]
    greeting = [b'{"tftraining":1,"nonce":"0"}'] * (numbers.random() < 0.3)
    return b"\n".join([*greeting, *lines]) + b"\n" * (numbers.random() < 0.8)


def of_a_member(numbers: random.Random) -> dict[str, Any]:
    """A frame that a member may sign: a proper one with fields of any value, or with none of them."""
    proper = (hello("worker-1"), exited(1, 1), heartbeat(1, 2.0, step=3, epoch=1), {"type": "ready", "round": 1})
    frame = dict(numbers.choice(proper))
    for _ in range(numbers.randrange(4)):
        name = numbers.choice([*frame, "progress", "step", "copies", "exit", "x"])
        frame[name] = numbers.choice(VALUES)
        if isinstance(inner := numbers.choice([*frame.values()]), dict) and numbers.random() < 0.5:
            frame = {
                **frame,
                "progress": {**inner, numbers.choice(["step", "epoch", "metrics"]): numbers.choice(VALUES)},
            }
    if numbers.random() < 0.2:
        frame["type"] = numbers.choice(TYPES)
    return frame


READERS: tuple[Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]], ...] = (
    lambda reader, writer: accept(reader, writer, SECRET),
    lambda reader, writer: connect(reader, writer, SECRET, {"type": "hello"}),
    lambda reader, writer: Channel(reader, writer, KEY, b"chief").receive_chunk(),
)


async def read(data: bytes) -> list[str]:
    """What comes of the bytes at each reader: the names of errors, or `frame`."""
    found = []
    for reading in READERS:
        try:
            await reading(*connection(data))
            found.append("frame")
        except ProtocolError as error:
            found.append(type(error).__name__)
    return found


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Growth:
    """What is left over by the second half of a run of so many frames."""

    def __init__(self, count: int) -> None:
        self._half = count // 2
        self._objects = self._bytes = 0

    def note(self, judged: int) -> None:
        """Measure once half of the frames have been judged."""
        if judged >= self._half and not self._objects:
            gc.collect()
            self._objects, self._bytes = len(gc.get_objects()), resident_bytes()

    def check(self) -> None:
        assert self._objects, "no second half"
        gc.collect()
        assert len(gc.get_objects()) - self._objects < OBJECTS
        assert resident_bytes() - self._bytes < BYTES


@pytest.mark.parametrize("count", COUNTS)
async def test_what_a_stranger_sends_ends_his_connection(count: int) -> None:
    numbers, seen, growth, judged = random.Random(18), Counter[str](), Growth(count), 0
    while judged < count:
        seen.update(await read(of_a_stranger(numbers)))
        # A reader judges one frame of a connection, or none: the connection has ended before a whole one came.
        judged = seen.total() - seen["ConnectionClosedError"]
        growth.note(judged)
    growth.check()
    print(judged, dict(seen))
    assert seen["ProtocolError"] > 0 and seen["ConnectionClosedError"] > 0


def signed(frames: list[bytes], channel: Channel) -> bytes:
    """The lines that the channel's own side would send."""
    return b"".join(channel._sending.sign(body) + b" " + body + b"\n" for body in frames)


def from_a_member(frames: list[bytes]) -> Channel:
    """The chief's channel, over which these frames of a member come."""
    member = Channel(asyncio.StreamReader(), cast(asyncio.StreamWriter, Sink()), KEY, b"member")
    return Channel(*connection(signed(frames, member)), KEY, b"chief")


@pytest.mark.parametrize("count", COUNTS)
async def test_what_a_hostile_member_sends_costs_him_only_his_connection(count: int) -> None:
    numbers, seen, growth, judged = random.Random(18), Counter[str](), Growth(count), 0
    coordinator, now, number = make_coordinator("worker-0", "worker-1"), 0.0, 0
    while judged < count:
        channel = from_a_member([_body(numbers) for _ in range(AT_ONCE)])
        name = numbers.choice(("worker-0", "worker-1"))
        now, number = now + 0.01, number + 1
        try:
            seen["refused"] += bool(coordinator.handle_hello(hello(name, now, incarnation=f"{name}/{number}"), now))
            while True:
                frame = await channel.receive()
                judged += 1
                handle = coordinator.handle_hello if frame.get("type") == "hello" else None
                handle(frame, now) if handle else coordinator.handle_frame(name, frame, now)
        except ConnectionClosedError:
            seen["whole"] += 1
        except (ProtocolError, *FRAME_ERRORS) as error:
            judged += isinstance(error, ProtocolError)
            seen[type(error).__name__] += 1
        coordinator.handle_disconnect(name, now)
        coordinator.tick(now)
        coordinator.outbox.take_all()
        growth.note(judged)
    growth.check()
    print(judged, dict(seen))
    assert seen["whole"] > 0 and seen["ProtocolError"] > 0 and seen["TypeError"] > 0


def _body(numbers: random.Random) -> bytes:
    if numbers.random() < 0.02:
        return numbers.choice([each for each in STRANGE if b"\n" not in each and len(each) < CHUNK_BYTES])
    return json.dumps(of_a_member(numbers)).encode()


class Listening:
    """A real rendezvous at a port of the loopback. `judged` counts the frames that its readers have judged."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.judged, self.port = 0, free_ports(1)[0]
        self.server = RendezvousServer(make_coordinator("worker-0", "worker-1"), lambda: SECRET, self._result)
        original = Channel.receive

        async def counted(channel: Channel) -> dict[str, Any]:
            try:
                frame = await original(channel)
            except ProtocolError as error:
                self.judged += not isinstance(error, ConnectionClosedError)
                raise
            self.judged += 1
            return frame

        patch.setattr(Channel, "receive", counted)

    async def _result(self) -> None:
        """No verdict is left anywhere."""

    async def talk(self, numbers: random.Random, member: str) -> None:
        """Say something over a connection, as a stranger or as that member, until the server ends it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=FRAME_BYTES)
        try:
            said = of_a_stranger(numbers)
            if member:
                channel = await connect(reader, writer, SECRET, hello(member, incarnation=f"{member}/{self.judged}"))
                said = signed([_body(numbers) for _ in range(AT_ONCE)], channel)
            writer.write(said)
            writer.write_eof()
            while await asyncio.wait_for(reader.read(FRAME_BYTES), 10):
                pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize("count", SOCKET_COUNTS)
async def test_a_real_server_still_admits_a_member_after_all_of_it(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, listening, growth = random.Random(18), Listening(monkeypatch), Growth(count)
    faults: list[object] = []  # what asyncio would only log
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    await listening.server.open("127.0.0.1", listening.port)
    try:
        while listening.judged < count:
            talks = [listening.talk(numbers, numbers.choice(("", "", "worker-0", "worker-1"))) for _ in range(8)]
            for ended in await asyncio.gather(*talks, return_exceptions=True):
                assert ended is None or isinstance(ended, ConnectionError), repr(ended)
            growth.note(listening.judged)
        growth.check()
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        channel = await connect(reader, writer, SECRET, hello("worker-1", incarnation="of an honest one"))
        assert (await asyncio.wait_for(channel.receive(), 10))["type"] == "welcome"
        channel.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    finally:
        await listening.server.close()
    assert faults == []

"""Members of a gang that only beat: many of them in one process, each with a connection of its own.

`python -m benchmarks.heartbeat_members` is a part of `benchmarks.heartbeats`. Towards the chief's launcher a member
does what a real one does: it greets it, signs every frame, starts its round when it is told to, beats six times in a
member timeout with the progress of a training, and notes how old the last echo becomes. In front of a bare echo
(`--bare`) it sends as many bytes as often. Lines of JSON on stdout tell how far it is; a line on stdin asks for the
counts. It runs no program.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import resource
import secrets
import sys
import time
from typing import Any

from tftraining.launch.rendezvous.client import heartbeat_interval

MEMBER_TIMEOUT = 3.0  # seconds, the default of spec.launcher.memberTimeoutSeconds
LEASE_SECONDS = 2.5
STEPS_PER_SECOND = 40
BARE_BEAT = b"b" * 503 + b"\n"  # as long as a signed heartbeat
DIAL_AGAIN_SECONDS = 0.5


class Crowd:
    """The common counts of all members in this process."""

    def __init__(self, address: tuple[str, int], names: list[str], secret: bytes, uid: str, members: int) -> None:
        self.address, self.names, self.secret, self.uid = address, names, secret, uid
        self.beat_seconds = heartbeat_interval(MEMBER_TIMEOUT, members)
        self.joined = self.running = self.beats = self.echoes = self.lost = 0
        self.oldest_echo = 0.0

    def tell(self, **what: object) -> None:
        """Print a line of JSON for the benchmark."""
        print(json.dumps({**what, "at": time.monotonic()}), flush=True)

    def has_joined(self) -> None:
        """Count a member that has joined."""
        self.joined += 1
        if self.joined == len(self.names):
            self.tell(what="joined")

    def runs(self) -> None:
        """Count a member that runs."""
        self.running += 1
        if self.running == len(self.names):
            self.tell(what="running")

    def echoed(self, age: float) -> None:
        """Count an echo that came `age` seconds after its heartbeat."""
        self.echoes += 1
        self.oldest_echo = max(self.oldest_echo, age)

    def count(self) -> None:
        """Print the counts since the last call, and reset them."""
        self.tell(what="counts", beats=self.beats, echoes=self.echoes, lost=self.lost, oldestEcho=self.oldest_echo)
        self.beats = self.echoes = self.lost = 0
        self.oldest_echo = 0.0


class Bare(asyncio.Protocol):
    """Sends heartbeats of a member's size and rate to the bare echo server."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd = crowd
        self._sent = 0.0
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the heartbeats at once."""
        self._transport = transport
        self._crowd.has_joined()
        self._crowd.runs()
        self._beat()

    def data_received(self, data: bytes) -> None:
        """Count the echo."""
        self._crowd.echoed(time.monotonic() - self._sent)

    def connection_lost(self, error: Exception | None) -> None:
        """Count the lost connection."""
        self._crowd.lost += 1

    def _beat(self) -> None:
        if not self._transport.is_closing():
            self._sent = time.monotonic()
            self._crowd.beats += 1
            self._transport.write(BARE_BEAT)
            asyncio.get_running_loop().call_later(self._crowd.beat_seconds, self._beat)


class Member(asyncio.Protocol):
    """One member of a gang."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd, self._name = crowd, name
        self._transport: Any = None
        self._buffer = b""
        self._key = b""
        self._sent = self._round = 0
        self._started = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait: the chief's launcher sends the first frame."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle the complete frames; keep a partial one."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if self._key:
                self._hear(json.loads(line.partition(b" ")[2]))
            else:
                self._greet(json.loads(line))

    def connection_lost(self, error: Exception | None) -> None:
        """Count the loss and connect again: the chief's launcher gave this member up, or never admitted it."""
        self._crowd.lost += 1
        asyncio.get_running_loop().call_later(DIAL_AGAIN_SECONDS, dial, self._crowd, Member, self._name)

    def _greet(self, greeting: dict[str, Any]) -> None:
        ours = secrets.token_hex(16)
        text = f"tftraining/1 {greeting['nonce']} {ours}".encode()
        self._key = hmac.digest(self._crowd.secret, text, "sha256")
        self._transport.write(ours.encode() + b"\n")
        who = {"uid": self._crowd.uid, "attempt": 1, "member": self._name, "incarnation": ours}
        none = {"round": 0, "known": 0, "witness": 0, "running": False, "leaving": False, "down": None, "step": None}
        more = {"ledger": {}, "elastic": True, "keepsFits": ""}
        self._send({"type": "hello", "t": time.monotonic(), **who, **none, **more})

    def _hear(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "beat":
            self._crowd.echoed(time.monotonic() - frame["echo"])
        elif frame["type"] == "welcome":
            self._crowd.has_joined()
            self._beat()
        elif frame["type"] == "start":
            self._round, self._started = frame["round"], time.monotonic()
            self._crowd.runs()
        elif frame["type"] == "stop":
            self._round = 0
            self._send({"type": "ready", "round": frame["round"]})

    def _beat(self) -> None:
        if self._transport.is_closing():
            return
        now = time.monotonic()
        progress = self._progress(now) if self._round else {}
        condition = {"mode": "warm", "pid": 4711, "stuck": 0.0, "prepared": True, "noGpu": False}
        self._crowd.beats += 1
        self._send({"type": "beat", "t": now, "round": self._round, "progress": progress, **condition})
        asyncio.get_running_loop().call_later(self._crowd.beat_seconds, self._beat)

    def _progress(self, now: float) -> dict[str, Any]:
        ran = now - self._started
        step = int(ran * STEPS_PER_SECOND)
        if not step:
            return {}
        done = {"epoch": step // 1000 + 1, "epochs": 1000, "step": step, "steps_per_epoch": 1000}
        rates = {"steps_per_second": 40.1 + ran % 1, "updated": time.time(), "metrics": {"loss": 1 / ran}}
        return {**done, "first_epoch": 0, "first_step": 0, **rates, "first_step_time": ran, "last_step_time": 0.012}

    def _send(self, frame: dict[str, Any]) -> None:
        body = json.dumps(frame, separators=(",", ":")).encode()
        self._sent += 1
        seal = hmac.digest(self._key, b"member %d " % self._sent + body, hashlib.sha256).hex()
        self._transport.write(seal.encode() + b" " + body + b"\n")


def dial(crowd: Crowd, kind: type[Bare] | type[Member], name: str) -> None:
    """Connect one member; retry until the server listens."""
    asyncio.get_running_loop().create_task(_dial(crowd, kind, name))


async def _dial(crowd: Crowd, kind: type[Bare] | type[Member], name: str) -> None:
    while True:
        try:
            await asyncio.get_running_loop().create_connection(lambda: kind(crowd, name), *crowd.address)
        except OSError:
            await asyncio.sleep(DIAL_AGAIN_SECONDS)
        else:
            return


async def run(crowd: Crowd, kind: type[Bare] | type[Member]) -> None:
    """Connect all members at once; serve until stdin ends."""
    crowd.tell(what="dials")
    for name in crowd.names:
        dial(crowd, kind, name)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        crowd.count()


def main() -> None:
    """Read the arguments, and the job's secret from stdin."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.heartbeat_members", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first", type=int, required=True, help="index of the first worker")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--members", type=int, required=True, help="number of members of the whole gang")
    parser.add_argument("--uid", default="")
    parser.add_argument("--bare", action="store_true")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = [f"worker-{index}" for index in range(options.first, options.first + options.count)]
    crowd = Crowd(
        ("127.0.0.1", options.port), names, sys.stdin.readline().strip().encode(), options.uid, options.members
    )
    asyncio.run(run(crowd, Bare if options.bare else Member))


if __name__ == "__main__":
    main()

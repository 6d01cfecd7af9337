"""Members of a gang that run no program: many of them in one process, each with a connection of its own.

`python -m benchmarks.heartbeat_members` is a part of `benchmarks.heartbeats`. Towards the chief's launcher a member
does what a real one does: it greets it, signs every frame, starts its round when it is told to, beats with the
progress of a training, reports a killed program, stops and says that nothing runs, and connects again when the launcher
is gone. In front of the bare server of `benchmarks.rendezvous_floor` (`--bare`) it sends as many bytes as often. Lines
of JSON on stdout tell how far all are; a line on stdin is a command: `counts`, `rounds` or `kill`.
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
from dataclasses import dataclass
from typing import Any

from benchmarks.rendezvous_floor import BEAT, EXITED, HELLO, READY, START, STOP, WELCOME, bare_line
from benchmarks.rendezvous_floor import ECHO as BARE_ECHO
from tftraining.launch.rendezvous.client import RETRY_SECONDS, heartbeat_interval

MEMBER_TIMEOUT = 3.0  # seconds, the default of spec.launcher.memberTimeoutSeconds
LEASE_SECONDS = 2.5
STEPS_PER_SECOND = 40


@dataclass
class RoundCount:
    """One round in the members of this process: how often it was started, its first start and its last end."""

    starts: int = 0
    begun: float = 0.0
    ended: float = 0.0


class Crowd:
    """The common counts of all members in this process."""

    def __init__(self, address: tuple[str, int], names: list[str], secret: bytes, uid: str, members: int) -> None:
        self.address, self.names, self.secret, self.uid = address, names, secret, uid
        self.beat_seconds = heartbeat_interval(MEMBER_TIMEOUT, members)
        self.joined = self.beats = self.echoes = self.lost = self.expired = 0
        self.oldest_echo = self.oldest_lease = 0.0
        self.rounds: dict[int, RoundCount] = {}

    def tell(self, **what: object) -> None:
        """Print a line of JSON for the benchmark."""
        print(json.dumps({"at": time.monotonic(), **what}), flush=True)

    def has_joined(self) -> None:
        """Count a member that has joined."""
        self.joined += 1
        if self.joined == len(self.names):
            self.tell(what="joined")

    def starts(self, number: int) -> None:
        """Count a member that starts round `number`."""
        now = time.monotonic()
        found = self.rounds.setdefault(number, RoundCount(begun=now))
        found.starts += 1
        if found.starts == len(self.names):
            self.tell(what="running", round=number, at=now)

    def stops(self, number: int) -> None:
        """Note that the program of a member in round `number` has ended."""
        self.rounds[number].ended = time.monotonic()

    def echoed(self, latency: float, lease: float) -> None:
        """Count an echo that came `latency` seconds after its heartbeat, when the echo before was `lease` old."""
        self.echoes += 1
        self.oldest_echo, self.oldest_lease = max(self.oldest_echo, latency), max(self.oldest_lease, lease)
        self.expired += lease > LEASE_SECONDS

    def count(self) -> None:
        """Print the counts since the last call, and reset them."""
        sums = {"beats": self.beats, "echoes": self.echoes, "lost": self.lost, "expired": self.expired}
        self.tell(what="counts", **sums, oldestEcho=self.oldest_echo, oldestLease=self.oldest_lease)
        self.beats = self.echoes = self.lost = self.expired = 0
        self.oldest_echo = self.oldest_lease = 0.0

    def list_rounds(self) -> None:
        """Print what happened in each round."""
        rounds = {number: [each.starts, each.begun, each.ended] for number, each in self.rounds.items()}
        self.tell(what="rounds", rounds=rounds)


class Member(asyncio.Protocol):
    """One member, over all its connections. A subclass knows the form of the frames."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd, self._name = crowd, name
        self._transport: Any = None
        self._buffer = b""
        self._tries = 0
        self._left = False
        self._greeted = self._welcome = self._runs = False
        self._round = 0
        self._started = self._echoed_at = 0.0
        self._stopped_at: float | None = None
        self._left_at: float | None = None

    async def dial(self) -> None:
        """Connect; retry as a real launcher does until the server listens."""
        while True:
            await asyncio.sleep(RETRY_SECONDS[min(self._tries, len(RETRY_SECONDS) - 1)])
            self._tries += 1
            try:
                await asyncio.get_running_loop().create_connection(lambda: self, *self._crowd.address)
            except OSError:
                continue
            return

    def kill(self) -> None:
        """Report that the program was killed."""
        self._end_program()
        self._crowd.tell(what="killed")
        self._send_exited()

    def leave(self) -> None:
        """End the connection, and the member with it."""
        self._left = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait: the server sends the first line."""
        self._transport, self._buffer, self._greeted, self._welcome = transport, b"", False, False

    def data_received(self, data: bytes) -> None:
        """Handle the complete lines; keep a partial one."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if self._greeted:
                self._hear(line)
            else:
                self._greeted, self._echoed_at = True, time.monotonic()
                self._greet(line)

    def connection_lost(self, error: Exception | None) -> None:
        """End the program and connect again: the launcher is gone, or gave this member up, or never admitted it."""
        if self._left:
            return
        self._crowd.lost += 1
        self._crowd.joined -= self._welcome
        self._left_at = time.monotonic()
        self._end_program()
        self._tries = 0 if self._welcome else self._tries
        asyncio.get_running_loop().create_task(self.dial())

    def _join(self) -> None:
        self._welcome = True
        self._crowd.has_joined()
        self._beat(self._transport)

    def _start(self, number: int) -> None:
        if self._runs:
            raise RuntimeError(f"{self._name} is in round {self._round} and is to start {number}")
        self._round, self._runs, self._started, self._stopped_at = number, True, time.monotonic(), None
        self._crowd.starts(number)

    def _stop(self) -> None:
        self._end_program()
        self._send_ready()

    def _end_program(self) -> None:
        if self._runs:
            self._runs, self._stopped_at = False, time.monotonic()
            self._crowd.stops(self._round)

    def _beat(self, transport: Any) -> None:
        if transport.is_closing() or transport is not self._transport:
            return
        self._crowd.beats += 1
        self._send_beat(time.monotonic())
        asyncio.get_running_loop().call_later(self._crowd.beat_seconds, self._beat, transport)

    def _echo(self, sent: float) -> None:
        now = time.monotonic()
        self._crowd.echoed(now - sent, now - self._echoed_at)
        self._echoed_at = sent

    def _greet(self, line: bytes) -> None:
        raise NotImplementedError

    def _hear(self, line: bytes) -> None:
        raise NotImplementedError

    def _send_beat(self, now: float) -> None:
        raise NotImplementedError

    def _send_ready(self) -> None:
        raise NotImplementedError

    def _send_exited(self) -> None:
        raise NotImplementedError


class BareMember(Member):
    """Lines of the same sizes for the bare server, without JSON and HMAC."""

    _beat_at = 0.0

    def _greet(self, line: bytes) -> None:
        self._transport.write(bare_line(HELLO, self._round))

    def _hear(self, line: bytes) -> None:
        kind, number, _ = line.split(b" ", 2)
        if kind == BARE_ECHO:
            self._echo(self._beat_at)
        elif kind == WELCOME:
            self._join()
        elif kind == START:
            self._start(int(number))
        elif kind == STOP:
            self._stop()

    def _send_beat(self, now: float) -> None:
        self._beat_at = now
        self._transport.write(bare_line(BEAT))

    def _send_ready(self) -> None:
        self._transport.write(bare_line(READY))

    def _send_exited(self) -> None:
        self._transport.write(bare_line(EXITED))


class LauncherMember(Member):
    """Frames of the rendezvous protocol."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        super().__init__(crowd, name)
        self._incarnation = secrets.token_hex(8)
        self._key = b""
        self._sent = self._closed_round = self._bye_round = 0

    def connection_lost(self, error: Exception | None) -> None:
        """Remember that the chief's launcher closed the connection in this round."""
        self._closed_round = self._round
        super().connection_lost(error)

    def _greet(self, line: bytes) -> None:
        ours = secrets.token_hex(16)
        text = f"tftraining/1 {json.loads(line)['nonce']} {ours}".encode()
        self._key, self._sent = hmac.digest(self._crowd.secret, text, "sha256"), 0
        self._transport.write(ours.encode() + b"\n")
        now = time.monotonic()
        who = {"uid": self._crowd.uid, "attempt": 1, "member": self._name, "incarnation": self._incarnation}
        down = None if self._stopped_at is None else now - self._stopped_at
        left = None if self._left_at is None else now - self._left_at
        last = {"round": self._round, "known": self._round, "witness": self._closed_round, "farewell": self._bye_round}
        more = {"ledger": {}, "elastic": True, "keepsFits": "", "running": False, "leaving": False, "step": None}
        self._send({"type": "hello", "t": now, **who, **last, **more, "down": down, "left": left})

    def _hear(self, line: bytes) -> None:
        frame = json.loads(line.partition(b" ")[2])
        if frame["type"] == "beat":
            self._echo(frame["echo"])
        elif frame["type"] == "welcome":
            self._join()
        elif frame["type"] == "start":
            self._start(frame["round"])
        elif frame["type"] == "stop":
            self._stop()
        elif frame["type"] == "bye":
            self._bye_round = self._round

    def _send_beat(self, now: float) -> None:
        progress = self._progress(now) if self._runs else {}
        condition = {"mode": "warm", "pid": 4711, "stuck": 0.0, "prepared": True, "noGpu": False}
        self._send({"type": "beat", "t": now, "round": self._round, "progress": progress, **condition})

    def _send_ready(self) -> None:
        self._send({"type": "ready", "round": self._round})

    def _send_exited(self) -> None:
        ended: dict[str, Any] = {"code": None, "signal": 9, "kind": "", "exception": "", "lines": []}
        progress = self._progress(time.monotonic())
        self._send({"type": "exited", "round": self._round, "exit": ended, "progress": progress})

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


async def run(crowd: Crowd, kind: type[Member]) -> None:
    """Connect all members at once; obey the commands until stdin ends."""
    crowd.tell(what="dials")
    members = [kind(crowd, name) for name in crowd.names]
    dialling = [asyncio.create_task(member.dial()) for member in members]
    commands = {"counts": crowd.count, "rounds": crowd.list_rounds, "kill": members[0].kill}
    while command := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        commands[command.strip()]()
    await asyncio.gather(*dialling)


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
    asyncio.run(run(crowd, BareMember if options.bare else LauncherMember))


if __name__ == "__main__":
    main()

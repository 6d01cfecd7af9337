"""Members of a gang over real connections, without launchers or programs: many of them in one event loop.

Towards the chief's launcher a member does what a real one does: it greets it, signs every frame, starts its round when
it is told to, beats with the progress of a training, reports that its program was killed, and reports that no program
runs when it is told to stop. The crowd notes which member was in which round from when to when, and how old the last
echo of a member has become.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DIAL_AGAIN_SECONDS = 0.5
STEPS_PER_SECOND = 40
STEPS_PER_EPOCH = 100  # a new epoch is progress: without one, the chief's launcher delays repeated restarts


@dataclass
class RoundLog:
    """One round as the members have seen it. Times are monotonic seconds."""

    starts: Counter[str] = field(default_factory=Counter)
    first_start: float = float("inf")
    last_end: float = 0.0


def overlaps(rounds: dict[int, RoundLog]) -> int:
    """The number of rounds in which a member started before all members had ended the earlier ones."""
    numbers = sorted(rounds)
    return sum(
        any(rounds[later].first_start < rounds[earlier].last_end for earlier in numbers if earlier < later)
        for later in numbers
    )


@dataclass(frozen=True)
class Job:
    """Where the members connect, the job's secret and UID, and the seconds between two heartbeats of a member."""

    address: tuple[str, int]
    secret: bytes
    uid: str
    beat_seconds: float


class Crowd:
    """The members, and what they have seen. `tell` gets each milestone of all; `end_seconds` is how long a member's
    program takes to end once it is told to."""

    def __init__(
        self, job: Job, names: list[str], tell: Callable[..., None], end_seconds: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.job, self.names, self.tell, self.end_seconds = job, names, tell, end_seconds
        self.rounds: dict[int, RoundLog] = {}
        self.members: dict[str, Member] = {}
        self.joined = 0
        self.closed = False
        self.beats = self.echoes = self.lost = 0
        self.slowest_echo = self.oldest_lease = 0.0

    def connect(self, kind: type[Member]) -> None:
        """Connect all members at once."""
        for name in self.names:
            self.dial(kind, name)

    def dial(self, kind: type[Member], name: str) -> None:
        """Connect one member; retry until the server listens."""
        asyncio.get_running_loop().create_task(self._dial(kind, name))

    async def _dial(self, kind: type[Member], name: str) -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_connection(lambda: kind(self, name), *self.job.address)
            except OSError:
                await asyncio.sleep(DIAL_AGAIN_SECONDS)
            else:
                return

    def close(self) -> None:
        """Break all connections for good."""
        self.closed = True
        for member in self.members.values():
            member.transport.abort()

    def has_joined(self) -> None:
        """Note a member that has joined."""
        self.joined += 1
        if self.joined == len(self.names):
            self.tell("joined")

    def starts(self, name: str, number: int) -> None:
        """Note that a member's program starts in a round."""
        log = self.rounds.setdefault(number, RoundLog())
        log.first_start = min(log.first_start, time.monotonic())
        log.starts[name] += 1
        if log.starts.total() == len(self.names):
            self.tell("running")

    def ends(self, number: int) -> None:
        """Note that a member's program has ended."""
        self.rounds[number].last_end = time.monotonic()

    def echoed(self, took: float, lease: float) -> None:
        """Note an echo that came `took` seconds after its heartbeat, when the one before was `lease` seconds old."""
        self.echoes += 1
        self.slowest_echo, self.oldest_lease = max(self.slowest_echo, took), max(self.oldest_lease, lease)

    def count(self) -> dict[str, float]:
        """The counts since the last call, which are reset."""
        silent = [time.monotonic() - each.echoed_at for each in self.members.values()]
        oldest = max([self.oldest_lease, *silent])
        found = {"beats": self.beats, "echoes": self.echoes, "lost": self.lost, "slowestEcho": self.slowest_echo}
        self.beats = self.echoes = self.lost = 0
        self.slowest_echo = self.oldest_lease = 0.0
        return {**found, "oldestLease": oldest}


class Member(asyncio.Protocol):
    """What a member does, without the form of its frames: `_take` reads a line, and `_say` writes a frame."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self._crowd, self._name = crowd, name
        self.transport: Any = None
        self._buffer = b""
        self._round = 0
        self._started = 0.0
        self._steps = 0.0  # of all rounds: each resumes where the last one ended
        self.echoed_at = 0.0  # when it sent the newest heartbeat, or hello, that the chief has answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait: the chief's launcher sends the first frame."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle the complete lines; keep a partial one."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(line)

    def connection_lost(self, error: Exception | None) -> None:
        """Count the loss and connect again: the chief's launcher gave this member up, or never admitted it."""
        self._crowd.lost += 1
        self._crowd.members.pop(self._name, None)
        if not self._crowd.closed:
            asyncio.get_running_loop().call_later(DIAL_AGAIN_SECONDS, self._crowd.dial, type(self), self._name)

    def kill(self) -> None:
        """Have the program killed, and report that."""
        self._end()
        ended: dict[str, Any] = {"code": None, "signal": int(signal.SIGKILL), "kind": "", "exception": "", "lines": []}
        self._say("exited", round=self._round, exit=ended, progress={})

    def _take(self, line: bytes) -> None:
        raise NotImplementedError

    def _say(self, kind: str, **fields: Any) -> None:
        raise NotImplementedError

    def _joins(self, sent_at: float) -> None:
        self.echoed_at = sent_at
        self._crowd.members[self._name] = self
        self._crowd.has_joined()
        self._beat()

    def _echoed(self, sent_at: float) -> None:
        now = time.monotonic()
        self._crowd.echoed(now - sent_at, now - self.echoed_at)
        self.echoed_at = max(self.echoed_at, sent_at)

    def _start(self, number: int) -> None:
        self._round, self._started = number, time.monotonic()
        self._crowd.starts(self._name, number)

    def _stop(self, number: int) -> None:
        seconds = self._crowd.end_seconds()
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._stopped, number)
        else:
            self._stopped(number)

    def _stopped(self, number: int) -> None:
        self._end()
        self._say("ready", round=number)

    def _end(self) -> None:
        if self._started:
            self._steps += (time.monotonic() - self._started) * STEPS_PER_SECOND
            self._started = 0.0
            self._crowd.ends(self._round)

    def _beat(self) -> None:
        if self.transport.is_closing():
            return
        now = time.monotonic()
        progress = self._progress(now) if self._started else {}
        condition = {"mode": "warm", "pid": 4711, "stuck": 0.0, "prepared": True, "noGpu": False}
        self._crowd.beats += 1
        self._say("beat", t=now, round=self._round, progress=progress, **condition)
        asyncio.get_running_loop().call_later(self._crowd.job.beat_seconds, self._beat)

    def _progress(self, now: float) -> dict[str, Any]:
        ran = now - self._started
        done, first = int(self._steps + ran * STEPS_PER_SECOND), int(self._steps)
        if done == first:
            return {}
        size = STEPS_PER_EPOCH
        counts = {"epoch": done // size + 1, "epochs": 1000, "step": done, "steps_per_epoch": size}
        rates = {"steps_per_second": 40.1 + ran % 1, "updated": time.time(), "metrics": {"loss": 1 / ran}}
        times = {"first_step_time": ran, "last_step_time": 0.012}
        return {**counts, "first_epoch": first // size, "first_step": first, **rates, **times}


class SignedMember(Member):
    """A member with the frames of the real protocol."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        super().__init__(crowd, name)
        self._key = b""
        self._sent = 0

    def _take(self, line: bytes) -> None:
        if not self._key:
            return self._greet(json.loads(line))
        frame = json.loads(line.partition(b" ")[2])
        if frame["type"] == "beat":
            self._echoed(frame["echo"])
        elif frame["type"] == "welcome":
            self._joins(frame["echo"])
        elif frame["type"] == "start":
            self._start(frame["round"])
        elif frame["type"] == "stop":
            self._stop(frame["round"])
        return None

    def _greet(self, greeting: dict[str, Any]) -> None:
        ours = secrets.token_hex(16)
        text = f"tftraining/1 {greeting['nonce']} {ours}".encode()
        self._key = hmac.digest(self._crowd.job.secret, text, "sha256")
        self.transport.write(ours.encode() + b"\n")
        who = {"uid": self._crowd.job.uid, "attempt": 1, "member": self._name, "incarnation": ours}
        none = {"round": 0, "known": 0, "witness": 0, "running": False, "leaving": False, "down": None, "step": None}
        self._say("hello", t=time.monotonic(), **who, **none, ledger={}, elastic=True, keepsFits="")

    def _say(self, kind: str, **fields: Any) -> None:
        body = json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()
        self._sent += 1
        seal = hmac.digest(self._key, b"member %d " % self._sent + body, hashlib.sha256).hex()
        self.transport.write(seal.encode() + b" " + body + b"\n")

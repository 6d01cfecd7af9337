"""Members of a gang that run no program: many of them in one process, each with a connection of its own.

`python -m benchmarks.heartbeat_members` is a part of `benchmarks.heartbeats`. Towards the chief's launcher it plays
`tests.support.simulated_gang.connected_members`; in front of the bare server (`--bare`) it sends as many bytes as
often. Lines of JSON on stdout tell how far all members are. A line on stdin asks for the counts, for the rounds, or
for the kill of the first member's program.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from typing import Any

from benchmarks.heartbeat_floor import BEAT, EXITED, HELLO, NONCE, READY, START, STOP, WELCOME, Line
from tests.support.simulated_gang.connected_members import Crowd, Job, Member, SignedMember
from tftraining.launch.rendezvous.client import heartbeat_interval

MEMBER_TIMEOUT = 3.0  # seconds, the default of spec.launcher.memberTimeoutSeconds
LINES: dict[str, Line] = {"hello": HELLO, "beat": BEAT, "exited": EXITED, "ready": READY}


class BareMember(Member):
    """A member that sends lines of the same sizes, without JSON and signatures, to the bare server."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        super().__init__(crowd, name)
        self._sent_at = 0.0

    def _take(self, line: bytes) -> None:
        letter = line[:1]
        if letter == BEAT.letter:
            self._echoed(self._sent_at)
        elif letter == WELCOME.letter:
            self._joins(self._sent_at)
        elif letter == START.letter:
            self._start(self._round + 1)
        elif letter == STOP.letter:
            self._stop(self._round)
        else:  # the greeting
            self.transport.write(NONCE.text)
            self._say("hello")

    def _say(self, kind: str, **fields: Any) -> None:
        self._sent_at = time.monotonic() if kind in ("beat", "hello") else self._sent_at
        self.transport.write(LINES[kind].text)

    def _progress(self, now: float) -> dict[str, Any]:
        return {}


def tell(what: str, **fields: object) -> None:
    """Print a line of JSON for the benchmark."""
    print(json.dumps({"what": what, **fields, "at": time.monotonic()}), flush=True)


def tell_rounds(crowd: Crowd) -> None:
    """Print each round: the starts of each member, the first start and the last end."""
    tell("rounds", rounds={key: (log.starts, log.first_start, log.last_end) for key, log in crowd.rounds.items()})


async def run(crowd: Crowd, kind: type[Member]) -> None:
    """Connect all members at once; obey until stdin ends."""
    tell("dials")
    crowd.connect(kind)
    while order := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        if order.strip() == "kill":
            tell("killed")
            crowd.members[crowd.names[0]].kill()
        elif order.strip() == "rounds":
            tell_rounds(crowd)
        else:
            tell("counts", **crowd.count())


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
    secret, beat_seconds = sys.stdin.readline().strip().encode(), heartbeat_interval(MEMBER_TIMEOUT, options.members)
    crowd = Crowd(Job(("127.0.0.1", options.port), secret, options.uid, beat_seconds), names, tell)
    asyncio.run(run(crowd, BareMember if options.bare else SignedMember))


if __name__ == "__main__":
    main()

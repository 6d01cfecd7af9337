"""What a large gang costs the launcher of its chief: heartbeats, the greeting of all at once, and `/status`.

`python -m benchmarks.heartbeats` starts one real launcher, that of worker-0 with a program that sleeps, for gangs of
100, 1,000 and 3,000 members, and lets the others (`heartbeat_members`, in a few processes) join, start their round and
beat as real launchers do, all by way of loopback. Measured, from outside: CPU seconds a second of the launcher with
nobody at its `/status` and with one client that waits for changes; how old an echo becomes at most (a member whose echo
is older than 2.5 s ends its program); the time until all have joined and all run; size and CPU time of `/status`. The
floor is a bare asyncio server that answers as many messages of the same sizes. The last line is JSON. It must never
judge.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.process_usage import cpu_seconds, resident_mib
from tests.support.http_pages import read_page
from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import hello, make_coordinator
from tftraining.launch.http.pages import gang_status, gang_summary

UID = "0d9c2f5e"
SECRET = "a secret of the benchmark"
ECHO = b"e" * 125 + b"\n"  # as long as a signed answer to a heartbeat
SETTLE_SECONDS = 3.0
LONGEST_START = 120.0
LOOKS = 10
PROCESSES = 2


class Echo(asyncio.Protocol):
    """The floor: a server that answers all data with a line."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait: the client sends first."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Answer a heartbeat; on loopback, one heartbeat is one segment."""
        self._transport.write(ECHO)


async def echo(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


class Crowds:
    """The members of the gang, in a few processes."""

    def __init__(self, port: int, first: int, members: int, *options: str) -> None:
        shares = [members // PROCESSES + (index < members % PROCESSES) for index in range(PROCESSES)]
        self._processes = []
        for share in shares:
            command = [sys.executable, "-m", "benchmarks.heartbeat_members", f"--port={port}", f"--first={first}"]
            first += share
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = subprocess.Popen(
                [*command, f"--count={share}", f"--members={members}", *options], text=True, **pipes
            )  # type: ignore[call-overload]
            process.stdin.write(f"{SECRET}\n")
            process.stdin.flush()
            self._processes.append(process)

    def hear(self, what: str) -> list[dict[str, Any]]:
        """The line with this `what` from each process, once all have printed it."""
        return [self._next(process, what) for process in self._processes]

    def counts(self) -> dict[str, float]:
        """The sums since the last call, and the oldest echo of all."""
        for process in self._processes:
            process.stdin.write("\n")
            process.stdin.flush()
        told = self.hear("counts")
        sums = {name: sum(each[name] for each in told) for name in ("beats", "echoes", "lost")}
        return {**sums, "oldestEcho": max(each["oldestEcho"] for each in told)}

    def end(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _next(self, process: Any, what: str) -> dict[str, Any]:
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line)
            if told["what"] == what:
                return told
        raise RuntimeError("members have exited")


class Waiting:
    """A client that repeats the request for /status after each answer, as the operator does."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/status"
        self._over = False
        self.answers = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        revision = ""
        while not self._over:
            text = read_page(f"{self._url}?changedSince={revision}&timeoutSeconds=2")[1]
            revision = json.loads(text).get("revision", "") if text else ""
            self.answers += 1

    def end(self) -> None:
        """Wait for the last answer."""
        self._over = True
        self._thread.join()


@contextlib.contextmanager
def launcher(place: Path, members: int) -> Iterator[tuple[int, int, int]]:
    """A chief's launcher for a gang of `members`: its PID, its rendezvous port and the port of its pages."""
    rendezvous, status = free_ports(2)
    (place / "key").write_text(SECRET)
    told = {
        "job": {"namespace": "benchmarks", "name": "job", "uid": UID},
        "attempt": 1,
        "rendezvous": f"127.0.0.1:{rendezvous}",
        "statusPort": status,
        "host": "127.0.0.1",
        "secretFile": str(place / "key"),
        "warmStart": False,
    }
    workers = [f"10.0.0.1:{10000 + index}" for index in range(members)]
    environment = {
        **os.environ,
        "TMPDIR": str(place),
        "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}}),
        "TFTRAINING_LAUNCHER": json.dumps(told),
    }
    command = [sys.executable, "-m", "tftraining.launch", "--", "sleep", "600"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=sys.stderr) as process:
        try:
            yield process.pid, rendezvous, status
        finally:
            process.kill()


def cpu_share(pid: int, seconds: float) -> float:
    """CPU seconds per second of a process, over `seconds`."""
    before, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - begun)


def floor(members: int, seconds: float) -> dict[str, float]:
    """Measure the bare server under the same load."""
    (port,) = free_ports(1)
    with subprocess.Popen([sys.executable, "-m", "benchmarks.heartbeats", "--echo", str(port)]) as server:
        crowds = Crowds(port, 1, members - 1, "--bare")
        try:
            crowds.hear("running")
            time.sleep(SETTLE_SECONDS)
            crowds.counts()
            share = cpu_share(server.pid, seconds)
            counts = crowds.counts()
            return {"floor_cpu": share, "floor_us_a_beat": _each(share, counts["echoes"] / seconds)}
        finally:
            crowds.end()
            server.kill()


def gang(members: int, seconds: float) -> dict[str, float]:
    """Measure a real launcher with its gang."""
    with tempfile.TemporaryDirectory() as place, launcher(Path(place), members) as (pid, port, status):
        crowds = Crowds(port, 1, members - 1, f"--uid={UID}")
        try:
            begun = min(each["at"] for each in crowds.hear("dials"))
            joined, running = (max(each["at"] for each in crowds.hear(what)) for what in ("joined", "running"))
            time.sleep(SETTLE_SECONDS)
            start = crowds.counts()
            share = cpu_share(pid, seconds)
            counts = crowds.counts()
            waiting = Waiting(status)
            watched = cpu_share(pid, seconds)
            waiting.end()
            return {
                "cpu": share,
                "cpu_watched": watched,
                "answers": waiting.answers,
                "us_a_beat": _each(share, counts["echoes"] / seconds),
                "beats_s": counts["beats"] / seconds,
                "oldest_echo_s": counts["oldestEcho"],
                "lost": counts["lost"],
                "joined_s": joined - begun,
                "running_s": running - begun,
                "lost_at_start": start["lost"],
                "oldest_echo_at_start_s": start["oldestEcho"],
                "status_ms": _of_status(status),
                "rss_mib": resident_mib(pid),
            }
        finally:
            crowds.end()


def pages(members: int) -> dict[str, float]:
    """Size and CPU time of /status with and without members, in this process, so that no other work counts."""
    chief = make_coordinator(*(f"worker-{index}" for index in range(members)))
    found: dict[str, float] = {}
    for name in chief.membership.gang:
        chief.handle_hello(hello(name), 0.0)
    looks: dict[str, Callable[[], dict[str, Any]]]
    looks = {"status": partial(gang_status, chief, 1.0), "short_status": partial(gang_summary, chief)}
    for name, look in looks.items():
        begun = time.process_time()
        sizes = [len(json.dumps(look(), separators=(",", ":"))) for _ in range(LOOKS)]
        found |= {f"{name}_cpu_ms": (time.process_time() - begun) / LOOKS * 1000, f"{name}_bytes": float(sizes[0])}
    return found


def _each(share: float, rate: float) -> float:
    """CPU microseconds per answer, at `rate` answers per second."""
    return share / max(rate, 1.0) * 1e6


def _of_status(port: int) -> float:
    """The median latency of /status in milliseconds, during the heartbeats."""
    took = []
    for _ in range(LOOKS):
        begun = time.monotonic()
        read_page(f"http://127.0.0.1:{port}/status")
        took.append(time.monotonic() - begun)
    return sorted(took)[LOOKS // 2] * 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; the last line is JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heartbeats", description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, nargs="+", default=[100, 1000, 3000])
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of each measurement")
    parser.add_argument("--echo", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.echo:
        return asyncio.run(echo(options.echo))
    found: dict[str, dict[str, float]] = {}
    for members in options.members:
        told = {**floor(members, options.seconds), **gang(members, options.seconds), **pages(members)}
        found[str(members)] = {name: round(value, 3) for name, value in told.items()}
        print(f"{members} members: {found[str(members)]}", flush=True)
    print(json.dumps({**found, "load_average": round(os.getloadavg()[0], 1)}))
    return None


if __name__ == "__main__":
    main()

"""What a large gang costs the launcher of its chief: the start of all at once, heartbeats, restarts, and `/status`.

`python -m benchmarks.heartbeats` starts one real launcher, that of worker-0 with a program that sleeps, for gangs of
100, 1,000 and 3,000 members, and lets the others (`heartbeat_members`, in a few processes) join, start their round,
beat, stop and start again as real launchers do, all by way of loopback. Measured, from outside: CPU seconds a second of
the launcher with nobody at its `/status` and with one client that waits for changes; how old the last echo of a member
becomes at most in each phase (a member whose echo is older than 2.5 s ends its program); the time until all have joined
and all run; the time from the kill of one member's program until all run the next round; whether rounds overlap; size
and CPU time of `/status`. The floor is a bare asyncio server with the same choreography and messages of the same sizes.
The last line is JSON. It must never judge.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.process_usage import cpu_seconds, resident_mib
from tests.support.http_pages import read_page
from tests.support.ports import free_ports
from tests.support.simulated_gang.connected_members import RoundLog, overlaps
from tests.support.simulated_gang.simulation import hello, make_coordinator
from tftraining.launch.http.pages import gang_status, gang_summary

UID = "0d9c2f5e"
SECRET = "a secret of the benchmark"
SETTLE_SECONDS = 3.0
EPOCH_SECONDS = 4.0  # the simulated members make a new epoch in 2.5 s
LOOKS = 10
PROCESSES = 2


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
        """The sums since the last call, the slowest echo and the oldest lease of all."""
        self._order("counts")
        told = self.hear("counts")
        sums = {name: sum(each[name] for each in told) for name in ("beats", "echoes", "lost")}
        return {**sums, **{name: max(each[name] for each in told) for name in ("slowestEcho", "oldestLease")}}

    def restart(self) -> float:
        """Seconds from the kill of one member's program until all members run the next round."""
        self._order("kill", self._processes[:1])
        killed = self._next(self._processes[0], "killed")["at"]
        return float(max(each["at"] for each in self.hear("running")) - killed)

    def check_rounds(self, members: int) -> dict[str, float]:
        """The number of rounds, of those that overlap, and of starts of the `members` that did not happen exactly once.
        There is one round more than restarts, unless a member was lost."""
        self._order("rounds")
        rounds: dict[int, RoundLog] = {}
        for each in self.hear("rounds"):
            for number, (starts, first, last) in each["rounds"].items():
                log = rounds.setdefault(int(number), RoundLog())
                log.starts.update(starts)
                log.first_start, log.last_end = min(log.first_start, first), max(log.last_end, last)
        once = sum(count == 1 for log in rounds.values() for count in log.starts.values())
        return {"rounds": len(rounds), "overlaps": overlaps(rounds), "wrong_starts": members * len(rounds) - once}

    def end(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _order(self, what: str, processes: Sequence[Any] = ()) -> None:
        for process in processes or self._processes:
            process.stdin.write(f"{what}\n")
            process.stdin.flush()

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


@dataclass(frozen=True)
class Times:
    """How long to measure: `seconds` of calm, and `restarts` with so many seconds of training before each."""

    seconds: float
    restarts: int


def floor(members: int, times: Times) -> dict[str, float]:
    """Measure the bare server under the same load."""
    (port,) = free_ports(1)
    told = [str(port), str(members - 1)]
    with subprocess.Popen([sys.executable, "-m", "benchmarks.heartbeat_floor", *told]) as server:
        crowds = Crowds(port, 1, members - 1, "--bare")
        try:
            started = start_of(crowds)
            crowds.counts()
            share = cpu_share(server.pid, times.seconds)
            counts = crowds.counts()
            calm = {"cpu": share, "us_a_beat": _each(share, counts["echoes"] / times.seconds)}
            found = {**started, **calm, **restarts_of(crowds, server.pid, members, times)}
            kept = ("running_s", "cpu", "us_a_beat", "restart_s", "restart_slowest_s", "restart_cpu_s")
            return {f"floor_{name}": found[name] for name in kept}
        finally:
            crowds.end()
            server.kill()


def start_of(crowds: Crowds) -> dict[str, float]:
    """Seconds from the first connection until all have joined and all run."""
    begun = min(each["at"] for each in crowds.hear("dials"))
    joined, running = (max(each["at"] for each in crowds.hear(what)) for what in ("joined", "running"))
    time.sleep(SETTLE_SECONDS)
    return {"joined_s": joined - begun, "running_s": running - begun}


def restarts_of(crowds: Crowds, pid: int, members: int, times: Times) -> dict[str, float]:
    """The times of the restarts, each after an epoch of training, and the CPU seconds of the server in one."""
    took, cpu = [], []
    for _ in range(times.restarts):
        time.sleep(EPOCH_SECONDS)
        before = cpu_seconds(pid)
        took.append(crowds.restart())
        cpu.append(cpu_seconds(pid) - before)
    counts = crowds.counts()
    return {
        "restart_s": statistics.median(took),
        "restart_slowest_s": max(took),
        "restart_cpu_s": statistics.median(cpu),
        "oldest_lease_at_restart_s": counts["oldestLease"],
        "lost_at_restart": counts["lost"],
        **crowds.check_rounds(members - 1),
    }


def gang(members: int, times: Times) -> dict[str, float]:
    """Measure a real launcher with its gang."""
    with tempfile.TemporaryDirectory() as place, launcher(Path(place), members) as (pid, port, status):
        crowds = Crowds(port, 1, members - 1, f"--uid={UID}")
        try:
            started = start_of(crowds)
            start = crowds.counts()
            share = cpu_share(pid, times.seconds)
            counts = crowds.counts()
            waiting = Waiting(status)
            watched = cpu_share(pid, times.seconds)
            waiting.end()
            crowds.counts()
            return {
                **started,
                "cpu": share,
                "cpu_watched": watched,
                "answers": waiting.answers,
                "us_a_beat": _each(share, counts["echoes"] / times.seconds),
                "beats_s": counts["beats"] / times.seconds,
                "slowest_echo_s": counts["slowestEcho"],
                "oldest_lease_s": counts["oldestLease"],
                "lost": counts["lost"],
                "lost_at_start": start["lost"],
                "slowest_echo_at_start_s": start["slowestEcho"],
                "oldest_lease_at_start_s": start["oldestLease"],
                **restarts_of(crowds, pid, members, times),
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
    parser.add_argument("--restarts", type=int, default=5, help="restarts of each gang")
    options = parser.parse_args(arguments)
    times = Times(options.seconds, options.restarts)
    found: dict[str, dict[str, float]] = {}
    for members in options.members:
        told = {**floor(members, times), **gang(members, times), **pages(members)}
        found[str(members)] = {name: round(value, 3) for name, value in told.items()}
        print(f"{members} members: {found[str(members)]}", flush=True)
    print(json.dumps({**found, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

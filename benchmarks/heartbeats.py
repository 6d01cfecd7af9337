"""What a large gang costs the launcher of its chief: start, heartbeats, `/status`, a killed program, a new launcher.

`python -m benchmarks.heartbeats` starts one real launcher, that of worker-0 with a program that sleeps, for gangs of
100, 1,000 and 3,000 members, and lets the others (`heartbeat_members`, in a few processes) join, start their round and
beat as real launchers do, all by way of loopback. Measured, from outside: CPU seconds a second of the launcher with
nobody at its `/status` and with one client that waits for changes; how old an echo becomes at most (a member whose echo
is older than 2.5 s ends its program); the time until all have joined and all run; size and CPU time of `/status`; the
time from the report of a killed program, and from the death of the launcher itself, until all members are in the next
round, and whether two rounds overlap. The floor is a bare asyncio server that exchanges as many lines of the same sizes
(`rendezvous_floor`). The last line is JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.heartbeat_crowds import Crowds
from benchmarks.process_usage import cpu_seconds, resident_mib
from tests.support.http_pages import read_page
from tests.support.ports import free_ports
from tests.support.simulated_gang.simulation import hello, make_coordinator
from tftraining.launch.http.pages import gang_status, gang_summary

UID = "0d9c2f5e"
SECRET = "a secret of the benchmark"
SETTLE_SECONDS = 3.0
LOOKS = 10


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


class Server:
    """A process that serves the rendezvous, and can be started again on the same port."""

    def __init__(self, command: list[str], port: int, environment: Mapping[str, str] | None = None) -> None:
        self.port = port
        self._command, self._environment = [sys.executable, "-m", *command], environment
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The process that serves now."""
        return self._process.pid

    def restart(self) -> None:
        """Kill the process, and start it again at once, as a kubelet does without a back-off."""
        self.kill()
        self._process = self._start()

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=sys.stderr)


def bare_server(members: int) -> Server:
    """The floor."""
    (port,) = free_ports(1)
    return Server(["benchmarks.rendezvous_floor", f"--port={port}", f"--members={members}"], port)


def launcher(place: Path, members: int) -> tuple[Server, int]:
    """A chief's launcher for a gang of `members`, and the port of its pages."""
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
    return Server(["tftraining.launch", "--", "sleep", "600"], rendezvous, environment), status


def cpu_share(pid: int, seconds: float) -> float:
    """CPU seconds per second of a process, over `seconds`."""
    before, begun = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - begun)


def joining(crowds: Crowds) -> dict[str, float]:
    """The start: until all members have joined, and until all run."""
    begun = min(each["at"] for each in crowds.hear("dials"))
    joined, running = (max(each["at"] for each in crowds.hear(what)) for what in ("joined", "running"))
    time.sleep(SETTLE_SECONDS)
    counts = crowds.counts()
    leases = {"lost_at_start": counts["lost"], "oldest_echo_at_start_s": counts["oldestEcho"]}
    times = {"joined_s": joined - begun, "running_s": running - begun}
    return {**times, **leases, "oldest_lease_at_start_s": counts["oldestLease"]}


def restarts(crowds: Crowds, server: Server) -> dict[str, float]:
    """A member's program is killed, then the server itself: until all members are in the next round."""
    crowds.counts()
    cpu, killed = cpu_seconds(server.pid), crowds.kill_one()
    again = max(each["at"] for each in crowds.hear("running", 2))
    spent = cpu_seconds(server.pid) - cpu
    time.sleep(SETTLE_SECONDS)
    counts, gone = crowds.counts(), time.monotonic()
    server.restart()
    back = max(each["at"] for each in crowds.hear("running", 3))
    time.sleep(SETTLE_SECONDS)
    after = crowds.counts()
    return {
        "kill_s": again - killed,
        "kill_cpu_s": spent,
        "lost_at_kill": counts["lost"],
        "oldest_lease_at_kill_s": counts["oldestLease"],
        "restart_s": back - gone,
        "restart_cpu_s": cpu_seconds(server.pid),
        "lost_at_restart": after["lost"],
        "oldest_lease_at_restart_s": after["oldestLease"],
    }


def floor(members: int, seconds: float) -> dict[str, float]:
    """Measure the bare server under the same load."""
    server = bare_server(members - 1)
    crowds = Crowds(server.port, 1, members - 1, SECRET, "--bare")
    try:
        found = joining(crowds)
        share = cpu_share(server.pid, seconds)
        found |= {"cpu": share, "us_a_beat": _each(share, crowds.counts()["echoes"] / seconds)}
        found |= restarts(crowds, server)
        return {f"floor_{name}": value for name, value in found.items()}
    finally:
        crowds.end()
        server.kill()


def gang(members: int, seconds: float) -> dict[str, float]:
    """Measure a real launcher with its gang."""
    with tempfile.TemporaryDirectory() as place:
        server, status = launcher(Path(place), members)
        crowds = Crowds(server.port, 1, members - 1, SECRET, f"--uid={UID}")
        try:
            start = joining(crowds)
            return {**start, **_calm(crowds, server, status, seconds), **restarts(crowds, server), **crowds.rounds()}
        finally:
            crowds.end()
            server.kill()


def _calm(crowds: Crowds, server: Server, status: int, seconds: float) -> dict[str, float]:
    """The launcher while all members beat, without and with a client that waits at `/status`."""
    share = cpu_share(server.pid, seconds)
    counts = crowds.counts()
    waiting = Waiting(status)
    watched = cpu_share(server.pid, seconds)
    waiting.end()
    return {
        "cpu": share,
        "cpu_watched": watched,
        "answers": waiting.answers,
        "us_a_beat": _each(share, counts["echoes"] / seconds),
        "beats_s": counts["beats"] / seconds,
        "oldest_echo_s": counts["oldestEcho"],
        "oldest_lease_s": counts["oldestLease"],
        "lost": counts["lost"],
        "status_ms": _of_status(status),
        "rss_mib": resident_mib(server.pid),
    }


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
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, float]] = {}
    for members in options.members:
        told = {**floor(members, options.seconds), **gang(members, options.seconds), **pages(members)}
        found[str(members)] = {name: round(value, 3) for name, value in told.items()}
        print(f"{members} members: {found[str(members)]}", flush=True)
    print(json.dumps({**found, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

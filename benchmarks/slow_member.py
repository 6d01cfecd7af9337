"""Whether the slow member of a synchronous training can be told from what each member measures of itself.

An experiment. `python -m benchmarks.slow_member --members 2 --windows 40` trains with MultiWorkerMirroredStrategy, and
slows one member in 40 of 80 windows of steps, so that its steps take about 1.5 times as long: it is stopped for a part
of the time (SIGSTOP), gets a quota of CPU time, waits for its input, or is reached through a slow network (a proxy that
delays each packet). All members make equally many steps a second, so each measures, a step: the time between its last
gradient and the end of the all-reduce (it waits), the time until its input is there, and its CPU time
(slow_member_worker.py). A member's own time is the step without the wait. A member is called slow where its own time is
LIMIT times the median of the others'. The last line is JSON.
"""

import argparse
import json
import os
import random
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_ports

LIMIT = 1.25
FACTOR = 1.5
PERIOD = 0.02  # seconds of a stop and a run
DELAY = 0.01  # seconds that the proxy holds each packet
QUOTAS = Path("/sys/fs/cgroup/cpu")


# --- faults


@contextmanager
def stopped(member: "Member", seconds: float) -> Iterator[None]:
    """The member stands still for a part of the time."""
    over = threading.Event()

    def run() -> None:
        part = PERIOD * (1 - 1 / FACTOR)
        while not over.is_set():
            member.process.send_signal(signal.SIGSTOP)
            time.sleep(part)
            member.process.send_signal(signal.SIGCONT)
            over.wait(PERIOD - part)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def quota(member: "Member", seconds: float) -> Iterator[None]:
    """The member has less of a core than it used: `seconds` of CPU time a second, divided by FACTOR."""
    group = QUOTAS / f"tftraining-slow-{member.process.pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("20000")
        (group / "cpu.cfs_quota_us").write_text(str(int(20000 * seconds / FACTOR)))
        (group / "cgroup.procs").write_text(str(member.process.pid))
        yield
    finally:
        (QUOTAS / "cgroup.procs").write_text(str(member.process.pid))
        group.rmdir()


@contextmanager
def slow_input(member: "Member", seconds: float) -> Iterator[None]:
    """The member's part of each batch takes FACTOR times its step; a batch has a part for each member."""
    member.pause.write_text(str(member.calm["step"] * FACTOR * member.members))
    try:
        yield
    finally:
        member.pause.write_text("0")


@contextmanager
def slow_network(member: "Member", seconds: float) -> Iterator[None]:
    """What the others send to the member arrives DELAY later."""
    member.proxy.delay = DELAY
    try:
        yield
    finally:
        member.proxy.delay = 0.0


FAULTS = {"stopped": stopped, "quota": quota, "input": slow_input, "network": slow_network}


class Proxy:
    """Forwards connections of 127.0.0.1 from one port to another, and delays what passes."""

    def __init__(self, port: int, target: int) -> None:
        self.delay = 0.0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            near.close()
            return
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._copy, args=(far, near, False), daemon=True).start()
        self._copy(near, far, True)

    def _copy(self, source: socket.socket, target: socket.socket, late: bool) -> None:
        try:
            while chunk := source.recv(1 << 16):
                if late and self.delay:
                    time.sleep(self.delay)
                target.sendall(chunk)
        except OSError:
            pass
        for each in (source, target):
            each.close()


class Member:
    """One program of the gang."""

    def __init__(self, rank: int, ports: list[int], proxied: list[int], folder: Path) -> None:
        self.pause = folder / f"pause-{rank}"
        self.pause.write_text("0")
        self.proxy = Proxy(proxied[rank], ports[rank])
        seen = [port if each == rank else proxied[each] for each, port in enumerate(ports)]
        cluster = {"worker": [f"127.0.0.1:{port}" for port in seen]}
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
        environment = {"TF_CONFIG": config, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._log = (folder / f"log-{rank}").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.slow_member_worker", str(self.pause)],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self.calm: dict[str, float] = {}
        self.members = len(ports)

    def window(self) -> dict[str, float]:
        """The figures of the next window."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 120)[0]:
            raise TimeoutError(f"no window in two minutes; see {self._log.name}")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a member has ended: {Path(self._log.name).read_text()[-2000:]}")
        found: dict[str, float] = json.loads(line)
        return found

    def stop(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()
        self._log.close()


# --- the judgement


def own(figures: dict[str, float]) -> float:
    """The seconds of a step in which a member does not wait for the others."""
    return figures["step"] - figures["wait"]


def judge(figures: list[dict[str, float]]) -> tuple[int, float, str]:
    """The slowest member, how many times the others' own time it needs, and what it does meanwhile."""
    times = [own(each) for each in figures]
    slowest = max(range(len(times)), key=times.__getitem__)
    others = [each for rank, each in enumerate(times) if rank != slowest]
    usual = statistics.median(each["input"] for rank, each in enumerate(figures) if rank != slowest)
    late = figures[slowest]["input"] - usual
    excess = times[slowest] - statistics.median(others)
    return slowest, times[slowest] / max(statistics.median(others), 1e-6), "input" if late > excess / 2 else "computes"


def run(members: int, windows: int, seed: int) -> list[dict[str, Any]]:
    """The judged windows: what was done, and what was found."""
    draw, found = random.Random(seed), []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        ports = free_ports(2 * members)
        gang = [Member(rank, ports[:members], ports[members:], Path(name)) for rank in range(members)]
        for each in gang:
            stack.callback(each.stop)
        for _ in range(3):
            for each in gang:
                each.calm = each.window()
        kinds = [*(list(FAULTS) * windows)[:windows], *["calm"] * windows]
        draw.shuffle(kinds)
        for number, kind in enumerate(kinds):
            victim = draw.randrange(members)
            used = gang[victim].calm["cpu"] / gang[victim].calm["step"]
            with FAULTS[kind](gang[victim], used) if kind != "calm" else ExitStack():
                for _ in range(2):  # the first one has a part without the fault
                    figures = [each.window() for each in gang]
            slowest, factor, cause = judge(figures)
            told = {"kind": kind, "victim": victim, "slowest": slowest, "factor": round(factor, 2), "cause": cause}
            slower = figures[0]["step"] / gang[0].calm["step"]
            found.append({**told, "slower": round(slower, 2), "windows": figures})
            print(f"{number + 1} of {len(kinds)}: {told}, steps take {slower:.2f} times as long", flush=True)
            for each in gang:
                each.window()  # the fault's last steps
            if kind == "calm":
                for each, now in zip(gang, figures, strict=True):
                    each.calm = now
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Precision and recall at LIMIT, and how far apart the factors of calm and of slowed windows are."""
    named = [each for each in found if each["factor"] >= LIMIT]
    right = [each for each in named if each["kind"] != "calm" and each["slowest"] == each["victim"]]
    faults = [each for each in found if each["kind"] != "calm"]
    by_kind = {
        kind: {
            "windows": len(of := [each for each in found if each["kind"] == kind]),
            "named": sum(each in right for each in of) if kind != "calm" else sum(each in named for each in of),
            "factor": [min(each["factor"] for each in of), max(each["factor"] for each in of)],
            "slower": round(statistics.median(each["slower"] for each in of), 2),
            "causes": sorted({each["cause"] for each in of if each in right}),
        }
        for kind in dict.fromkeys(each["kind"] for each in found)
    }
    precision = len(right) / len(named) if named else None
    return {"precision": precision, "recall": len(right) / len(faults), "by_kind": by_kind}


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Run the experiment."""
    signal.signal(signal.SIGTERM, _end)  # so that the members end, too
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--windows", type=int, default=40, help="with a fault, and as many without")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not os.access(QUOTAS, os.W_OK):
        parser.error(f"the quota of CPU time needs cgroup v1 ({QUOTAS}), and the right to write there")
    told = summary(run(options.members, options.windows, options.seed))
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"members": options.members, "limit": LIMIT, **told, "load_average": load}))


if __name__ == "__main__":
    main()

"""Whether the launchers name the slow member of a synchronous training, and nobody where none is slow.

`python -m benchmarks.slow_member --members 2 --windows 40` trains under real launchers with
MultiWorkerMirroredStrategy. In 40 of 80 windows one member is slowed, so that its steps take about 1.5 times as long:
it is stopped for a part of the time (SIGSTOP), gets a quota of CPU time, or waits for its input. A window with a fault
lasts until the chief's launcher names a member, at most PATIENCE seconds; the next one begins when it names none. A
calm one lasts CALM seconds. `--overhead` measures what a step pays for the search. The last line is JSON.
"""

import argparse
import functools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from tests.support.launchers.gang import LocalGang
from tests.support.launchers.stopped import stopped_now_and_then

FACTOR = 1.5
PERIOD = 0.02  # seconds of a stop and a run
CALM, PATIENCE, START = 16.0, 40.0, 180.0
METRICS = 8
QUOTAS = Path("/sys/fs/cgroup/cpu")
TICKS = os.sysconf("SC_CLK_TCK")


class Member:
    """One program of the gang, as the faults see it: what it used while nothing disturbed it."""

    def __init__(self, gang: LocalGang, name: str) -> None:
        self.pause = gang.place / f"pause-{name}"
        self.members = len(gang.names)
        self.pid = int(gang.status(name)["pid"])
        self.cores = self.step = 0.0

    def measure(self, gang: LocalGang, seconds: float) -> None:
        """Note the share of a core that it uses, and the seconds of a step."""
        before, began = (self._cpu(), self.steps(gang)), time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - began
        self.cores = (self._cpu() - before[0]) / passed
        self.step = passed / max(1, self.steps(gang) - before[1])

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def steps(self, gang: LocalGang) -> int:
        """The steps that the gang has made."""
        return int(gang.status()["progress"]["totalSteps"])


# --- faults


def stopped(member: Member) -> AbstractContextManager[None]:
    """The member stands still for a part of the time."""
    return stopped_now_and_then(member.pid, PERIOD * (1 - 1 / FACTOR), PERIOD / FACTOR)


@contextmanager
def quota(member: Member) -> Iterator[None]:
    """The member has less of a core than it used, divided by FACTOR."""
    group = QUOTAS / f"tftraining-slow-{member.pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("20000")
        (group / "cpu.cfs_quota_us").write_text(str(max(1000, int(20000 * member.cores / FACTOR))))
        (group / "cgroup.procs").write_text(str(member.pid))
        yield
    finally:
        (QUOTAS / "cgroup.procs").write_text(str(member.pid))
        group.rmdir()


@contextmanager
def slow_input(member: Member) -> Iterator[None]:
    """The member's part of each batch takes FACTOR times its step; a batch has a part for each member."""
    member.pause.write_text(str(member.step * FACTOR * member.members))
    try:
        yield
    finally:
        member.pause.unlink()


FAULTS = {"stopped": stopped, "quota": quota, "input": slow_input}
CAUSES = {"stopped": "Computes", "quota": "Computes", "input": "WaitsForInput"}


# --- the windows


def told(gang: LocalGang) -> dict[str, Any]:
    """What the chief's launcher says; a launcher that has ended is an error."""
    if any(each.poll() is not None for each in gang.launchers.values()):
        raise RuntimeError(gang.log(gang.names[0])[-2000:])
    found: dict[str, Any] | None = gang.status().get("slowMember")
    return found or {"member": None, "factor": 1.0, "cause": ""}


def waits(gang: LocalGang, seconds: float, found: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], float]:
    """The first words of the launcher that are `found`, or the last ones, and the seconds until then."""
    began = time.monotonic()
    while not found(last := told(gang)) and time.monotonic() < began + seconds:
        time.sleep(0.25)
    return last, time.monotonic() - began


def run(keras: str, members: int, windows: int, seed: int, batch: int) -> list[dict[str, Any]]:
    """The windows: what was done, and what the launcher has said."""
    draw, found, measured = random.Random(seed), [], 2.0 + batch / 1000  # seconds: a step of 8,000 takes one
    os.environ.update(KERAS=keras, BATCH=str(batch), TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    with (
        tempfile.TemporaryDirectory() as name,
        LocalGang(Path(name), {"worker": members}, memberTimeoutSeconds=6, maxRestarts=0) as gang,
    ):
        gang.command = [sys.executable, "-m", "benchmarks.slow_member_worker", name]
        gang.start()
        waits(gang, START, lambda _: gang.status().get("slowMember") is not None)
        trained = [Member(gang, each) for each in gang.names]
        kinds = [*(list(FAULTS) * windows)[:windows], *["calm"] * windows]
        draw.shuffle(kinds)
        for number, kind in enumerate(kinds):
            victim = draw.randrange(members)
            trained[victim].measure(gang, measured)
            calm = trained[victim].step
            begun = trained[victim].steps(gang)
            with nullcontext() if kind == "calm" else FAULTS[kind](trained[victim]):
                patience = CALM if kind == "calm" else PATIENCE
                last, seconds = waits(gang, patience, lambda each: each["member"] is not None)
                steps = trained[victim].steps(gang) - begun
                trained[victim].measure(gang, measured)
            slower = trained[victim].step / calm
            each = {"kind": kind, "victim": gang.names[victim], **last, "seconds": round(seconds, 1), "steps": steps}
            found.append({**each, "slower": round(slower, 2)})
            print(f"{number + 1} of {len(kinds)}: {found[-1]}", flush=True)
            waits(gang, PATIENCE, lambda each: each["member"] is None)
    return found


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Precision and recall, and by kind how many were named, the factors and the seconds until then."""
    named = [each for each in found if each["member"] is not None]
    right = [each for each in named if each["kind"] != "calm" and each["member"] == each["victim"]]
    faults = [each for each in found if each["kind"] != "calm"]
    by_kind = {}
    for kind in dict.fromkeys(each["kind"] for each in found):
        of = [each for each in found if each["kind"] == kind]
        hits = [each for each in of if each in (named if kind == "calm" else right)]
        by_kind[kind] = {
            "windows": len(of),
            "named": len(hits),
            "right_cause": sum(each["cause"] == CAUSES.get(kind) for each in hits),
            "factor": [min(each["factor"] for each in hits), max(each["factor"] for each in hits)] if hits else None,
            "seconds": statistics.median(each["seconds"] for each in hits) if hits else None,
            "steps": statistics.median(each["steps"] for each in hits) if hits else None,
            "slower": statistics.median(each["slower"] for each in of),
        }
    precision = len(right) / len(named) if named else None
    return {"precision": precision, "recall": len(right) / len(faults) if faults else None, "by_kind": by_kind}


def overhead(steps: int) -> dict[str, float]:
    """The microseconds that the measurement adds: to a step in the graph and in the hooks, and to a look. A step of
    tf_keras has an input, the question whether all have one, the gradients, and METRICS numbers."""
    import tensorflow as tf  # noqa: PLC0415  # the windows need none in this process

    from tftraining.launch.in_user_process.own_time import OwnTime  # noqa: PLC0415

    clock = OwnTime()
    clock.begin_fit(None)
    clock.begin_step(0)
    value = tf.ones((8,))

    places = [(1, False), (0, False), (0, True), *[(0, False)] * METRICS]

    def plain(given: Any) -> Any:
        for _ in places:
            given = tf.sin(given)
        return given

    def timed(given: Any) -> Any:
        for place, counts in places:
            given = clock.timed(place, given, functools.partial(tf.sin, given), counts)
        return given

    def seconds(function: Callable[..., Any]) -> float:
        rounds = []
        for _ in range(200):
            began = time.perf_counter()
            for _ in range(steps):
                function(value)
            rounds.append((time.perf_counter() - began) / steps)
        return min(rounds)  # what other processes do not disturb

    def hooks(_: Any) -> None:
        clock.begin_step(0)
        clock.end_step(0)

    with_it, without = tf.function(timed), tf.function(plain)
    with_it(value), without(value)
    graph = seconds(with_it) - seconds(without)
    look = seconds(lambda _: clock._add_up())
    return {name: round(each * 1e6, 2) for name, each in (("graph", graph), ("hooks", seconds(hooks)), ("look", look))}


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Run the windows."""
    signal.signal(signal.SIGTERM, _end)  # so that the members end, too
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keras", choices=("tf_keras", "keras"), default="tf_keras")
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--windows", type=int, default=40, help="with a fault, and as many without")
    parser.add_argument("--batch", type=int, default=96, help="examples of a step: 96 take about 60 ms")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--overhead", action="store_true", help="measure what a step pays, and nothing else")
    options = parser.parse_args()
    if options.overhead:
        print(json.dumps(overhead(50)))
        return
    if not os.access(QUOTAS, os.W_OK):
        parser.error(f"the quota of CPU time needs cgroup v1 ({QUOTAS}), and the right to write there")
    of_run = summary(run(options.keras, options.members, options.windows, options.seed, options.batch))
    load = round(os.getloadavg()[0], 1)
    print(
        json.dumps(
            {"keras": options.keras, "members": options.members, "batch": options.batch, **of_run, "load_average": load}
        )
    )


if __name__ == "__main__":
    main()

"""What backups in memory cost, and the training that a killed program loses with them; beside BackupAndRestore alone.

    python -m benchmarks.lost_work overhead            time blocked, CPU and steps per second, beside no copies
    python -m benchmarks.lost_work kills               work lost by a killed program, and the seconds of a restore
    python -m benchmarks.lost_work pods                the same when the launcher dies too, as with a deleted pod
    python -m benchmarks.lost_work epochs --long       epochs of ten minutes, a kill every 30 s for ten minutes
    python -m benchmarks.lost_work goodput --long      a kill a minute for ten minutes

Each is one table, on this machine: two workers with a launcher each, a dense model with Adam (state_worker.py), the
program the same in all columns. Without --long a table takes minutes. The work lost by stops that are announced
(scaling, drain, suspend) needs pods, and has no table here yet. All times are CLOCK_MONOTONIC, all steps
are the programs' own records. The last line is JSON. It must never judge.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import training_records
from benchmarks.overhead import interval
from benchmarks.process_usage import cpu_seconds
from benchmarks.training_records import Interval, Step
from tests.support.launchers.gang import LocalGang

PROGRAM = Path(__file__).with_name("state_worker.py")
MEMBERS = ("worker-0", "worker-1")
LOOK_SECONDS = 0.02
PATIENCE = 600.0
LONG_EPOCH = 1_000_000  # steps: BackupAndRestore makes no backup while a table is measured
COPIES = {"mode": "Auto", "maxOverheadPercent": 1, "sizeLimit": 8 * 2**30, "memoryLimit": None}
NO_COPIES = {"mode": "Off"}
ALONE_KILLS = 3
# What differs with the size of the state: seconds of a segment of the overhead, and seconds between two kills.
SEGMENT = {4.0: 2.0, 76.0: 15.0, 530.0: 60.0}
PAUSES = {4.0: (3.0, 6.0), 76.0: (8.0, 16.0), 530.0: (30.0, 60.0)}
Figures = dict[str, Any]


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


class Gang:
    """Two launchers whose programs write records, to be killed and started again."""

    def __init__(self, local: LocalGang) -> None:
        self._local = local

    @property
    def directory(self) -> Path:
        """The directory of the records."""
        return self._local.directory

    def rounds(self, task: int = 0) -> list[list[Step]]:
        """The steps of a task, round by round."""
        return [*training_records.read(self.directory, task).values()]

    def programs(self) -> list[int]:
        """The process IDs of the programs."""
        return [self._local.pid(name) for name in MEMBERS]

    def processes(self) -> list[int]:
        """The process IDs of the programs and of their launchers."""
        return [*self.programs(), *(launcher.pid for launcher in self._local.launchers.values())]

    def signal(self, number: int) -> None:
        """Send a signal to all programs."""
        for pid in self.programs():
            os.kill(pid, number)

    def wait_for_steps(self, since: float, count: int = 1) -> float:
        """Wait until all members have made so many steps that began after `since`; the end of the last first one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            made = [[step for step in self._newest(task) if step.begin > since] for task in range(len(MEMBERS))]
            if all(len(steps) >= count for steps in made):
                return max(steps[0].end for steps in made)
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._local.launchers.values()):
                raise TimeoutError(f"not all members made {count} steps\n{self._local.describe()}")
            time.sleep(LOOK_SECONDS)

    def _newest(self, task: int) -> list[Step]:
        return next(reversed(self.rounds(task)), [])

    def wait_for_copies(self) -> None:
        """Wait until all members hold a copy in memory."""
        deadline = time.monotonic() + PATIENCE
        while not all(self._holds_copy(task) for task in range(len(MEMBERS))):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no copies\n{self._local.describe()}")
            time.sleep(0.1)

    def _holds_copy(self, task: int) -> bool:
        place = self.directory / f"memory-{task}"
        return place.exists() and any(Path(place.read_text()).glob("copy-*"))

    def kill_program(self, name: str) -> float:
        """Send SIGKILL to a member's program; the time of that."""
        pid, at = self._local.pid(name), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return at

    def replace_launcher(self, name: str) -> float:
        """Kill a launcher, and with it its program, as with a deleted pod, and start another; the time of the kill."""
        at = time.monotonic()
        self._local.kill(name)
        self._local.start(name)
        return at

    def begins(self, number: int) -> list[float]:
        """The seconds that BackupAndRestore took to begin, a restore included, in each task of the round so numbered:
        0 is the first one with a step, -1 the last."""
        found = []
        for task in range(len(MEMBERS)):
            name = [*training_records.read(self.directory, task)][number]
            found.append(float((self.directory / f"begin-{task}-{name}").read_text()))
        return found

    def stop(self) -> None:
        """End the launchers, so that they remove their files in memory."""
        for launcher in self._local.launchers.values():
            launcher.terminate()
        for launcher in self._local.launchers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(20)


@contextlib.contextmanager
def running(megabytes: float, copies: bool, epoch: int = LONG_EPOCH, *more: str) -> Iterator[Gang]:
    """Train with a state of this size until the end of the block; both members have made a step."""
    options = {"memoryBackup": COPIES if copies else NO_COPIES, "warmStart": True, "policy": {"maxRestarts": 100_000}}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lost-work-")))
        local = stack.enter_context(LocalGang(folder, {"worker": 2}, **options))
        local.command = [sys.executable, str(PROGRAM), str(local.directory), str(megabytes), str(epoch), *more]
        gang, began = Gang(local), time.monotonic()
        stack.callback(gang.stop)
        local.start()
        try:
            gang.wait_for_steps(began)
            yield gang
        except Exception:
            say(local.describe())
            raise


def in_turns(gangs: Sequence[Gang], seconds: float, segment: float) -> tuple[list[tuple[float, ...]], list[float]]:
    """Let gangs train in turns, the order changing: steps per second of each in each turn, and CPU seconds a step."""
    before = [(sum(map(cpu_seconds, gang.processes())), len(gang.rounds()[-1])) for gang in gangs]
    pairs: list[tuple[float, ...]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(pairs) < 4:
        speeds = {}
        for gang in gangs if len(pairs) % 2 else reversed(gangs):
            gang.signal(signal.SIGCONT)
            span = (time.monotonic() + segment / 20, time.monotonic() + segment)
            time.sleep(segment)
            gang.signal(signal.SIGSTOP)
            speeds[id(gang)] = training_records.speed(gang.rounds()[-1], span)
        pairs.append(tuple(speeds[id(gang)] for gang in gangs))
        if len(pairs) % 4 == 0:
            say(f"  {len(pairs)} pairs; median ratio {statistics.median(two / one for one, two in pairs):.3f}")
    cpu = []
    for gang, (used, made) in zip(gangs, before, strict=True):
        cpu.append((sum(map(cpu_seconds, gang.processes())) - used) / (len(gang.rounds()[-1]) - made))
    return pairs, cpu


def blocked(gang: Gang, seconds: float) -> list[float]:
    """Let a gang train alone; each member's share of the time between its batches, in percent."""
    span: Interval = (time.monotonic(), time.monotonic() + seconds)
    time.sleep(seconds)
    return [100 * training_records.blocked_share(gang.rounds(task)[-1], span) for task in range(len(MEMBERS))]


def overhead(megabytes: float, options: argparse.Namespace) -> Figures:
    """The cost of the copies, beside a gang that makes none and trains in turns with it."""
    segment = SEGMENT.get(megabytes, 15.0)
    seconds = options.seconds * max(1.0, segment / 4)
    with running(megabytes, copies=True) as gang, running(megabytes, copies=False) as floor:
        floor.signal(signal.SIGSTOP)
        gang.wait_for_copies()
        time.sleep(3 * segment)  # until the interval has settled
        shares = blocked(gang, seconds / 2)
        step = training_records.step_seconds(gang.rounds()[-1])
        gang.signal(signal.SIGSTOP)
        floor.signal(signal.SIGCONT)
        time.sleep(segment)
        floor_shares = blocked(floor, seconds / 4)
        floor.signal(signal.SIGSTOP)
        pairs, cpu = in_turns((floor, gang), seconds, segment)
        for each in (gang, floor):
            each.signal(signal.SIGCONT)
    ratios = [two / one for one, two in pairs]
    low, high = interval(ratios)
    told = {
        "blocked_percent": max(shares),
        "floor_blocked_percent": max(floor_shares),
        "cpu_ratio": cpu[1] / cpu[0],
        "cpu_ms_a_step": 1000 * cpu[1],
        "speed_ratio": statistics.median(ratios),
        "speed_ratio_low": low,
        "speed_ratio_high": high,
        "floor_step_ms": 1000 / statistics.median(one for one, _ in pairs),
        "step_ms": 1000 * step,
        "pairs": len(pairs),
    }
    say(
        f"{megabytes:g} MB: blocked {told['blocked_percent']:.2f} % (floor {told['floor_blocked_percent']:.2f}),"
        f" CPU {told['cpu_ratio']:.3f}, steps/s {told['speed_ratio']:.3f} ({low:.3f} to {high:.3f}) of those without"
    )
    return told


def lose(gang: Gang, count: int, pauses: Interval, draw: random.Random, pod: bool) -> Figures:
    """Kill a program `count` times, chief and worker in turn; the training that each kill cost, in seconds and steps.

    A lost step counts with the median time of a step in the round that was killed.
    """
    lost, steps, down, begins = [], [], [], []
    for number in range(count):
        time.sleep(draw.uniform(*pauses))
        victim = MEMBERS[number % len(MEMBERS)]
        at = gang.replace_launcher(victim) if pod else gang.kill_program(victim)
        down.append(gang.wait_for_steps(at) - at)
        rounds = gang.rounds(1)  # the surviving member's or the new one's: both are read after the fact
        steps.append(training_records.lost_steps(rounds, at) or 0)
        lost.append(steps[-1] * training_records.step_seconds(rounds[-2]))
        begins.append(max(gang.begins(-1)))
        say(
            f"  {victim} killed, {number + 1} of {count}: {steps[-1]} steps lost ({lost[-1]:.2f} s),"
            f" {down[-1]:.2f} s without a step, {begins[-1]:.3f} s of them in the restore"
        )
    return {"lost_s": lost, "lost_steps": steps, "down_s": down, "restore_s": begins}


def kills(megabytes: float, options: argparse.Namespace, pod: bool = False) -> Figures:
    """The work lost by kills with copies, and with BackupAndRestore alone, whose epochs do not end meanwhile."""
    pauses, draw = PAUSES.get(megabytes, (8.0, 16.0)), random.Random(options.seed)
    told: Figures = {}
    for name, copies, count in (("copies", True, options.kills), ("alone", False, ALONE_KILLS)):
        say(f"{megabytes:g} MB, {'with copies' if copies else 'BackupAndRestore alone'}")
        with running(megabytes, copies) as gang:
            if copies:
                gang.wait_for_copies()
            gang.wait_for_steps(0.0, 20)
            told[name] = lose(gang, count, pauses, draw, pod)
    figures = {f"{each}_median": statistics.median(told["copies"][each]) for each in told["copies"]}
    figures["lost_s_worst"] = max(told["copies"]["lost_s"])
    figures |= {f"alone_{each}_median": statistics.median(told["alone"][each]) for each in told["alone"]}
    figures["lost_ratio"] = figures["lost_s_median"] / max(figures["alone_lost_s_median"], 1e-9)
    say(
        f"{megabytes:g} MB: {figures['lost_s_median']:.2f} s lost a kill (worst {figures['lost_s_worst']:.2f}), alone"
        f" {figures['alone_lost_s_median']:.2f}; restore {figures['restore_s_median']:.3f} s"
    )
    return figures


def pods(megabytes: float, options: argparse.Namespace) -> Figures:
    """The same with a new launcher in the place of the killed one."""
    return kills(megabytes, options, pod=True)


def train(gang: Gang, seconds: float, every: float | None) -> int:
    """Train for so long, with a kill of chief or worker in turn each `every` seconds; the steps kept."""
    began, number = time.monotonic(), 0
    while (left := began + seconds - time.monotonic()) > 0:
        if every is None or left <= every / 2:
            time.sleep(left)
            continue
        time.sleep(max(0.0, began + (number + 0.5) * every - time.monotonic()))
        at = gang.kill_program(MEMBERS[number % len(MEMBERS)])
        down = gang.wait_for_steps(at) - at
        lost = training_records.lost_steps(gang.rounds(), at)
        number += 1
        say(f"  kill {number} after {at - began:.0f} s: {down:.2f} s without a step, {lost} steps lost")
        time.sleep(max(0.0, min(began + seconds, began + number * every) - time.monotonic()))
    return training_records.kept_steps(gang.rounds(), began, began + seconds)


def shares(megabytes: float, seconds: float, every: float, epoch_seconds: float, count: bool) -> Figures:
    """The steps kept under kills as a share of those of an undisturbed training, with copies and without."""
    told: Figures = {}
    epoch, more = LONG_EPOCH, (["--count"] if count else [])
    for name, copies, between in (("undisturbed", False, None), ("copies", True, every), ("alone", False, every)):
        say(f"{seconds:.0f} s, {name}" + (f", a kill every {between:.0f} s" if between else ""))
        with running(megabytes, copies, epoch, *more) as gang:
            gang.wait_for_steps(0.0, 100)
            if name == "undisturbed":  # the others have epochs of this length
                epoch = max(200, round(epoch_seconds / training_records.step_seconds(gang.rounds()[-1])))
            if copies:
                gang.wait_for_copies()
            told[name] = train(gang, seconds, between)
            say(f"  {told[name]} steps kept")
            if count and name == "copies":
                step, seen = training_records.counted(gang.directory, len(MEMBERS))
                expected = training_records.due(step, epoch)
                told["parts_unlike"] = training_records.unlike(seen, expected, 0.05)
                say(f"  {100 * told['parts_unlike']:.1f} % of the data not seen as often as undisturbed, within 5 %")
    told["steps_per_epoch"] = epoch
    told["share"] = told["copies"] / max(told["undisturbed"], 1)
    told["alone_share"] = told["alone"] / max(told["undisturbed"], 1)
    say(
        f"{megabytes:g} MB: {100 * told['share']:.1f} % of the undisturbed steps, alone {100 * told['alone_share']:.1f}"
    )
    return told


def epochs(megabytes: float, options: argparse.Namespace) -> Figures:
    """Epochs of ten minutes and a kill every 30 s: the steps kept, and whether all data is seen alike."""
    return shares(megabytes, options.seconds or (600.0 if options.long else 100.0), 30.0, 600.0, count=True)


def goodput(megabytes: float, options: argparse.Namespace) -> Figures:
    """A kill a minute: the steps kept, lost work counted."""
    return shares(megabytes, options.seconds or (600.0 if options.long else 120.0), 60.0, 600.0, count=False)


TABLES = {"overhead": overhead, "kills": kills, "pods": pods, "epochs": epochs, "goodput": goodput}
DEFAULT_STATES = {"overhead": [4.0, 76.0], "kills": [4.0, 76.0], "pods": [4.0], "epochs": [4.0], "goodput": [4.0]}


def rounded(value: Any) -> Any:
    """The figures with four digits behind the point."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Measure one table and print it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that no program is left
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lost_work", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES, help="what to measure")
    parser.add_argument("--state", type=float, nargs="+", metavar="MB", help="sizes of the state: 4, 76, 530")
    parser.add_argument(
        "--seconds", type=float, default=0, help="overhead: of training in turns at 4 MB, more at others"
    )
    parser.add_argument("--kills", type=int, default=20, help="kills and pods: how many (20)")
    parser.add_argument("--long", action="store_true", help="epochs and goodput: ten minutes for each column")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the times of the kills")
    options = parser.parse_args()
    if options.table == "overhead":
        options.seconds = options.seconds or 60.0
    states = options.state or DEFAULT_STATES[options.table]
    load = os.getloadavg()[0]
    told = {f"{megabytes:g}": TABLES[options.table](megabytes, options) for megabytes in states}
    print(json.dumps({options.table: rounded(told), "load_average": round(load, 1)}))


if __name__ == "__main__":
    main()

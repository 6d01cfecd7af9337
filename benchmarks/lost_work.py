"""What backups in memory cost, and the training that a stopped program loses with them; beside BackupAndRestore alone.

    python -m benchmarks.lost_work overhead            time blocked, CPU and steps per second, beside no copies
    python -m benchmarks.lost_work kills               work lost by a killed program, and the seconds of a restore
    python -m benchmarks.lost_work kills --unordered 600   the same where a restart resumes at the begin of an epoch
    python -m benchmarks.lost_work pods                the same when the launcher dies too, as with a deleted pod
    python -m benchmarks.lost_work epochs --long       epochs of ten minutes, a kill every 30 s for ten minutes
    python -m benchmarks.lost_work goodput --long      a kill a minute for ten minutes
    python -m benchmarks.lost_work stops               in pods of the test cluster: scaling, drain, suspend

Each is one table. All but the last are measured on this machine: two workers with a launcher each, a dense model with
Adam (state_worker.py), the program the same in all columns. Without --long a table takes minutes. All times are
CLOCK_MONOTONIC, all steps are the programs' own records. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import announced_stops, lost_work_goodput, training_records
from benchmarks.lost_work_gang import LONG_EPOCH, MEMBERS, Gang, running, say
from benchmarks.overhead import interval
from benchmarks.process_usage import cpu_seconds
from benchmarks.training_records import Interval

ALONE_KILLS = 3
DIGITS = 1.8  # MB: the state of multi_worker_mnist with the digits
UNDISTURBED, ALONE = 90.0, 180.0  # seconds of the columns beside the one with copies, at most
Figures = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How a state is measured in a bounded time.

    Between two kills are more than 10 s of training and then a copy: that is progress, or each restart would wait
    longer than the one before. The first copy waits for an epoch or 200 steps, so where a step takes long, epochs are
    short, and nothing writes backups into the storage.
    """

    segment: float  # seconds in which one of two gangs trains, in turns
    turns: float  # seconds of all turns
    alone: float  # seconds in which a gang trains alone
    pauses: Interval  # seconds between two kills
    kills: int
    epoch: int = LONG_EPOCH  # steps
    unordered: bool = False  # a restart resumes at the begin of an epoch

    @property
    def more(self) -> list[str]:
        """Arguments of the program."""
        return ["--unordered"] if self.unordered else [] if self.epoch == LONG_EPOCH else ["--no-storage"]


SIZES = {
    4.0: Size(segment=2.0, turns=60.0, alone=30.0, pauses=(11.0, 15.0), kills=20),
    76.0: Size(segment=8.0, turns=130.0, alone=60.0, pauses=(13.0, 18.0), kills=20),
    530.0: Size(segment=40.0, turns=220.0, alone=75.0, pauses=(15.0, 45.0), kills=6, epoch=16),
}


def size_of(megabytes: float, options: argparse.Namespace) -> Size:
    """How a state of so many megabytes is measured: as the next larger one."""
    size = SIZES[min((each for each in SIZES if each >= megabytes), default=max(SIZES))]
    return replace(size, epoch=options.unordered, unordered=True) if options.unordered else size


def in_turns(gangs: Sequence[Gang], seconds: float, segment: float) -> tuple[list[tuple[float, ...]], list[float]]:
    """Let gangs train in turns, the order changing: steps per second of each in each turn, and CPU seconds a step."""
    before = [(sum(map(cpu_seconds, gang.processes())), len(gang.rounds()[-1])) for gang in gangs]
    pairs: list[tuple[float, ...]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(pairs) < 3:
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


def between_batches(gang: Gang, span: Interval) -> float:
    """The share of the time between the batches, in percent, of the member with the larger one."""
    return max(100 * training_records.blocked_share(gang.rounds(task)[-1], span) for task in range(len(MEMBERS)))


def train_alone(gang: Gang, seconds: float) -> float:
    """Let a gang train alone; the share of the time between its batches, in percent."""
    began = time.monotonic()
    time.sleep(seconds)
    return between_batches(gang, (began, time.monotonic()))


def copy_alone(gang: Gang, seconds: float) -> Figures:
    """Let a gang that makes copies train alone; what the copies and the votes have blocked, from one copy to another,
    of the member with the larger share."""
    began = time.monotonic()
    reports = gang.copies_in(seconds)
    span = (began, time.monotonic())
    blocked = [
        (last["blockedSeconds"] - first["blockedSeconds"]) / (last["time"] - first["time"]) for first, last in reports
    ]
    return {
        "copies_blocked_percent": 100 * max(blocked),
        "between_batches_percent": between_batches(gang, span),
        "copy_ms": 1000 * max(last["seconds"] for _, last in reports),
        "interval_steps": reports[0][1]["interval"],
        "copied_mb": reports[0][1]["bytes"] / 1e6,
    }


def overhead(megabytes: float, options: argparse.Namespace) -> Figures:
    """The cost of the copies, beside a gang that makes none and trains in turns with it."""
    size = size_of(megabytes, options)
    epoch, more = size.epoch, (*size.more, "--pauses")
    with running(megabytes, True, epoch, *more) as gang, running(megabytes, False, epoch, *more) as floor:
        floor.signal(signal.SIGSTOP)
        gang.wait_for_copies()
        gang.copies_in(3 * size.segment if size.epoch == LONG_EPOCH else 0.0)  # until the interval has settled
        told = copy_alone(gang, size.alone)
        step = training_records.step_seconds(gang.rounds()[-1])
        gang.signal(signal.SIGSTOP)
        floor.signal(signal.SIGCONT)
        floor.wait_for_steps(time.monotonic(), 2)
        told["floor_between_batches_percent"] = train_alone(floor, size.alone / 2)
        floor.signal(signal.SIGSTOP)
        pairs, cpu = in_turns((floor, gang), options.seconds or size.turns, size.segment)
        for each in (gang, floor):
            each.signal(signal.SIGCONT)
    ratios = [two / one for one, two in pairs]
    low, high = interval(ratios)
    told |= {
        "blocked_over_floor_percent": told["between_batches_percent"] - told["floor_between_batches_percent"],
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
        f"{megabytes:g} MB: the copies block {told['copies_blocked_percent']:.2f} % of the time"
        f" ({told['copy_ms']:.1f} ms, every {told['interval_steps']} steps of {told['step_ms']:.0f} ms);"
        f" between batches {told['between_batches_percent']:.2f} % (floor {told['floor_between_batches_percent']:.2f});"
        f" CPU {told['cpu_ratio']:.3f}, steps/s {told['speed_ratio']:.3f} ({low:.3f} to {high:.3f}) of those without"
    )
    return told


def lose(gang: Gang, count: int, pauses: Interval, draw: random.Random, pod: bool) -> Figures:
    """Kill a program `count` times, chief and worker in turn; the training that each kill cost, in seconds and steps.

    A lost step counts with the median time of a step in the round that was killed. `begin_s` is the time that
    BackupAndRestore takes to begin in the member that comes last and so waits for no other, `restore_s` the part of it
    in which the values are taken from the copy.
    """
    told: Figures = {"lost_s": [], "lost_steps": [], "down_s": [], "begin_s": [], "restore_s": []}
    for number in range(count):
        time.sleep(draw.uniform(*pauses))
        victim = MEMBERS[number % len(MEMBERS)]
        at = gang.replace_launcher(victim) if pod else gang.kill_program(victim)
        down = gang.wait_for_steps(at) - at
        rounds = gang.rounds(1)  # the surviving member's or the new one's: both are read after the fact
        steps = training_records.lost_steps(rounds, at) or 0
        begin, restores = min(gang.begins()), gang.restores()
        lost = (steps * training_records.step_seconds(rounds[-2]), steps, down, begin, max(restores, default=begin))
        for name, value in zip(told, lost, strict=True):
            told[name].append(value)
        say(
            f"  {victim} killed, {number + 1} of {count}: {steps} steps lost ({lost[0]:.2f} s), {down:.2f} s without"
            f" a step; BackupAndRestore begins in {begin:.3f} s, {lost[-1]:.2f} s of them for the values"
        )
    return told


def kills(megabytes: float, options: argparse.Namespace, pod: bool = False) -> Figures:
    """The work lost by kills with copies, and with BackupAndRestore alone, whose epochs do not end meanwhile."""
    size, draw = size_of(megabytes, options), random.Random(options.seed)
    told: Figures = {}
    for name, copies, count in (("copies", True, options.kills or size.kills), ("alone", False, ALONE_KILLS)):
        say(f"{megabytes:g} MB, {'with copies' if copies else 'BackupAndRestore alone'}")
        with running(megabytes, copies, size.epoch, *size.more) as gang:
            if copies:
                gang.wait_for_copies()
            gang.wait_for_steps(0.0, 20)
            told[name] = lose(gang, count, size.pauses, draw, pod)
    figures: Figures = {f"{each}_median": statistics.median(told["copies"][each]) for each in told["copies"]}
    figures |= {"kills": len(told["copies"]["lost_s"]), "lost_s_worst": max(told["copies"]["lost_s"])}
    alone = [each for each in told["alone"] if each != "restore_s"]  # its restore is a part of Keras' own begin
    figures |= {f"alone_{each}_median": statistics.median(told["alone"][each]) for each in alone}
    say(
        f"{megabytes:g} MB: {figures['lost_s_median']:.2f} s lost a kill (worst {figures['lost_s_worst']:.2f}), alone"
        f" {figures['alone_lost_s_median']:.2f} of {statistics.mean(size.pauses):.0f}; BackupAndRestore begins in"
        f" {figures['begin_s_median']:.3f} s, {figures['restore_s_median']:.3f} s of them for the values; alone"
        f" {figures['alone_begin_s_median']:.3f} s"
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


def epochs(megabytes: float, options: argparse.Namespace) -> Figures:
    """Epochs of ten minutes and a kill every 30 s: the steps kept as a share of those of an undisturbed training, with
    copies and without, and whether all data is seen alike.

    Every minute of the other columns is like the next one, so they are shorter, and count for the same time. The
    machine may get faster or slower meanwhile, so the undisturbed training runs before and after.
    """
    told: Figures = {}
    seconds, epoch = options.seconds or (600.0 if options.long else 100.0), LONG_EPOCH
    columns = (("before", False, None), ("copies", True, 30.0), ("after", False, None), ("alone", False, 30.0))
    for name, copies, every in columns:
        column = seconds if copies else min(seconds, ALONE if every else UNDISTURBED)
        say(f"{column:.0f} s, {name if every else 'undisturbed'}" + (f", a kill every {every:.0f} s" if every else ""))
        with running(megabytes, copies, epoch, "--count") as gang:
            gang.wait_for_steps(0.0, 100)
            if name == "before":  # the others have epochs of this length
                epoch = max(200, round(600.0 / training_records.step_seconds(gang.rounds()[-1])))
            if copies:
                gang.wait_for_copies()
            told[name] = round(train(gang, column, every) * seconds / column)
            say(f"  {told[name]} steps kept" + (f" in {seconds:.0f} s" if column < seconds else ""))
            if name == "copies":
                step, seen = training_records.counted(gang.directory, len(MEMBERS))
                expected = training_records.due(step, epoch)
                told["parts_unlike"] = training_records.unlike(seen, expected, 0.05)
                say(f"  {100 * told['parts_unlike']:.1f} % of the data not seen as often as undisturbed, within 5 %")
    told["undisturbed"] = (told["before"] + told["after"]) / 2
    told["steps_per_epoch"] = epoch
    told["share"] = told["copies"] / max(told["undisturbed"], 1)
    told["alone_share"] = told["alone"] / max(told["undisturbed"], 1)
    say(
        f"{megabytes:g} MB: {100 * told['share']:.1f} % of the undisturbed steps, alone {100 * told['alone_share']:.1f}"
    )
    return told


def goodput(megabytes: float, options: argparse.Namespace) -> Figures:
    """A kill a minute: the steps kept, lost work counted."""
    return lost_work_goodput.measure(megabytes, options.seconds or (600.0 if options.long else 180.0), options.seed)


def stops(megabytes: float, options: argparse.Namespace) -> Figures:
    """The steps lost by stops that are announced, in pods."""
    return asyncio.run(announced_stops.measure(megabytes, options.times))


TABLES = {"overhead": overhead, "kills": kills, "pods": pods, "epochs": epochs, "goodput": goodput, "stops": stops}
DEFAULT_STATES = {"overhead": [*SIZES], "kills": [*SIZES], "pods": [4.0, 76.0], "goodput": [DIGITS]}


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
        "--seconds", type=float, default=0, help="overhead: of training in turns; epochs, goodput: of each column"
    )
    parser.add_argument("--kills", type=int, default=0, help="kills and pods: how many (20, at 530 MB 6)")
    parser.add_argument(
        "--unordered",
        type=int,
        default=0,
        metavar="STEPS",
        help="overhead and kills: epochs of so many steps of an input without a known order: resumed at their begin",
    )
    parser.add_argument("--times", type=int, default=3, help="stops: how many of each kind (3)")
    parser.add_argument("--long", action="store_true", help="epochs and goodput: ten minutes for each column")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the times of the kills")
    options = parser.parse_args()
    states = options.state or DEFAULT_STATES.get(options.table, [min(SIZES)])
    load = os.getloadavg()[0]
    told = {f"{megabytes:g}": TABLES[options.table](megabytes, options) for megabytes in states}
    print(json.dumps({options.table: rounded(told), "load_average": round(load, 1)}))


if __name__ == "__main__":
    main()

"""The goodput with a kill a minute: the steps kept, lost work counted, beside a gang that nothing disturbs.

The gangs train in turns of ten seconds, so that a machine that gets faster or slower meanwhile changes both. Epochs
take a minute, and each begins its input anew, as with `fit(dataset, epochs=...)`.
"""

import random
import signal
import statistics
import time
from typing import Any

from benchmarks import training_records
from benchmarks.lost_work_gang import LONG_EPOCH, MEMBERS, Gang, running, say
from benchmarks.overhead import interval

MINUTE, TURN = 60.0, 10.0
TURNS = round(MINUTE / TURN)
KILL = (1.0, 5.0)  # seconds of its turn behind which a kill comes: the gang trains again before the turn ends
ALONE_MINUTES = 3  # of BackupAndRestore without copies
CALIBRATION = 8.0  # seconds
PROGRAM = ("--finite", "--pauses")
Cost = tuple[float, int]  # seconds without a step, and steps lost


def measure(megabytes: float, duration: float, seed: int) -> dict[str, Any]:
    """The steps that are kept in so many seconds, as a share of the undisturbed ones."""
    epoch, minutes, draw = _epoch(megabytes), max(2, round(duration / MINUTE)), random.Random(seed)
    say(f"{megabytes:g} MB, epochs of {epoch} steps, a kill a minute and none in turns, {minutes} minutes of each")
    with running(megabytes, True, epoch, *PROGRAM) as gang, running(megabytes, False, epoch, *PROGRAM) as floor:
        floor.signal(signal.SIGSTOP)
        gang.wait_for_copies()
        gang.signal(signal.SIGSTOP)
        pairs, down, lost = [], [], []
        seconds, steps = 0.0, 0
        for number in range(minutes):
            undisturbed = kept = 0
            killed = draw.randrange(TURNS)
            for turn in range(TURNS):
                undisturbed += _turn(floor)[0]
                victim = (MEMBERS[number % len(MEMBERS)], draw.uniform(*KILL)) if turn == killed else None
                made, cost = _turn(gang, victim)
                kept += made
                seconds, steps = cost or (seconds, steps)
            pairs.append((undisturbed, kept))
            down.append(seconds)
            lost.append(steps)
            say(
                f"  {number + 1} of {minutes}: {kept} steps kept, {undisturbed} undisturbed ({kept / undisturbed:.4f});"
                f" {seconds:.2f} s without a step, {steps} steps lost"
            )
        for each in (gang, floor):
            each.signal(signal.SIGCONT)
    ratios = [kept / undisturbed for undisturbed, kept in pairs]
    low, high = interval(ratios)
    all_undisturbed, all_kept = sum(each[0] for each in pairs), sum(each[1] for each in pairs)
    alone = _alone(megabytes, epoch, min(minutes, ALONE_MINUTES), draw) * minutes
    told = {
        "kept": all_kept,
        "undisturbed": all_undisturbed,
        "share": all_kept / all_undisturbed,
        "share_median": statistics.median(ratios),
        "share_low": low,
        "share_high": high,
        "down_s_median": statistics.median(down),
        "down_s_worst": max(down),
        "lost_steps_median": statistics.median(lost),
        "steps_per_epoch": epoch,
        "kills": minutes,
        "alone_share": alone / all_undisturbed,
    }
    say(
        f"{megabytes:g} MB: {100 * told['share']:.1f} % of the undisturbed steps (median of the minutes"
        f" {100 * told['share_median']:.1f}, {100 * low:.1f} to {100 * high:.1f});"
        f" alone {100 * told['alone_share']:.1f}"
    )
    return told


def _epoch(megabytes: float) -> int:
    """The steps of an epoch of a minute."""
    with running(megabytes, False, LONG_EPOCH, *PROGRAM) as gang:
        time.sleep(CALIBRATION)
        return max(200, round(MINUTE / training_records.step_seconds(gang.rounds()[-1])))


def _turn(gang: Gang, kill: tuple[str, float] | None = None, length: float = TURN) -> tuple[int, Cost | None]:
    """Let a gang train for so long, with the kill of a member after some seconds; the steps kept, and what the kill
    has cost."""
    gang.signal(signal.SIGCONT)
    began, cost = time.monotonic(), None
    if kill is not None:
        victim, after = kill
        time.sleep(after)
        at = gang.kill_program(victim)
        down = gang.wait_for_steps(at) - at
        if after + down > length:
            raise RuntimeError(
                f"a restart of {down:.1f} s is longer than its turn: the figure would leave out a part of it"
            )
        cost = (down, training_records.lost_steps(gang.rounds(), at) or 0)
    time.sleep(max(0.0, began + length - time.monotonic()))
    end = time.monotonic()
    gang.signal(signal.SIGSTOP)
    return training_records.kept_steps(gang.rounds(), began, end), cost


def _alone(megabytes: float, epoch: int, minutes: int, draw: random.Random) -> float:
    """The steps that BackupAndRestore alone keeps in a minute with a kill."""
    say(f"{megabytes:g} MB, BackupAndRestore alone, {minutes} minutes")
    kept = []
    with running(megabytes, False, epoch, *PROGRAM) as gang:
        gang.wait_for_steps(0.0, 100)
        for number in range(minutes):
            kill = (MEMBERS[number % len(MEMBERS)], draw.uniform(0.25 * MINUTE, 0.75 * MINUTE))
            steps, cost = _turn(gang, kill, MINUTE)
            kept.append(steps)
            say(f"  {steps} steps kept, {cost[1] if cost else 0} lost")
        gang.signal(signal.SIGCONT)
    return statistics.mean(kept)

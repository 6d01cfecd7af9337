"""How long a lost worker keeps the others from training when the gang may go on without it, and what its return costs.

    python -m benchmarks.elastic                three workers, minReplicas 2: ten launchers killed, each comes back

The loss is the SIGKILL of a worker's launcher, as of its pod: from it to the first step of the smaller gang in both
others. The return is the restart that takes the new one in, from the stop to the first step of all three. Both by
CLOCK_MONOTONIC, on this machine, with `tftj`'s own launchers. Beside them: the same loss without minReplicas, in which
the others wait until a new launcher has imported TensorFlow. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import time
from typing import Any

from benchmarks.recovery import LOOK_SECONDS, PATIENCE, WORKER, Gang, manifest, running, say
from tftraining_client.local.status import Status

WAITS = 3


def elastic(steps: int, least: int | None) -> dict[str, Any]:
    """A job of three workers that may train with `least` of them."""
    job = manifest(steps, warm=True)
    job["spec"]["replicaSpecs"]["worker"]["replicas"] = 3
    return job if least is None else {**job, "spec": {**job["spec"], "minReplicas": least}}


async def lose(gang: Gang) -> float:
    """Send SIGKILL to a worker's launcher; the time of that (monotonic seconds)."""
    launcher = gang.runner.launchers[str(WORKER)]
    at = time.monotonic()
    os.kill(launcher, signal.SIGKILL)
    return at


async def grown(gang: Gang) -> Status:
    """The last restart, once all members train again after the worker's return."""
    deadline = time.monotonic() + PATIENCE
    while True:
        chief = next(iter((await gang.look()).values()))
        last = chief.get("lastRestart") or {}
        if chief.get("phase") == "Training" and last.get("reason") == "Grown":
            return dict(last)
        if time.monotonic() > deadline:
            raise TimeoutError(f"the gang was not complete within {PATIENCE:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)


async def losses(options: argparse.Namespace, draw: random.Random) -> dict[str, float]:
    """Measure losses and returns, one after the other."""
    lost, back, again = [], [], []
    async with running(elastic(options.steps, 2)) as gang:
        for number in range(1, options.kills + 1):
            await gang.next_epoch()
            await asyncio.sleep(draw.uniform(0.1, 0.8))
            at = await lose(gang)
            lost.append(await gang.trained_since(at, without=WORKER) - at)
            restart = await grown(gang)
            back.append(float(restart["downSeconds"]))
            again.append(float(restart["lostSteps"]))
            told = f"other members resumed after {lost[-1]:.2f} s; gang complete after {back[-1]:.2f} s"
            told += f", {again[-1]:.0f} steps repeated"
            say(f"  {WORKER} lost, {number} of {options.kills}: {told}")
    return {
        "lost_median_s": statistics.median(lost), "lost_worst_s": max(lost),
        "back_median_s": statistics.median(back), "back_worst_s": max(back), "back_lost_steps": statistics.mean(again),
    }  # fmt: skip


async def waits(options: argparse.Namespace) -> float:
    """The median of the recovery from the same losses without minReplicas."""
    seconds = []
    async with running(elastic(options.steps, None)) as gang:
        for number in range(1, WAITS + 1):
            await gang.next_epoch()
            at = await lose(gang)
            seconds.append(await gang.trained_since(at) - at)
            say(f"  {WORKER} lost, {number} of {WAITS}: all members trained after {seconds[-1]:.2f} s")
    return statistics.median(seconds)


async def measure(options: argparse.Namespace) -> dict[str, float]:
    """Run all measurements."""
    say(f"three workers, minReplicas 2, epochs of {options.steps} steps; load {os.getloadavg()[0]:.1f}")
    figures = await losses(options, random.Random(options.seed))
    say("without minReplicas")
    figures["waiting_median_s"] = await waits(options)
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.elastic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, help="launchers killed (10)")
    parser.add_argument("--steps", type=int, default=40, help="steps per epoch; 40 take about a second (40)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the times of the kills")
    print(json.dumps(asyncio.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()

"""How long a killed worker keeps everybody from training, and how much of the training frequent kills leave.

    python -m benchmarks.recovery --local                      ten kills of a worker, ten of the chief, three cold ones
    python -m benchmarks.recovery --local --goodput 600        besides: a kill every 60 s for 600 s
    python -m benchmarks.recovery --cluster                    in pods of the test cluster; besides, pods deleted
    python -m benchmarks.recovery --local --model mobilenet    a real model: the parts of a restart, beside a bare one

A recovery is the time from the SIGKILL of a member's program to the first step of the next round in all members, both
read from CLOCK_MONOTONIC, the second from the members' own progress. Cold is the same with `warmStart: false`: the
programs are started plainly, and import TensorFlow. The last line is JSON; what was not measured is null.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks import cluster_gang, real_model
from tftraining_api.model.names import Replica
from tftraining_client.config_maps import parse_config_maps
from tftraining_client.local.ports import Ports
from tftraining_client.local.process_spec import SETTINGS, Allocation, LocalJob, ProcessSpec, allocate, local_job
from tftraining_client.local.run import prepare
from tftraining_client.local.runner import Outcome, Runner
from tftraining_client.local.screen import PlainScreen
from tftraining_client.local.status import Status, fetch_status
from tftraining_client.validation import validate

LOOK_SECONDS = 0.02
PATIENCE = 180.0
WORKER, CHIEF = Replica("worker", 1), Replica("worker", 0)
COLD_KILLS = 3
DELETIONS = 3
KEYS = (
    *("recovery_median_s", "recovery_worst_s", "recovery_first_s", "recovery_last_s", "chief_median_s", "cold_s"),
    *("pod_deleted_median_s", "goodput"),
)


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


def manifest(steps: int, warm: bool, *arguments: str) -> dict[str, Any]:
    """A job of two workers that trains until stopped, with a backup after each epoch of `steps` steps."""
    program = ["python", "-m", "tftraining.examples.multi_worker_mnist", "--directory", "$(TFTRAINING_DIR)"]
    command = [*program, "--epochs", "100000", "--steps-per-epoch", str(steps), *arguments]
    container = {"name": "tensorflow", "image": "none", "command": command}
    return {
        "apiVersion": "tftraining.dev/v1",
        "kind": "TFTrainingJob",
        "metadata": {"name": "recovery"},
        "spec": {
            "replicaSpecs": {"worker": {"replicas": 2}},
            "storage": {"volume": {"hostPath": {"path": "/nowhere"}}},
            "launcher": {"warmStart": warm},
            "template": {"spec": {"containers": [container]}},
        },
    }


class Victims(Protocol):
    """A training gang whose members can be killed."""

    async def next_epoch(self) -> None:
        """Wait until the next epoch ends, and with it a backup."""

    async def kill(self, victim: Replica) -> float:
        """Send SIGKILL to a member's program; seconds until all members train again."""


class Gang:
    """The launchers of a running job, seen from outside."""

    def __init__(self, local: LocalJob, allocation: Allocation, job: asyncio.Task[Outcome], runner: Runner) -> None:
        assert local.directory is not None
        self.directory = local.directory
        self.runner = runner
        self._local = local
        self._allocation = allocation
        self._job = job

    async def look(self) -> dict[Replica, Status]:
        """Each member's own /status; {} for one that does not answer. SystemExit if the job has ended."""
        if self._job.done():
            raise SystemExit(self._job.result().stopped or f"the job has ended: {self._job.result().verdict}")
        replicas = self._local.replicas
        answers = await asyncio.gather(*(fetch_status(self._allocation.status_ports[each]) for each in replicas))
        return {replica: answer or {} for replica, answer in zip(replicas, answers, strict=True)}

    async def trained_since(self, at: float, without: Replica | None = None) -> float:
        """Wait for a first step after `at` in all members (except `without`); the last one's monotonic time."""
        deadline = time.monotonic() + PATIENCE
        while True:
            members = await self.look()
            steps = [status.get("firstStepMonotonic") for each, status in members.items() if each != without]
            made = [float(step) for step in steps if step is not None and step > at]
            if len(made) == len(steps):
                return max(made)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not all members made a step within {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def step(self) -> int:
        """The training step that the chief has reached; 0 before the first."""
        progress = (await self.look())[CHIEF].get("progress") or {}
        return int(progress.get("step") or 0)

    async def next_epoch(self) -> None:
        """Wait until the next epoch ends, and with it a backup."""
        began = await self._epoch()
        deadline = time.monotonic() + PATIENCE
        while await self._epoch() <= began:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no new epoch within {PATIENCE:.0f} s")
            await asyncio.sleep(LOOK_SECONDS)

    async def _epoch(self) -> int:
        progress = (await self.look())[CHIEF].get("progress") or {}
        return int(progress.get("epoch") or 0)

    async def kill(self, victim: Replica) -> float:
        """Send SIGKILL to a member's program; seconds until all members train again."""
        pid = int((await self.look())[victim]["pid"])
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return await self.trained_since(at) - at


@contextlib.asynccontextmanager
async def running(
    job_of: dict[str, Any], *objects: dict[str, Any], copies: dict[str, Any] | None = None
) -> AsyncIterator[Gang]:
    """Run the job of a manifest as a training gang; the end of the block stops it and removes its files.

    `objects` are ConfigMaps, `copies` is the launchers' setting of backups in memory.
    """
    with Ports() as ports, tempfile.TemporaryDirectory(prefix="recovery-") as folder:
        local = local_job(validate(job_of), Path(folder) / "work", parse_config_maps(objects, "default"))
        allocation = allocate(local, ports, Path(folder))
        with (Path(folder) / "log").open("w") as log:
            screen = PlainScreen([str(each) for each in local.replicas], log)
            specs = [_with_copies(spec, copies) for spec in prepare(local, allocation, {})]
            runner = Runner(local, specs, allocation, screen)
            began = time.monotonic()
            job = asyncio.create_task(runner.run([]))
            gang = Gang(local, allocation, job, runner)
            try:
                await gang.trained_since(began)
                yield gang
            except Exception:
                print((Path(folder) / "log").read_text()[-4000:])
                raise
            finally:
                runner.stop(0)
                await job


def _with_copies(spec: ProcessSpec, copies: dict[str, Any] | None) -> ProcessSpec:
    """The start of a launcher with this setting of backups in memory; None leaves it as it is."""
    if copies is None:
        return spec
    settings = {**json.loads(spec.environment[SETTINGS]), "memoryBackup": copies}
    return replace(spec, environment={**spec.environment, SETTINGS: json.dumps(settings)})


async def kills(gang: Victims, victim: Replica, count: int, draw: random.Random) -> list[float]:
    """The recovery times of `count` kills in a row, each at a random time after a new backup."""
    seconds = []
    for number in range(1, count + 1):
        await gang.next_epoch()
        await asyncio.sleep(draw.uniform(0.1, 0.8))
        seconds.append(await gang.kill(victim))
        say(f"  {victim} killed, {number} of {count}: {seconds[-1]:.2f} s")
    return seconds


async def steps_in(gang: Gang, seconds: float, every: float | None) -> int:
    """The steps kept from a training of `seconds`, with a kill of worker or chief in turn each `every` seconds."""
    first, began, number = await gang.step(), time.monotonic(), 0
    while (left := began + seconds - time.monotonic()) > 0:
        if every is None or left <= every / 2:
            await asyncio.sleep(left)
            continue
        await asyncio.sleep(max(0.0, began + (number + 0.5) * every - time.monotonic()))
        say(f"  kill {number + 1}: {await gang.kill((WORKER, CHIEF)[number % 2]):.2f} s")
        number += 1
        await asyncio.sleep(max(0.0, min(began + seconds, began + number * every) - time.monotonic()))
    return await gang.step() - first


async def goodput(options: argparse.Namespace) -> float:
    """The steps kept under kills, as a fraction of the steps of an undisturbed run of the same length."""
    counts = []
    for every in (None, options.every):
        say(f"{options.goodput:.0f} s of training, " + (f"a kill every {every:.0f} s" if every else "undisturbed"))
        async with running(manifest(options.steps, warm=True)) as gang:
            await gang.next_epoch()
            counts.append(await steps_in(gang, options.goodput, every))
        say(f"  {counts[-1]} steps")
    return counts[1] / counts[0]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the requested measurements on this machine."""
    draw = random.Random(options.seed)
    result: dict[str, float | None] = dict.fromkeys(KEYS)
    if options.kills:
        say(f"recovery of two workers, a kill in an epoch of {options.steps} steps; load {os.getloadavg()[0]:.1f}")
        async with running(manifest(options.steps, warm=True)) as gang:
            worker = await kills(gang, WORKER, options.kills, draw)
            chief = await kills(gang, CHIEF, options.kills, draw)
        say("cold: the same without the warm interpreter")
        async with running(manifest(options.steps, warm=False)) as gang:
            cold = await kills(gang, WORKER, COLD_KILLS, draw)
        result |= _figures(worker, chief, cold)
    if options.goodput:
        result["goodput"] = round(await goodput(options), 4)
    return result


async def measure_cluster(options: argparse.Namespace) -> dict[str, Any]:
    """Run the same in real pods, and measure deleted pods, beside the parts of such a recovery."""
    draw, members = random.Random(options.seed), (CHIEF, WORKER)
    result: dict[str, float | None] = dict.fromkeys(KEYS)
    async with cluster_gang.running(manifest(options.steps, warm=True), members) as gang:
        worker = await kills(gang, WORKER, options.kills, draw)
        chief = await kills(gang, CHIEF, options.kills, draw)
        deleted, created, imported = [], [], []
        for number in range(1, DELETIONS + 1):
            await gang.next_epoch()
            deleted.append(await gang.delete(WORKER))
            bare = await gang.bare()
            created.append(bare[0])
            imported.append(bare[1])
            told = f"{deleted[-1]:.2f} s; a bare pod: {bare[0]:.2f} s, its import {bare[1]:.2f} s"
            say(f"  pod deleted, {number} of {DELETIONS}: {told}")
    say("cold: the same without the warm interpreter")
    async with cluster_gang.running(manifest(options.steps, warm=False), members) as gang:
        cold = await kills(gang, WORKER, COLD_KILLS, draw)
    result |= _figures(worker, chief, cold)
    parts = [statistics.median(each) for each in (created, imported, worker)]
    say(
        f"pod deleted: median {statistics.median(deleted):.2f} s, worst {max(deleted):.2f} s; its parts: a recreated"
        f" bare pod {parts[0]:.2f} s + import {parts[1]:.2f} s + restart in place {parts[2]:.2f} s"
        f" = {sum(parts):.2f} s (target: parts + 2 s)"
    )
    return result | {
        "pod_deleted_median_s": round(statistics.median(deleted), 3),
        "pod_deleted_worst_s": round(max(deleted), 3),
        "pod_deleted_parts_s": round(sum(parts), 3),
    }


async def measure_model(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the parts of a restart of MobileNetV2: bare, with a launcher, and with backups in memory."""
    count = options.kills
    say(f"MobileNetV2, two workers, epochs of {options.steps} steps; load {os.getloadavg()[0]:.1f}")
    rows = {"bare": real_model.bare_restarts(options.steps, count)}
    for name, copies, steps in (("launcher", False, options.steps), ("copies", True, real_model.LONG_EPOCH)):
        say("with a launcher" + (" and copies in memory, whose first one takes 200 steps" if copies else ""))
        job = real_model.with_model(manifest(steps, warm=True), steps)
        async with _gang_with_copies(job, "Auto" if copies else "Off", options.cluster) as gang:
            rows[name] = await real_model.restarts(gang, (WORKER, CHIEF), count, copies)
    figures = real_model.table(rows)
    ratio = figures["copies"]["all"] / figures["bare"]["all"]
    return {"mobilenet": figures, "ratio": round(ratio, 3), "load_average": round(os.getloadavg()[0], 1)}


@contextlib.asynccontextmanager
async def _gang_with_copies(job: dict[str, Any], mode: str, cluster: bool) -> AsyncIterator[real_model.Gang]:
    """Run the job with backups in memory in this mode, with all members training."""
    if cluster:
        launcher = {**job["spec"]["launcher"], "memoryBackup": {"mode": mode, "sizeLimit": "1Gi"}}
        job = {**job, "spec": {**job["spec"], "launcher": launcher}}
        async with cluster_gang.running(job, (CHIEF, WORKER), objects=[real_model.config_map()]) as pods:
            yield pods
    else:
        copies = {"mode": mode, "maxOverheadPercent": 1, "sizeLimit": 2**30, "memoryLimit": None}
        async with running(job, real_model.config_map(), copies=copies) as local:
            yield local


def _figures(worker: list[float], chief: list[float], cold: list[float]) -> dict[str, float | None]:
    figures = {
        "recovery_median_s": statistics.median(worker),
        "recovery_worst_s": max(worker),
        "recovery_first_s": worker[0],
        "recovery_last_s": worker[-1],
        "chief_median_s": statistics.median(chief),
        "cold_s": statistics.median(cold),
    }
    say(f"worker: median {figures['recovery_median_s']:.2f} s, worst {max(worker):.2f} s (target: median 1.5 s)")
    say(f"chief: median {figures['chief_median_s']:.2f} s, worst {max(chief):.2f} s; cold: {figures['cold_s']:.2f} s")
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that no program is left
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--local", action="store_true", help="run on this machine, with the launchers of tftj")
    where.add_argument("--cluster", action="store_true", help="run in pods of the test cluster (see tests/cluster)")
    parser.add_argument(
        "--kills", type=int, default=10, help="kills of a worker, and as many of the chief (10); 0 for none"
    )
    parser.add_argument("--goodput", type=float, default=0, help="seconds of training with kills (0: none; 600)")
    parser.add_argument("--every", type=float, default=60, help="seconds between these kills (60)")
    parser.add_argument("--steps", type=int, default=40, help="steps per epoch; 40 take about a second (40)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the times of the kills")
    parser.add_argument("--model", choices=["mobilenet"], help="only the parts of a restart of this model")
    options = parser.parse_args()
    told = measure_model if options.model else measure_cluster if options.cluster else measure
    print(json.dumps(asyncio.run(told(options))))


if __name__ == "__main__":
    main()

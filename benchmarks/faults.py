"""How long each kind of fault keeps a training in the cluster from going on, beside what Kubernetes itself needs.

    python -m benchmarks.faults                 in pods of the test cluster (kind): ten minutes

A time is that from the fault to the first step of the next round in all members, both by CLOCK_MONOTONIC; with
minReplicas, in all members but the lost one. A pod that is deleted or evicted trains on for terminationGraceSeconds, as
its program may want to save: the time without a step, as the chief's launcher has it, is told as well.

The floor of a lost pod is the sum of its parts, each measured in the same run: a bare pod deleted and made again, the
import of TensorFlow there, and a restart in place. A node that is switched off adds the time until the cluster calls it
not ready, and nodeLostSeconds. The last line is JSON.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks import cluster_gang
from benchmarks.cluster_gang import PodGang
from benchmarks.recovery import CHIEF, WORKER, kills, manifest, say
from testbed.release import OFF_THE_WORKERS
from tftraining_api.model.names import Replica

NODE_LOST_SECONDS = 5
LAST = Replica("worker", 2)
Figures = dict[str, float]


def pair(steps: int) -> dict[str, Any]:
    """A job of two workers, with a short nodeLostSeconds."""
    job = manifest(steps, warm=True)
    return {**job, "spec": {**job["spec"], "runPolicy": {"nodeLostSeconds": NODE_LOST_SECONDS}}}


def elastic(steps: int) -> dict[str, Any]:
    """A job of three workers that may train with two."""
    job = manifest(steps, warm=True)
    job["spec"]["replicaSpecs"]["worker"]["replicas"] = 3
    return {**job, "spec": {**job["spec"], "minReplicas": 2}}


@dataclass
class Times:
    """The times of each fault of one kind."""

    seconds: list[float] = field(default_factory=list)  # from the fault to the next round's first step
    down: list[float] = field(default_factory=list)  # of these, without a step

    def figures(self, name: str) -> Figures:
        """The figures for the last line."""
        total = {f"{name}_s": statistics.median(self.seconds), f"{name}_worst_s": max(self.seconds)}
        return {**total, f"{name}_down_s": statistics.median(self.down)}


async def recovery(
    gang: PodGang, what: str, times: Times, fault: Callable[[], object], without: Replica | None = None
) -> None:
    """Record the seconds from a fault, after a new backup, to the next step of all members (except `without`)."""
    await gang.next_epoch()
    at = time.monotonic()
    await asyncio.to_thread(fault)
    seconds = await gang.trained_since(at, without) - at
    down = await gang.down_seconds()
    times.seconds.append(seconds)
    times.down.append(down)
    say(f"  {what}: {seconds:.2f} s, {down:.2f} s of them without a step")


async def switched_off(gang: PodGang, times: Times) -> float:
    """Switch a worker's node off; the seconds until the cluster marks the node as not ready."""
    node, nodes, kube = gang.training.node(str(WORKER)), gang.nodes, gang.training.kube
    unready: list[float] = []

    def stop() -> None:
        at = time.monotonic()
        nodes.stop(node)
        kube.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=90s")
        unready.append(time.monotonic() - at)

    try:
        await recovery(gang, f"{node} switched off", times, stop)
    finally:
        nodes.start(node, kube)
        kube.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")
    return unready[0]


async def of_a_pair(options: argparse.Namespace) -> Figures:
    """Measure the faults of a gang that waits for its lost member."""
    deleted, evicted, lost = Times(), Times(), Times()
    created, imported = [], []
    async with cluster_gang.running(pair(options.steps), (CHIEF, WORKER), *OFF_THE_WORKERS) as gang:
        process = statistics.median(await kills(gang, WORKER, options.times, options.draw))
        for _ in range(options.times):
            await recovery(gang, "pod deleted", deleted, lambda: gang.training.delete(str(WORKER)))
            await recovery(gang, "pod evicted", evicted, lambda: gang.training.evict(str(WORKER)))
            bare = await gang.bare()
            created.append(bare[0])
            imported.append(bare[1])
            say(f"  a recreated bare pod: {bare[0]:.2f} s, its import: {bare[1]:.2f} s")
        unready = await switched_off(gang, lost)
    parts = statistics.median(created) + statistics.median(imported) + process
    floors = {"parts_s": parts, "node_not_ready_s": unready, "node_parts_s": unready + NODE_LOST_SECONDS + parts}
    faults = {**deleted.figures("deleted"), **evicted.figures("evicted"), **lost.figures("node")}
    return {"process_s": process, **faults, **floors}


async def of_an_elastic_gang(options: argparse.Namespace) -> Figures:
    """Measure the loss of a pod for which the other members need not wait."""
    members, times = (CHIEF, WORKER, LAST), Times()
    async with cluster_gang.running(elastic(options.steps), members, *OFF_THE_WORKERS) as gang:
        for _ in range(options.times):
            what, began = "pod deleted, minReplicas 2 of 3", time.monotonic()
            await recovery(gang, what, times, lambda: gang.training.delete(str(LAST)), without=LAST)
            await gang.trained_since(began)
    return times.figures("elastic")


async def measure(options: argparse.Namespace) -> Figures:
    """Run all measurements."""
    figures = {**await of_a_pair(options), **await of_an_elastic_gang(options)}
    for name, goal in (("deleted_s", "parts_s"), ("evicted_s", "parts_s"), ("node_s", "node_parts_s")):
        ratio = figures[name] / figures[goal]
        say(f"{name}: {figures[name]:.2f} s beside {figures[goal]:.2f} s, a ratio of {ratio:.2f}")
    return {name: round(value, 3) for name, value in figures.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5, help="repetitions of each fault, except the node's (5)")
    parser.add_argument("--steps", type=int, default=40, help="steps per epoch; 40 take about a second (40)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the times of the kills")
    options = parser.parse_args()
    options.draw = random.Random(options.seed)
    print(json.dumps(asyncio.run(measure(options))))


if __name__ == "__main__":
    main()

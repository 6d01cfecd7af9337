"""The operator with thousands of pods: real API server, controllers and scheduler, kwok for the nodes.

`python -m benchmarks.scale SCENARIO --jobs 1000 --workers 5`, each scenario in a cluster of its own:

* `jobs`: all jobs at once, beside a bare client that creates the same children; then the calm while all jobs train.
* `storm`: jobs are created one after the other, `--rate` a second.
* `third`: a third of the pods is deleted at once, without a grace period.
* `node`: a node with a hundred pods falls silent.
* `restart`: the operator is killed when half of the pods are there, and starts again.
* `start`: the operator starts with all jobs there, up to the first pass over each, and up to a request to each chief.

One job of 5,000 workers is `--jobs 1 --workers 5000`. This program plays the chiefs' launchers (see
benchmarks.simulated_chiefs). The last line is JSON. It asserts nothing: the figures of a busy machine are noise.
"""

import argparse
import asyncio
import json
import math
import os
import random
import re
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec

from benchmarks.api_client import Client, Manifest
from benchmarks.control_plane import say
from benchmarks.job_objects import Request, a_job, child_requests, core_path, job_names, jobs_path, policies_path
from benchmarks.process_usage import WRITES, cpu_seconds, resident_mib
from benchmarks.simulated_chiefs import SimulatedChiefs
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.manifests import changed
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.kwok.nodes import KWOK, ZONE, Node
from tests.support.kwok.simulation import Simulation

NAMESPACE, FLOOR_NAMESPACE = "benchmark", "floor"
PODS_PER_NODE = 100
SPARE_NODES = 2
AT_A_TIME = 32
NODE_LOST_SECONDS = 10
PATIENCE = 1200.0
BUCKET = re.compile(r'^tftraining_queue_seconds_bucket\{le="(.*)"\} (\S+)$', re.MULTILINE)


class LargeSimulation(Simulation):
    """Servers with limits for thousands of pods: by default the scheduler binds fifty a second."""

    lease_seconds: ClassVar[int] = 40
    grace_seconds: ClassVar[int] = 20
    network_bits: ClassVar[int] = 16
    client_flags: ClassVar[tuple[str, ...]] = ("--kube-api-qps=2000", "--kube-api-burst=4000")

    def cpu(self) -> dict[str, float]:
        """The CPU seconds of each server so far."""
        return {name: cpu_seconds(each.pid) for name, each in self._servers.items()}


class Sample:
    """The operator's counters at one moment."""

    def __init__(self, operator: OperatorProcess) -> None:
        self.at = time.monotonic()
        self.cpu = cpu_seconds(operator.pid)
        page = operator.get("metrics")[1]
        self.requests = {
            method: float(count)
            for method, count in re.findall(r'^tftraining_api_requests_total\{method="(\w+)"\} (\S+)$', page, re.M)
        }
        self.passes = _value(page, "tftraining_reconcile_seconds_count")
        self.waiting = _value(page, "tftraining_queue_depth")
        self.reconciled = _value(page, "tftraining_reconciled_jobs")
        self.waits = {float(le): float(count) for le, count in BUCKET.findall(page)}

    def since(self, before: "Sample") -> dict[str, Any]:
        """What the operator has done between the two samples."""
        seconds = self.at - before.at
        requests = {method: count - before.requests.get(method, 0) for method, count in self.requests.items()}
        written = sum(requests.get(each, 0) for each in WRITES)
        return {
            "seconds": round(seconds, 1),
            "cpu_s": round(self.cpu - before.cpu, 2),
            "cpu_cores": round((self.cpu - before.cpu) / seconds, 3),
            "requests": requests,
            "writes_per_s": round(written / seconds, 1),
            "passes": self.passes - before.passes,
            "queue_p99_s": _quantile({le: count - before.waits.get(le, 0) for le, count in self.waits.items()}, 0.99),
        }


def _unowned(request: Request) -> Request:
    """The request without the owner of the object, whom there is not: the garbage collector would delete the object."""
    method, path, body = request
    manifest = msgspec.json.decode(body)
    manifest["metadata"].pop("ownerReferences", None)
    return method, path, msgspec.json.encode(manifest)


def _value(page: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _quantile(buckets: dict[float, float], share: float) -> float:
    """The upper bound of the bucket that the quantile lies in; -1 for infinity."""
    total = max(buckets.values(), default=0.0)
    bound = next((le for le in sorted(buckets) if buckets[le] >= share * total), math.inf)
    return bound if math.isfinite(bound) else -1.0


class Bench:
    """One scenario in one cluster. `client` is the administrator's."""

    def __init__(
        self, plane: LargeSimulation, client: Client, chiefs: SimulatedChiefs, asked: argparse.Namespace
    ) -> None:
        self._plane = plane
        self._client = client
        self._chiefs = chiefs
        self._asked = asked
        self._pods = asked.jobs * asked.workers
        self._servers_cpu: dict[str, float] = {}
        self._operator = OperatorProcess(operator_kubeconfig(plane), plane.directory)
        self.found: dict[str, Any] = {"scenario": asked.scenario, "jobs": asked.jobs, "workers": asked.workers}

    def kill(self) -> None:
        """End the operator."""
        self._operator.kill()

    async def run(self) -> None:
        """Run the scenario that was asked for."""
        scenarios: dict[str, Callable[[], Awaitable[None]]] = {
            "jobs": self._jobs, "storm": self._storm, "third": self._third, "node": self._node,
            "restart": self._restart, "start": self._start,
        }  # fmt: skip
        await scenarios[self._asked.scenario]()
        self.found["resident_mib"] = round(resident_mib(self._operator.pid), 1)
        self.found["peak_mib"] = round(resident_mib(self._operator.pid, peak=True), 1)

    # --- scenarios

    async def _jobs(self) -> None:
        floor, jobs_alone = await self._floor(), await self._jobs_alone()
        await self._start_operator()
        self.found["idle_mib"] = round(resident_mib(self._operator.pid), 1)
        async with self._measured("creation"):
            self._servers_cpu, began = self._plane.cpu(), time.perf_counter()
            await self._create()
            there = await self._until_all_pods() - began
            both = floor + jobs_alone
            self.found |= {"floor_s": round(floor, 2), "jobs_alone_s": round(jobs_alone, 2), "pods_s": round(there, 2)}
            self.found |= {"ratio": round(there / floor, 2), "ratio_with_jobs": round(there / both, 2)}
            say(f"all pods there after {there:.1f} s, bare client {floor:.1f} s, with the jobs {both:.1f} s")
            self.found |= await self._running(NAMESPACE, began, self._servers_cpu)
            await self._until_training()
        await self._calm()

    async def _storm(self) -> None:
        await self._start_operator()
        async with self._measured("storm"):
            began = time.monotonic()
            for number, name in enumerate(job_names(self._asked.jobs)):
                await asyncio.sleep(max(0.0, began + number / self._asked.rate - time.monotonic()))
                await self._client.request("POST", jobs_path(NAMESPACE), self._job(name))
            self.found["created_in_s"] = round(time.monotonic() - began, 1)
            await self._until_training()
        await self._calm()

    async def _third(self) -> None:
        await self._all_train()
        victims = random.Random(1).sample(sorted(self._chiefs.pods), self._pods // 3)
        before = dict(self._chiefs.pods)
        force = msgspec.json.encode({"gracePeriodSeconds": 0})
        async with self._measured("recovery"):
            began = time.perf_counter()
            requests = [("DELETE", f"{core_path(NAMESPACE, 'pods')}/{name}", force) for name in victims]
            await self._client.send_all(requests, AT_A_TIME)
            self.found["killed_in_s"] = round(time.perf_counter() - began, 1)
            await self._until_replaced(victims, before, began)

    async def _node(self) -> None:
        await self._all_train()
        raws = msgspec.json.decode(await self._client.request("GET", core_path(NAMESPACE, "pods")))["items"]
        nodes: dict[str, list[str]] = {}
        for raw in raws:
            nodes.setdefault(raw["spec"]["nodeName"], []).append(raw["metadata"]["name"])
        fullest = max(nodes, key=lambda each: len(nodes[each]))
        self.found["lost_pods"] = len(nodes[fullest])
        before = dict(self._chiefs.pods)
        async with self._measured("recovery"):
            began = time.perf_counter()
            await asyncio.to_thread(Node(self._plane, fullest, "a").silence)
            await self._until_replaced(nodes[fullest], before, began)

    async def _restart(self) -> None:
        await self._start_operator()
        began = time.perf_counter()
        await self._create()
        await self._chiefs.until(lambda: len(self._chiefs.pods) >= self._pods // 2, "half of the pods", PATIENCE)
        self._operator.kill()
        killed = time.perf_counter()
        await self._start_operator()
        self.found["operator_away_s"] = round(time.perf_counter() - killed, 2)
        there = await self._until_all_pods() - began
        self.found["pods_s"] = round(there, 2)
        await self._until_training()
        counts = await self._statuses(lambda status: status.get("attempt", 1) != 1)
        self.found["jobs_recreated"] = counts

    async def _start(self) -> None:
        await self._all_train()
        self._operator.kill()
        await asyncio.sleep(2)  # the chiefs end the waiting requests of the killed operator, and count them
        self._chiefs.forget_requests()
        began = time.perf_counter()
        await asyncio.to_thread(self._operator.start)
        self.found["ready_s"] = round(time.perf_counter() - began, 2)
        await _until(self._all_reconciled, "a pass over each job", 0.25)
        self.found["first_pass_of_every_job_s"] = passed = round(time.perf_counter() - began, 2)
        asked = await self._chiefs.until(lambda: self._chiefs.asked >= self._asked.jobs, "all chiefs asked", PATIENCE)
        self.found["every_chief_asked_s"] = round(asked - began, 2)
        self.found["cpu_s"] = round((await self._sample()).cpu, 2)
        say(f"ready after {self.found['ready_s']} s, every job has had a pass after {passed} s")

    # --- steps

    async def prepare(self) -> None:
        """Create the nodes, and wait until they are usable."""
        names = [f"node-{number}" for number in range(math.ceil(self._pods / PODS_PER_NODE) + SPARE_NODES)]
        room = {"cpu": "1000", "memory": "8000Gi", "pods": str(PODS_PER_NODE)}
        requests = []
        for name in names:
            labels = {KWOK: "yes", ZONE: "a", "kubernetes.io/hostname": name}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            body = {**node, "status": {"capacity": room, "allocatable": room}}
            requests.append(("POST", "/api/v1/nodes", msgspec.json.encode(body)))
        await self._client.send_all(requests, AT_A_TIME)
        for name in names:
            await asyncio.to_thread(Node(self._plane, name, "a").wait_until_usable)

    async def _floor(self) -> float:
        """Seconds in which a bare client creates the children of the same jobs; the fastest of some concurrencies."""
        seconds = []
        for concurrency in (16, 32, 64):
            requests = [
                _unowned(each) for each in child_requests(FLOOR_NAMESPACE, self._asked.jobs, self._asked.workers)
            ]
            before, began = self._plane.cpu(), time.perf_counter()
            await self._client.send_all(requests, concurrency)
            seconds.append(time.perf_counter() - began)
            run = await self._running(FLOOR_NAMESPACE, began, before)
            say(f"bare client, {concurrency} requests at a time: {seconds[-1]:.1f} s, {run}")
            if seconds[-1] == min(seconds):
                self.found |= {f"floor_{name}": value for name, value in run.items()}
            await self._empty(FLOOR_NAMESPACE)
        return min(seconds)

    async def _running(self, namespace: str, began: float, cpu_before: dict[str, float]) -> dict[str, Any]:
        """When all pods run, and the CPU seconds of the servers until then: their work for the same pods."""
        path = f"{core_path(namespace, 'pods')}?fieldSelector=status.phase!=Running&limit=1"

        async def all_run() -> bool:
            return not msgspec.json.decode(await self._client.request("GET", path))["items"]

        await _until(all_run, "all pods run", 0.5)
        spent = {name: round(now - cpu_before[name], 1) for name, now in self._plane.cpu().items()}
        return {"running_s": round(time.perf_counter() - began, 2), "servers_cpu_s": spent}

    async def _jobs_alone(self) -> float:
        """Seconds in which a bare client creates the jobs, while no operator runs: that is the API server's work."""
        seconds = await self._create(FLOOR_NAMESPACE)
        await self._client.request("DELETE", jobs_path(FLOOR_NAMESPACE), b"")
        return seconds

    async def _empty(self, namespace: str) -> None:
        """Delete the children, the pods without a grace period: kwok takes others away one by one."""
        names = msgspec.json.decode(await self._client.request("GET", core_path(namespace, "services")))["items"]
        services = [f"{core_path(namespace, 'services')}/{each['metadata']['name']}" for each in names]
        await self._client.send_all([("DELETE", path, b"") for path in services], AT_A_TIME)
        force = msgspec.json.encode({"gracePeriodSeconds": 0})
        for path in (core_path(namespace, "pods"), core_path(namespace, "secrets"), policies_path(namespace)):
            await self._client.request("DELETE", path, force)

    def _job(self, name: str) -> bytes:
        limits = {"nodeLostSeconds": NODE_LOST_SECONDS, "startDeadlineSeconds": 10**6}
        job: Manifest = changed(a_job(name, self._asked.workers), {"spec.runPolicy": limits})
        return msgspec.json.encode(job)

    async def _create(self, namespace: str = NAMESPACE) -> float:
        """Create all jobs; the seconds that took."""
        requests = [("POST", jobs_path(namespace), self._job(name)) for name in job_names(self._asked.jobs)]
        began = time.perf_counter()
        await self._client.send_all(requests, AT_A_TIME)
        return time.perf_counter() - began

    async def _start_operator(self) -> None:
        await asyncio.to_thread(self._operator.start)

    async def _until_all_pods(self) -> float:
        return await self._chiefs.until(lambda: len(self._chiefs.pods) >= self._pods, "all pods", PATIENCE)

    async def _until_training(self) -> None:
        """Return when all gangs train, and their statuses say so."""
        await self._chiefs.until(lambda: self._chiefs.training >= self._asked.jobs, "all gangs train", PATIENCE)
        running = ("Running", f"{self._asked.workers}/{self._asked.workers}")

        async def all_run() -> bool:
            return not await self._statuses(lambda status: (status.get("phase"), status.get("ready")) != running)

        await _until(all_run, "the statuses of all jobs", 1.0)

    async def _until_replaced(self, lost: list[str], before: dict[str, str], began: float) -> None:
        """Return when each of the pods has a successor, and all jobs run again."""

        def replaced() -> bool:
            return all(self._chiefs.pods.get(name, before[name]) != before[name] for name in lost)

        there = await self._chiefs.until(replaced, "the successors", PATIENCE)
        self.found["successors_s"] = round(there - began, 1)
        await self._until_training()
        self.found["training_again_s"] = round(time.perf_counter() - began, 1)
        say(f"successors after {self.found['successors_s']} s, all jobs run after {self.found['training_again_s']} s")

    async def _all_train(self) -> None:
        await self._start_operator()
        await self._create()
        await self._until_all_pods()
        await self._until_training()
        say(f"{self._asked.jobs} jobs train")
        await asyncio.sleep(self._asked.settle)

    async def _calm(self) -> None:
        """Measure while all jobs train."""
        await asyncio.sleep(self._asked.settle)
        async with self._measured("calm"):
            await asyncio.sleep(self._asked.calm)

    @asynccontextmanager
    async def _measured(self, phase: str) -> AsyncIterator[None]:
        before = await self._sample()
        yield
        self.found[phase] = (await self._sample()).since(before)
        say(f"{phase}: {self.found[phase]}")

    async def _all_reconciled(self) -> bool:
        return bool((await self._sample()).reconciled >= self._asked.jobs)

    async def _sample(self) -> Sample:
        return await asyncio.to_thread(Sample, self._operator)

    async def _statuses(self, wrong: Callable[[Manifest], bool]) -> int:
        raws = msgspec.json.decode(await self._client.request("GET", jobs_path(NAMESPACE)))["items"]
        return sum(wrong(raw.get("status") or {}) for raw in raws)


async def _until(holds: Callable[[], Awaitable[bool]], what: str, pause: float) -> None:
    """Ask every `pause` seconds; TimeoutError if it never holds."""
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        await asyncio.sleep(pause)


async def measure(plane: LargeSimulation, asked: argparse.Namespace) -> dict[str, Any]:
    """The figures of the scenario."""
    for namespace in (NAMESPACE, FLOOR_NAMESPACE):
        plane.create_namespace(namespace)
    async with Client(plane.kubeconfig) as client, SimulatedChiefs(client, NAMESPACE, asked.workers) as chiefs:
        bench = Bench(plane, client, chiefs, asked)
        try:
            await bench.prepare()
            say(f"{asked.scenario}: {asked.jobs} jobs of {asked.workers} workers")
            await bench.run()
        finally:
            bench.kill()
    return bench.found


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=["jobs", "storm", "third", "node", "restart", "start"])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--rate", type=float, default=20.0, help="storm: jobs a second (default 20)")
    parser.add_argument("--settle", type=float, default=30.0, help="seconds before the calm is measured (default 30)")
    parser.add_argument("--calm", type=float, default=60.0, help="seconds of calm to measure (default 60)")
    asked = parser.parse_args()
    # Each chief has a listener and a connection.
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with LargeSimulation() as plane:
        found = asyncio.run(measure(plane, asked))
    print(json.dumps({**found, "load_average": round(os.getloadavg()[0], 1)}))


if __name__ == "__main__":
    main()

"""How fast, and at what cost, the operator makes jobs, beside what a bare client needs for the same objects.

`python -m benchmarks.control_plane` on a real API server without nodes; docs/results.md says what each figure means.
Rounds of the bare client and of the operator alternate, each in an empty namespace with a fresh client or operator.
The last line is JSON. It asserts nothing: the figures of a busy machine are noise.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack

import msgspec

from benchmarks.api_client import Client, Manifest, Watch
from benchmarks.job_objects import (
    Request,
    child_requests,
    core_path,
    failed_request,
    job_names,
    job_requests,
    jobs_path,
    policies_path,
    running_request,
)
from benchmarks.process_usage import cpu_seconds, requests_served, resident_mib, writes
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import install_crd, operator_kubeconfig
from tests.support.control_plane.operator_process import OperatorProcess

CONCURRENCIES = (8, 16, 32, 64)
NAMESPACE = "benchmark"
QUIET_SECONDS = 2.0
IDLE_SECONDS = 20.0
REPLACEMENTS = 10
# The benchmark's own requests while the operator works.
OWN_REQUESTS = ("POST tftrainingjobs", "PATCH pods/status")


class Shape(msgspec.Struct, frozen=True):
    """The number of jobs, and the workers per job."""

    jobs: int
    workers: int

    def __str__(self) -> str:
        return f"{self.jobs} x {self.workers}"

    @property
    def pods(self) -> list[str]:
        """The names of all pods."""
        return [f"{name}-worker-{index}" for name in job_names(self.jobs) for index in range(self.workers)]


class Round(msgspec.Struct):
    """The cost of one round of the operator until all pods run: seconds, MiB, and requests per job by kind."""

    seconds: float
    cpu_seconds: float
    resident_mib: float
    peak_mib: float
    writes: Counter[str]


class Idle(msgspec.Struct):
    """The cost of running jobs: requests while nothing happens, and seconds of each replacement."""

    requests: Counter[str]
    replacements: list[float]


class Result(msgspec.Struct):
    """The rounds of one shape."""

    shape: Shape
    floors: list[float]
    rounds: list[Round]

    @property
    def floor(self) -> float:
        """The bare client's median, in seconds."""
        return statistics.median(self.floors)

    @property
    def seconds(self) -> float:
        """The operator's median, in seconds."""
        return statistics.median(each.seconds for each in self.rounds)

    def median(self, field: str) -> float:
        """The median of one field of the rounds."""
        return float(statistics.median(getattr(each, field) for each in self.rounds))

    @property
    def writes(self) -> Counter[str]:
        """The writes of the last round; the number of status writes differs by a few from round to round."""
        return self.rounds[-1].writes


class Bench:
    """The measurements, on one API server. `client` is the administrator's."""

    def __init__(self, plane: ControlPlane, client: Client) -> None:
        self._plane = plane
        self._client = client
        self._account = operator_kubeconfig(plane)
        self._concurrency = CONCURRENCIES[0]
        plane.create_namespace(NAMESPACE)

    async def calibrate(self, shape: Shape) -> None:
        """Find the number of concurrent requests with which the bare client is fastest."""
        await self.floor(shape)
        seconds: dict[int, float] = {}
        for self._concurrency in CONCURRENCIES:
            seconds[self._concurrency] = min([await self.floor(shape) for _ in range(2)])
            say(f"bare client, {shape}, {self._concurrency} requests at a time: {seconds[self._concurrency]:.2f} s")
        self._concurrency = min(seconds, key=lambda each: seconds[each])

    async def floor(self, shape: Shape) -> float:
        """Seconds that a fresh bare client needs to create the children of the jobs."""
        requests = child_requests(NAMESPACE, shape.jobs, shape.workers)
        async with Client(self._plane.kubeconfig) as client:
            seconds = await self._created(client, shape, requests, self._concurrency)
        await self._remove_all()
        return seconds

    async def operate(self, shape: Shape) -> Round:
        """One round of a fresh operator."""
        with self._operator() as operator:
            result = await self._round(operator, shape)
        await self._remove_all()
        return result

    async def idle(self, shape: Shape) -> Idle:
        """Measure the requests while the jobs run undisturbed, and the time until a failed pod is replaced."""
        with self._operator() as operator:
            await self._round(operator, shape)
            say(f"watching {shape} running workers for {IDLE_SECONDS:.0f} s")
            before = await requests_served(self._client)
            await asyncio.sleep(IDLE_SECONDS)
            requests = await requests_served(self._client) - before
            names = job_names(min(shape.jobs, REPLACEMENTS))
            replacements = [await self._replacement(f"{name}-worker-{shape.workers - 1}") for name in names]
        await self._remove_all()
        return Idle(requests, replacements)

    def _operator(self) -> OperatorProcess:
        return OperatorProcess(self._account, self._plane.directory)

    async def _round(self, operator: OperatorProcess, shape: Shape) -> Round:
        before, cpu = await requests_served(self._client), cpu_seconds(operator.pid)
        requests = job_requests(NAMESPACE, shape.jobs, shape.workers)
        seconds = await self._created(self._client, shape, requests, len(requests))
        await self._run_pods(shape)
        await self._settle()
        done = writes(await requests_served(self._client) - before)
        return Round(
            seconds=seconds,
            cpu_seconds=cpu_seconds(operator.pid) - cpu,
            resident_mib=resident_mib(operator.pid),
            peak_mib=resident_mib(operator.pid, peak=True),
            writes=Counter({what: count for what, count in done.items() if what not in OWN_REQUESTS}),
        )

    async def _created(self, client: Client, shape: Shape, requests: Iterable[Request], concurrency: int) -> float:
        """Send the requests; seconds from the first request to the last Service or pod that the watch reports."""
        async with AsyncExitStack() as stack:
            pods = await stack.enter_async_context(Watch(self._client, core_path(NAMESPACE, "pods")))
            services = await stack.enter_async_context(Watch(self._client, core_path(NAMESPACE, "services")))
            start = time.perf_counter()
            await client.send_all(requests, concurrency)
            last_pod = await pods.until(lambda seen: len(seen) == len(shape.pods))
            last_service = await services.until(lambda seen: len(seen) == shape.jobs)
            return max(last_pod, last_service) - start

    async def _run_pods(self, shape: Shape) -> None:
        """Report all pods as running, as a kubelet does; return when all jobs are running."""
        async with Watch(self._client, jobs_path(NAMESPACE), accept="application/json") as jobs:
            requests = [running_request(NAMESPACE, pod) for pod in shape.pods]
            await self._client.send_all(requests, self._concurrency)
            await jobs.until(
                lambda seen: Counter(each["status"]["phase"] for each in seen.values())["Running"] == shape.jobs
            )

    async def _settle(self) -> None:
        """Wait until the writes stop."""
        old: Counter[str] = Counter()
        while (new := writes(await requests_served(self._client))) != old:
            old = new
            await asyncio.sleep(QUIET_SECONDS)

    async def _replacement(self, pod: str) -> float:
        """Seconds from the report of a pod's failure until the watch shows its successor."""
        path = core_path(NAMESPACE, "pods")
        failed = msgspec.json.decode(await self._client.request("GET", f"{path}/{pod}"))
        async with Watch(self._client, path) as pods:
            start = time.perf_counter()
            await self._client.send_all([failed_request(NAMESPACE, pod)], 1)
            return await pods.until(lambda seen: _uid(seen.get(pod, failed)) != _uid(failed)) - start

    async def _remove_all(self) -> None:
        """Empty the namespace: no garbage collector runs, and pods without a node vanish at once."""
        kinds = (core_path(NAMESPACE, kind) for kind in ("pods", "secrets"))
        for path in (jobs_path(NAMESPACE), *kinds, policies_path(NAMESPACE), _events_path()):
            await self._client.request("DELETE", path)
        names = msgspec.json.decode(await self._client.request("GET", core_path(NAMESPACE, "services")))["items"]
        paths = [f"{core_path(NAMESPACE, 'services')}/{each['metadata']['name']}" for each in names]
        await self._client.send_all([("DELETE", path, b"") for path in paths], self._concurrency)


def _uid(pod: Manifest) -> str:
    return str(pod["metadata"]["uid"])


def _events_path() -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"


def say(line: str) -> None:
    """Print a line of progress at once."""
    print(line, flush=True)


async def measure(plane: ControlPlane, options: argparse.Namespace) -> tuple[list[Result], Idle]:
    """Run all measurements. The first round of each shape also warms up the API server, so medians are used."""
    one, many = Shape(1, options.workers), Shape(options.jobs, 2)
    async with Client(plane.kubeconfig) as client:
        bench = Bench(plane, client)
        results = [await _compare(bench, shape, options.repeat) for shape in (one, many)]
        return results, await bench.idle(many)


async def _compare(bench: Bench, shape: Shape, repeat: int) -> Result:
    await bench.calibrate(shape)
    result = Result(shape, [], [])
    for number in range(1, repeat + 1):
        result.floors.append(await bench.floor(shape))
        result.rounds.append(await bench.operate(shape))
        last = result.rounds[-1]
        say(
            f"{shape}, round {number} of {repeat}: bare client {result.floors[-1]:.2f} s, operator {last.seconds:.2f} s"
            f" ({last.cpu_seconds:.2f} CPU s, {last.resident_mib:.0f} MiB)"
        )
    return result


def report(one: Result, many: Result, idle: Idle) -> dict[str, object]:
    """Print the table; the figures for the last line."""
    for result, target in ((one, 2), (many, 3)):
        ratio = result.seconds / result.floor
        say(
            f"{result.shape}: all objects there after {result.seconds:.2f} s, bare client {result.floor:.2f} s:"
            f" {ratio:.2f} times (target: {target})"
        )
        say(f"  writes of the operator a job, until all pods run: {_a_job(result)}")
        say(f"  operator: {result.median('cpu_seconds'):.2f} CPU s, peak {result.median('peak_mib'):.0f} MiB resident")
    say(f"resident with {one.shape.workers} running pods: {one.median('resident_mib'):.0f} MiB (target: 120)")
    say(f"requests of {many.shape.jobs} idle jobs in {IDLE_SECONDS:.0f} s: {idle.requests.total()} (target: 0)")
    replacement = statistics.median(idle.replacements)
    say(f"failed pod to its replacement: {replacement * 1000:.0f} ms")
    return {
        "job_200_s": round(one.seconds, 3),
        "job_200_floor_s": round(one.floor, 3),
        "jobs_100x2_s": round(many.seconds, 3),
        "jobs_100x2_floor_s": round(many.floor, 3),
        "replacement_s": round(replacement, 4),
        "writes_per_job": round(many.writes.total() / many.shape.jobs, 2),
        "idle_requests": idle.requests.total(),
        "cpu_s": round(one.median("cpu_seconds"), 2),
        "rss_mib": round(one.median("resident_mib"), 1),
        "job_200_ratio": round(one.seconds / one.floor, 2),
        "jobs_100x2_ratio": round(many.seconds / many.floor, 2),
        "writes_job_200": one.writes.total(),
        "cpu_100x2_s": round(many.median("cpu_seconds"), 2),
        "rss_peak_mib": round(max(each.median("peak_mib") for each in (one, many)), 1),
        "shapes": [str(one.shape), str(many.shape)],
        "load_average": round(os.getloadavg()[0], 1),
    }


def _a_job(result: Result) -> str:
    kinds = sorted(result.writes.items())
    return ", ".join(f"{what} {count / result.shape.jobs:g}" for what, count in kinds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control_plane", description=__doc__)
    parser.add_argument("--workers", type=int, default=200, help="workers of the one large job (default 200)")
    parser.add_argument("--jobs", type=int, default=100, help="number of jobs with two workers (default 100)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of each (default 5)")
    options = parser.parse_args()
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; starting the API server")
    with ControlPlane() as plane:
        install_crd(plane)
        (one, many), idle = asyncio.run(measure(plane, options))
    print(msgspec.json.encode(report(one, many, idle)).decode())


if __name__ == "__main__":
    main()

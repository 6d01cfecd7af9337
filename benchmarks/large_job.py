"""What one large job costs the operator in memory, on a real API server, beside the same operator with no job.

`python -m benchmarks.large_job --workers 5000`: an API server without nodes; the benchmark plays the kubelets (every
pod runs) and the chief's launcher (the gang trains), the operator is a process of its own with the permissions of the
chart. Resident memory is read from outside: when the operator is idle, its peak while it makes the pods and while they
start, and when all train. Then the operator is started again, as after an upgrade, and lists the pods that are there.
The last line is JSON.
"""

import argparse
import asyncio
import json
import time
from typing import Any

import msgspec

from benchmarks.api_client import Client, Manifest, Watch
from benchmarks.control_plane import NAMESPACE, say
from benchmarks.job_objects import a_job, core_path, jobs_path, running_request
from benchmarks.process_usage import cpu_seconds, resident_mib
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.installation import install_crd, operator_kubeconfig
from tests.support.control_plane.operator_process import OperatorProcess

NAME = "large"
IDLE_SECONDS = 5.0
SETTLED_SECONDS = 20.0
CREATION_SECONDS = 600.0
CONCURRENCY = 16


class Bench:
    """One job on one API server. `client` is the administrator's."""

    def __init__(self, client: Client, workers: int, operator: OperatorProcess, launcher: ChiefLauncher) -> None:
        self._client = client
        self._names = [f"{NAME}-worker-{index}" for index in range(workers)]
        self._operator = operator
        self._launcher = launcher
        self._idle = 0.0
        self.found: dict[str, Any] = {"workers": workers}

    async def measure(self) -> None:
        """Run all measurements, in the order of a job's life."""
        await asyncio.sleep(IDLE_SECONDS)
        self._idle = resident_mib(self._operator.pid)
        self.found["idle_mib"] = round(self._idle, 1)
        say(f"idle: {self._idle:.1f} MiB")
        began, cpu = time.monotonic(), cpu_seconds(self._operator.pid)
        await self._create()
        self.found["creation_s"] = round(time.monotonic() - began, 1)
        self._tell("created", peak=True)
        await self._train()
        self._tell("started", peak=True)
        await asyncio.sleep(SETTLED_SECONDS)
        self._tell("training")
        self.found["cpu_s"] = round(cpu_seconds(self._operator.pid) - cpu, 1)
        self._operator.kill()
        await asyncio.to_thread(self._operator.start)
        await asyncio.sleep(SETTLED_SECONDS)
        self._tell("started_again", peak=True)

    def _tell(self, what: str, peak: bool = False) -> None:
        over = resident_mib(self._operator.pid, peak=peak) - self._idle
        self.found[f"{what}_mib_over_idle"] = round(over, 1)
        say(f"{what.replace('_', ' ')}: {over:.1f} MiB over idle{' at its peak' if peak else ''}")

    async def _create(self) -> None:
        async with Watch(self._client, core_path(NAMESPACE, "pods")) as pods:
            body = msgspec.json.encode(a_job(NAME, len(self._names)))
            await self._client.request("POST", jobs_path(NAMESPACE), body)
            await pods.until(lambda seen: len(seen) == len(self._names), CREATION_SECONDS)
        pod = await self._client.request("GET", f"{core_path(NAMESPACE, 'pods')}/{self._names[-1]}")
        self.found["pod_bytes"] = len(pod)

    async def _train(self) -> None:
        """Report all pods as running, as kubelets do; return when the job runs."""
        size = {"size": len(self._names), "full": len(self._names)}
        self._launcher.say(gang=size)
        job = msgspec.json.decode(await self._client.request("GET", f"{jobs_path(NAMESPACE)}/{NAME}"))
        self._launcher.job = job["metadata"]["uid"]
        address = {"status": {"podIP": self._launcher.ip, "podIPs": [{"ip": self._launcher.ip}]}}
        chief = ("PATCH", f"{core_path(NAMESPACE, 'pods')}/{self._names[0]}/status", msgspec.json.encode(address))
        async with Watch(self._client, jobs_path(NAMESPACE), accept="application/json") as jobs:
            requests = [running_request(NAMESPACE, pod) for pod in self._names]
            await self._client.send_all([chief, *requests], CONCURRENCY)
            await jobs.until(lambda seen: _trains(seen.get(NAME, {}), len(self._names)), CREATION_SECONDS)


def _trains(job: Manifest, workers: int) -> bool:
    status = job.get("status", {})
    return bool(status.get("phase") == "Running" and status.get("ready") == f"{workers}/{workers}")


async def run(plane: ControlPlane, workers: int) -> dict[str, Any]:
    """Run the measurements on this API server."""
    plane.create_namespace(NAMESPACE)
    operator = OperatorProcess(operator_kubeconfig(plane), plane.directory)
    with operator, chief_launcher() as launcher:
        async with Client(plane.kubeconfig) as client:
            bench = Bench(client, workers, operator, launcher)
            await bench.measure()
            return bench.found


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_job", description=__doc__)
    parser.add_argument("--workers", type=int, default=5000)
    options = parser.parse_args()
    with ControlPlane() as plane:
        install_crd(plane)
        found = asyncio.run(run(plane, options.workers))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

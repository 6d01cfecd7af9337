"""For how long the operator's event loop is blocked at most, in a running operator with a large job.

`python -m benchmarks.event_loop` on a real API server; pods and nodes have no machines, so this program plays the
kubelets and the chief's launcher. What it counts is CPU time of the loop's thread between two looks at the sockets (see
benchmarks.event_loop_operator), by what happened meanwhile. The last line is JSON.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.api_client import Client
from benchmarks.job_objects import Request, core_path, jobs_path, running_request
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.installation import install_crd, operator_kubeconfig
from tests.support.control_plane.manifests import changed, minimal, template
from tests.support.control_plane.operator_process import OperatorProcess

NAMESPACE = "benchmark"
AT_A_TIME = 32
# etcd writes each of these pods once more when it is deleted, and times out if there are many at a time.
LARGE_AT_A_TIME = 4
# Seconds after the end of a phase in which the operator may still do that phase's work.
AFTER = 3.0
PATIENCE = 900.0
NODES = "/api/v1/nodes"
# With this command, the launcher can set a TF_CONFIG of any length.
PYTHON = template(command=["python", "train.py"])
LARGE_TOLERATIONS = 20_000


class Phases:
    """The phases with their start times, and the longest turn of the loop in each."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._began: list[tuple[str, float]] = []

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[None]:
        """A phase: the `with` block, and AFTER seconds for the operator's reaction."""
        began = time.time()
        self._began.append((name, began))
        yield
        await asyncio.sleep(AFTER)
        print(f"{name}: {time.time() - began:.0f} s; {_told(self._longest(began, time.time())[:5])}", flush=True)

    def result(self) -> dict[str, Any]:
        """The longest turn of each phase, and the 99.9th percentile of its turns, in milliseconds."""
        ends = [began for _, began in self._began[1:]] + [time.time()]
        found = {}
        for (name, began), end in zip(self._began, ends, strict=True):
            notes = self._longest(began, end)
            # The turns of less than NOTED ms before the last note are counted, those behind it are not.
            rank = sum(note["turns"] for note in notes) // 1000
            found[name.replace(" ", "_")] = {
                "longest": round(notes[0]["ms"], 1) if notes else 0,
                "p99.9": round(notes[rank]["ms"], 1) if rank < len(notes) else 0,
            }
        return found

    def _longest(self, began: float, end: float) -> list[dict[str, Any]]:
        notes = [json.loads(line) for line in self._notes.read_text().splitlines()]
        return sorted((note for note in notes if began <= note["at"] < end), key=lambda note: -note["ms"])


def _told(notes: Iterable[dict[str, Any]]) -> str:
    told = [
        f"{note['ms']:.0f} ms (garbage collection {note['gc_ms']:.0f}), {note['callbacks']} callbacks, the longest"
        f" {note['longest_ms']:.0f} ms {note['what']}"
        for note in notes
    ]
    return "the longest turns:\n  " + "\n  ".join(told) if told else "no turn of 5 ms or more"


class Bench:
    """The actions of the phases. `client` is the administrator's."""

    def __init__(self, client: Client, launcher: ChiefLauncher, workers: int, nodes: int) -> None:
        self._client = client
        self._launcher = launcher
        self._workers = workers
        self._nodes = [f"node-{number}" for number in range(nodes)]

    async def prepare(self) -> None:
        """Create the nodes and report them as ready."""
        made = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in self._nodes]
        await self._send(("POST", NODES, msgspec.json.encode(each)) for each in made)
        await self.tell_nodes("True")

    async def make_large(self, job: str, workers: int) -> None:
        """Create a job with so many workers and LARGE_TOLERATIONS: a pod has 1.3 MB. When all its pods exist, remove it
        and them."""
        keys = [f"key-{number}" for number in range(LARGE_TOLERATIONS)]
        tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
        usual, self._workers = self._workers, workers
        await self.make(job, changed(PYTHON, {"spec.tolerations": tolerations}))
        self._workers, path = usual, core_path(NAMESPACE, "pods")
        names = [f"{jobs_path(NAMESPACE)}/{job}", *(f"{path}/{job}-worker-{number}" for number in range(workers))]
        await self._client.send_all((("DELETE", name, b"") for name in names), LARGE_AT_A_TIME)

    async def make(self, job: str, of: dict[str, Any] = PYTHON) -> None:
        """Create the job; return when all its pods exist."""
        limits = {"nodeLostSeconds": 10**9, "startDeadlineSeconds": 10**9}
        spec = {"spec.replicaSpecs.worker.replicas": self._workers, "spec.runPolicy": limits, "spec.template": of}
        await self._send([("POST", jobs_path(NAMESPACE), msgspec.json.encode(changed(minimal(job), spec)))])
        await self._until(self._has_all_pods, "all pods")

    async def start(self, job: str, indexes: Iterable[int]) -> None:
        """Bind these pods of the job to nodes and report them as running; return when the job trains."""
        pods = [(index, f"{job}-worker-{index}") for index in indexes]
        await self._send(self._binding(pod, index) for index, pod in pods)
        await self._send(running_request(NAMESPACE, pod) for _, pod in pods)
        ip = {"status": {"podIP": self._launcher.ip, "podIPs": [{"ip": self._launcher.ip}]}}
        self._launcher.job = msgspec.json.decode(await self._client.request("GET", f"{jobs_path(NAMESPACE)}/{job}"))[
            "metadata"
        ]["uid"]
        chief = f"{core_path(NAMESPACE, 'pods')}/{job}-worker-0/status"
        await self._send([("PATCH", chief, msgspec.json.encode(ip))])
        await self._until(partial(self._is_running, job), f"{job} runs")

    def _binding(self, pod: str, index: int) -> Request:
        target = {"apiVersion": "v1", "kind": "Node", "name": self._nodes[index % len(self._nodes)]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        return "POST", f"{core_path(NAMESPACE, 'pods')}/{pod}/binding", msgspec.json.encode(body)

    async def report(self) -> None:
        """Let the chief's launcher report the longest lists of members: all missing, then all finished."""
        names = [f"worker-{index}" for index in range(self._workers)]
        members = {name: {"state": "Training", "pod": "x" * 36, "address": "y" * 60, "round": 1} for name in names}
        for phase, fields in (
            ("Waiting", {"missing": names}),
            ("Training", {"finished": names[1:], "noGpu": names}),
            ("Training", {}),
        ):
            self._launcher.say(phase, members=members, **fields)
            await self._asked_again()

    async def _asked_again(self) -> None:
        """Return when the operator has asked twice more: the second answer has the launcher's present state."""
        before = self._launcher.asked
        while True:
            if self._launcher.asked >= before + 2:
                return
            await asyncio.sleep(0.5)

    async def tell_nodes(self, ready: str) -> None:
        """Set the condition Ready of all nodes, as fast as the API server accepts the writes."""
        condition = {"type": "Ready", "status": ready, "reason": "Bench", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = msgspec.json.encode({"status": {"conditions": [condition]}})
        await self._send(("PATCH", f"{NODES}/{name}/status", body) for name in self._nodes)

    async def lose(self, job: str, indexes: Iterable[int]) -> None:
        """Delete these pods without a grace period; return when their successors exist."""
        names = {f"{job}-worker-{index}" for index in indexes}
        path, force = core_path(NAMESPACE, "pods"), msgspec.json.encode({"gracePeriodSeconds": 0})
        await self._send(("DELETE", f"{path}/{name}", force) for name in names)
        await self._until(self._has_all_pods, "all pods again")

    async def suspend(self, job: str, operator: OperatorProcess) -> None:
        """Suspend the job; the operator deletes each of its pods by a request of its own."""
        path, deletions = f"{jobs_path(NAMESPACE)}/{job}", 'tftraining_api_requests_total{method="DELETE"}'
        before = operator.metric(deletions)
        await self._send([("PATCH", path, msgspec.json.encode({"spec": {"runPolicy": {"suspend": True}}}))])

        async def all_are_asked() -> bool:
            return await asyncio.to_thread(operator.metric, deletions) >= before + self._workers

        await self._until(all_are_asked, "each pod is asked to go")

    async def _has_all_pods(self) -> bool:
        pods = msgspec.json.decode(await self._client.request("GET", f"{core_path(NAMESPACE, 'pods')}?limit=1"))
        return len(pods["items"]) + int(pods["metadata"].get("remainingItemCount", 0)) == self._workers

    async def _is_running(self, job: str) -> bool:
        raw = msgspec.json.decode(await self._client.request("GET", f"{jobs_path(NAMESPACE)}/{job}"))
        return bool(raw.get("status", {}).get("phase") == "Running")

    async def _until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"timed out: {what}")
            await asyncio.sleep(1.0)

    async def _send(self, requests: Iterable[Request]) -> None:
        await self._client.send_all(requests, AT_A_TIME)


async def measure(
    plane: ControlPlane, operator: OperatorProcess, notes: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """The turns of the loop in each phase, in milliseconds: see Phases.result."""
    phases, workers = Phases(notes), asked.workers
    with chief_launcher() as launcher:
        async with Client(plane.kubeconfig) as client:
            bench = Bench(client, launcher, workers, asked.nodes)
            await bench.prepare()
            async with phases.phase("large pods"):
                await bench.make_large("large", asked.large_workers)
            async with phases.phase("creation"):
                await bench.make("first")
            async with phases.phase("start"):
                await bench.start("first", range(workers))
            async with phases.phase("reports"):
                await bench.report()
            async with phases.phase("nodes"):
                await bench.tell_nodes("Unknown")
                await bench.tell_nodes("True")
            async with phases.phase("half lost"):
                await bench.lose("first", range(1, workers, 2))
                await bench.start("first", range(1, workers, 2))
            async with phases.phase("start of the operator"):
                operator.kill()
                await asyncio.to_thread(operator.start)
            async with phases.phase("suspension"):
                await bench.suspend("first", operator)
    return phases.result()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=5000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument(
        "--large-workers", type=int, default=400, help="pods of 1.3 MB; the API server needs 10 MB each"
    )
    asked = parser.parse_args()
    with ControlPlane() as plane:
        install_crd(plane)
        plane.create_namespace(NAMESPACE)
        notes = plane.directory / "loop.jsonl"
        notes.touch()
        account, module = operator_kubeconfig(plane), "benchmarks.event_loop_operator"
        with OperatorProcess(account, plane.directory, module, LOOP_NOTES=str(notes)) as operator:
            longest = asyncio.run(measure(plane, operator, notes, asked))
    load = round(os.getloadavg()[0], 1)
    print(json.dumps({"workers": asked.workers, "nodes": asked.nodes, "turns_ms": longest, "load_average": load}))


if __name__ == "__main__":
    main()

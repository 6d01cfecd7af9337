"""How fast `tftj` feels on a cluster: the help, a list of many jobs, and how soon a change is shown.

`python -m benchmarks.cli` on a real API server without nodes and without an operator; docs/results.md says what each
figure means. The floors are the start of Python, kubectl on the same list, and the bare request of the list by Python's
own HTTP client (`list_request_ms`; `list_over_request` is `list_ms` by it). The last line is JSON. It asserts nothing:
the times of a busy machine are noise, which the CPU times (`_cpu_ms`) follow less.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import install_crd
from tests.support.control_plane.manifests import minimal
from tftraining_client import AsyncClient

NAMESPACE = "benchmark"
JOBS = f"/apis/tftraining.dev/v1/namespaces/{NAMESPACE}/tftrainingjobs"
TFTJ = (sys.executable, "-m", "tftraining_client")
CHANGES = 20
IDLE_SECONDS = 10.0


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500, help="jobs in the list")
    parser.add_argument("--times", type=int, default=10, help="runs of each command")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with ControlPlane() as plane:
        install_crd(plane)
        plane.create_namespace(NAMESPACE)
        for number in range(arguments.jobs):
            plane.request("POST", JOBS, minimal(f"job-{number}"))
        kubectl = plane._programs / "kubectl"
        commands: dict[str, Sequence[str | Path]] = {
            "python_start": (sys.executable, "-c", "pass"),
            "help": (*TFTJ, "--help"),
            "list": (*TFTJ, "list", "--namespace", NAMESPACE),
            "status": (*TFTJ, "status", "job-0", "--namespace", NAMESPACE),
            "kubectl_list": (kubectl, "get", "tftj", "--namespace", NAMESPACE),
        }
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
        # An installed package has its bytecode: without it each command would compile the modules again.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for name, command in commands.items():
            wall, cpu = milliseconds(lambda: run(command, environment), arguments.times)  # noqa: B023
            figures |= {f"{name}_ms": wall, f"{name}_cpu_ms": cpu}
        figures["list_request_ms"], _ = milliseconds(lambda: plane.request("GET", JOBS), arguments.times)
        figures["list_over_request"] = figures["list_ms"] / figures["list_request_ms"]
        figures |= asyncio.run(watched(plane))
        figures["change_printed_ms"] = printed_after(plane, environment)
    for name, value in figures.items():
        print(f"{name:<20} {value:8.1f}")
    print(json.dumps(figures))


def run(command: Sequence[str | Path], environment: dict[str, str]) -> None:
    """Run a command without its output; CalledProcessError if it fails."""
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)


def milliseconds(work: Callable[[], object], times: int) -> tuple[float, float]:
    """The medians of so many runs, after one that fills the caches: time, and CPU time of the programs."""
    work()
    walls, cpus = [], []
    for _ in range(times):
        began, used = time.perf_counter(), cpu_seconds()
        work()
        walls.append((time.perf_counter() - began) * 1000)
        cpus.append((cpu_seconds() - used) * 1000)
    return statistics.median(walls), statistics.median(cpus)


def cpu_seconds() -> float:
    """The CPU time of the programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def watched(plane: ControlPlane) -> dict[str, float]:
    """The time from the request of a change to the snapshot with it, and the requests of idle time."""
    async with AsyncClient(kubeconfig=str(plane.kubeconfig), namespace=NAMESPACE) as client:
        snapshots = client.snapshots("job-0")
        await anext(snapshots)
        delays = []
        for number in range(CHANGES):
            change = {"metadata": {"labels": {"change": str(number)}}}
            following = asyncio.ensure_future(anext(snapshots))
            began = time.perf_counter()
            await asyncio.to_thread(plane.request, "PATCH", f"{JOBS}/job-0", change, "application/merge-patch+json")
            await following
            delays.append((time.perf_counter() - began) * 1000)
        api = (await client.connection()).api
        before = api.requests.total()
        await asyncio.sleep(IDLE_SECONDS)
        idle = api.requests.total() - before
        await snapshots.aclose()
    return {"change_seen_ms": statistics.median(delays), "idle_requests": float(idle)}


def printed_after(plane: ControlPlane, environment: dict[str, str]) -> float:
    """The time from the request of a change until `tftj status --watch` has printed it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tftraining_client", "status", "job-1", "--watch", "--namespace", NAMESPACE],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        following.stdout.readline()
        delays = []
        for number in range(CHANGES):
            status = {"status": {"phase": "Running", "message": f"change {number}"}}
            began = time.perf_counter()
            plane.request("PATCH", f"{JOBS}/job-1/status", status, "application/merge-patch+json")
            assert f"change {number}" in following.stdout.readline()
            delays.append((time.perf_counter() - began) * 1000)
        following.terminate()
    return statistics.median(delays)


if __name__ == "__main__":
    main()

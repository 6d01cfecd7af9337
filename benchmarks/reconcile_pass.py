"""What one pass over a large job costs the operator: CPU time of the decision, and memory of the creation.

`python -m benchmarks.reconcile_pass --workers 5000` lets the operator's own store, observation and planner look at a
job of that size, and at one of a quarter of it, in three states: all train, half of the pods are gone, their successors
are on their way. The time is the least of several passes, in CPU time of this process; `growth` is the time per worker
relative to the quarter's, so 1 is linear. Before that the job is created by the operator's own code at an API that
keeps nothing, and the growth of the resident set is told. No traffic leaves the process. The last line is JSON.
"""

import argparse
import asyncio
import json
import resource
import time
from collections.abc import Callable
from typing import Any, cast

import msgspec

from tests.support.simulated_cluster.apiserver import over_the_wire
from tests.support.simulated_cluster.builders import JobBuilder
from tests.support.simulated_cluster.simulation import IMAGE, SimulatedCluster
from tftraining_api.kube.api import Api
from tftraining_api.model.job import parse_job
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.step import Step

MIB = 1024 * 1024


BEFORE_PODS = {"keras": "Own"}  # what the status of a job has when its pods are created


class Accepting:
    """A stand-in for the API server: accepts every creation, answers as the API server does, and stores nothing."""

    def __init__(self) -> None:
        self._versions = 0

    async def request(self, method: str, path: str, body: Manifest, query: object = None) -> Manifest:
        """Answer one request."""
        await asyncio.sleep(0)
        self._versions += 1
        made = cast(Manifest, over_the_wire(body))
        meta = {"uid": str(self._versions), "resourceVersion": str(self._versions), "namespace": path.split("/")[4]}
        made["metadata"] |= {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}
        return made


class Job:
    """A job with launchers in a simulated cluster, and the operator's store of its children."""

    def __init__(self, workers: int) -> None:
        self._cluster = SimulatedCluster(JobBuilder().in_place().workers(workers).storage())
        self._cluster.api.job["status"] = dict(BEFORE_PODS)
        self._children = _children(Accepting())
        self._create()

    def _create(self) -> None:
        api, step = self._cluster.api, self.decide()
        self._write(step)
        assert step.create_secret is not None and step.create_service is not None
        api.create_secret(step.create_secret)
        api.create_service(step.create_service)
        for pod in step.create_pods:
            # No pass reads the environment, which would take gigabytes in the simulated API server.
            pod["spec"]["containers"][0]["env"] = []
            api.create_pod(pod)
        self._cluster.kubelet.start_all(launched=False)
        self._see()
        step = self.decide()
        assert step.status.phase == "Running"
        self._write(step)

    def lose_half(self) -> None:
        """Remove every other pod at once."""
        for name in sorted(self._cluster.api.pods)[1::2]:
            del self._cluster.api.pods[name]
        self._see()

    def accept(self) -> None:
        """Write the status of the next step."""
        self._write(self.decide())

    def observe(self) -> Observed:
        """The operator's observation of the job's children."""
        return self._children.observe(parse_job(self._cluster.api.job))

    def decide(self) -> Step:
        """The decision of one pass, computed as in the operator."""
        job = parse_job(self._cluster.api.job)
        seen = msgspec.structs.replace(self._children.observe(job), launcher_report=self._cluster.launcher_report)
        return plan(job, seen, self._cluster.now, IMAGE)

    def _write(self, step: Step) -> None:
        self._cluster.api.put_status(self._cluster.api.job["metadata"]["resourceVersion"], step.status)

    def _see(self) -> None:
        self._children = _children(Accepting())
        seen, meta = self._cluster.api.snapshot(), self._cluster.api.job["metadata"]
        for store, raws in ((self._children.pods, seen.pods), (self._children.services, seen.services)):
            for number, raw in enumerate(raws):
                raw["metadata"] |= {"namespace": meta["namespace"], "resourceVersion": str(number + 1)}
                store.upsert(raw)
        nodes = [each | {"metadata": each["metadata"] | {"resourceVersion": "1"}} for each in seen.nodes or ()]
        self._children.nodes.replace("", nodes, 1)


def _children(api: Accepting) -> Children:
    stand_in = cast(Api, api)
    return Children(stand_in, ChildStore(), ChildStore(), NodeStore(stand_in))


def cpu_ms(work: Callable[[], object], times: int) -> float:
    """The least CPU time of `work` in `times` runs, in milliseconds."""
    taken = []
    for _ in range(times):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken) * 1000


def costs(workers: int, times: int) -> dict[str, float]:
    """Milliseconds of a pass over a job, by the job's state."""
    job, found = Job(workers), {}
    found["all train"] = cpu_ms(job.decide, times)
    job.lose_half()
    found["half lost"] = cpu_ms(job.decide, times)
    job.accept()
    found["successors on their way"] = cpu_ms(job.decide, times)
    return found


def memory_mib(workers: int) -> float:
    """The peak growth of the resident set while the job's pods are created, in MiB."""
    cluster = SimulatedCluster(JobBuilder().in_place().workers(workers).storage())
    cluster.api.job["status"] = dict(BEFORE_PODS)
    job, children = parse_job(cluster.api.job), _children(Accepting())
    before = _highest()
    asyncio.run(children.create(job, plan(job, children.observe(job), cluster.now, IMAGE)))
    assert len(children.observe(job).pods) == workers
    return (_highest() - before) / MIB


def _highest() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=5000)
    parser.add_argument("--times", type=int, default=10)
    asked = parser.parse_args()
    result: dict[str, Any] = {"workers": asked.workers, "creation_mib": round(memory_mib(asked.workers), 1)}
    print(f"{asked.workers} workers: the creation takes {result['creation_mib']} MiB")
    small, large = costs(asked.workers // 4, asked.times), costs(asked.workers, asked.times)
    for state, ms in large.items():
        growth = ms / small[state] / 4
        print(f"{state}: {ms:.0f} ms of CPU a pass, growth {growth:.2f}")
        result[state.replace(" ", "_")] = {"ms": round(ms, 1), "growth": round(growth, 2)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

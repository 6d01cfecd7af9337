"""Two operators by mistake, one of which sees the job as it was before: it must not undo what the other has done."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from tests.support.fake_api_server import Answer, FakeServer, listing, serving
from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.kube.api import Api
from tftraining_api.model.job import Job
from tftraining_api.model.names import ANNOTATION_ORDERS, Key
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.events import Events
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.launcher_reports import LauncherReports, through_api_server
from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.quotas import Quotas
from tftraining_operator.cluster.work_queue import WorkQueue
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.step import PodAnnotation, PodDeletion, PodFailure, Step
from tftraining_operator.reconcile import Dependencies, Reconciler

Manifest = dict[str, Any]


class AnOperator:
    """One operator that has seen the cluster as it is given to it, and nothing since."""

    def __init__(self, api: Api, cluster: SimulatedCluster, job: Manifest) -> None:
        self.jobs, self.queue = Jobs(api), WorkQueue()
        meta = job["metadata"]
        self.key = Key(meta["namespace"], meta["name"])
        self.children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        seen = cluster.api.snapshot()
        for store, raws in ((self.children.pods, seen.pods), (self.children.services, seen.services)):
            for raw in raws:
                store.upsert(raw)
        self.jobs.update(job, False, lambda key: None)
        self.launchers = LauncherReports(through_api_server(api), self.queue.add, max_long_polls=1)
        self.quotas = Quotas(api, self.queue.add, everywhere=True)
        watched = (self.jobs, self.children, self.launchers, self.quotas)
        dependencies = Dependencies(*watched, Events(api, "test"), Metrics(self.jobs.all, Counter()))
        self.reconcile = Reconciler(dependencies, self.queue, lambda job, seen, now: plan(job, seen, now, "operator:1"))
        self.reconcile.clock = lambda: cluster.now

    async def close(self) -> None:
        self.queue.close()
        await self.launchers.close()
        await self.quotas.close()


def writes(fake: FakeServer) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in fake.asked if method not in ("GET", "WATCH")]


def job_path(key: Key) -> str:
    return f"/apis/tftraining.dev/v1/namespaces/{key.namespace}/tftrainingjobs/{key.name}"


async def test_an_operator_with_an_outdated_job_leaves_the_orders_of_the_other_one_alone() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    before = cluster.api.snapshot().job
    cluster.api.edit("restartPolicy.maxRestarts", 7)
    cluster.run()
    now = cluster.api.snapshot().job
    chief = cluster.api.pods["mnist-worker-0"]["metadata"]
    assert '"maxRestarts": 7' in chief["annotations"][ANNOTATION_ORDERS]
    async with serving() as (fake, api):
        operators = [AnOperator(api, cluster, now), AnOperator(api, cluster, before)]
        key = operators[0].key
        fake.on(f"GET {job_path(key)}", Answer(now))
        try:
            for _ in range(2):
                for each in operators:
                    await each.reconcile(key)
            assert writes(fake) == []
            assert fake.count(f"GET {job_path(key)}") == 1, "only who wants to change something asks"
            assert operators[1].jobs.get(key) == now
        finally:
            for each in operators:
                await each.close()


@pytest.mark.parametrize(
    "step",
    [
        {"delete_pods": (PodDeletion("mnist-worker-1", "uid", 1),)},
        {"fail_pods": (PodFailure("mnist-worker-1", "uid", "1", "given up"),)},
        {"annotate_pod": PodAnnotation("mnist-worker-0", "uid", "1", {"a": "b"})},
        {"delete_service": True},
        {"delete_auxiliary_objects": ({"kind": "NetworkPolicy", "metadata": {"name": "x"}},)},
    ],
)
async def test_nothing_is_done_to_a_child_for_a_job_that_has_changed(step: dict[str, Any]) -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    before = cluster.api.snapshot().job
    cluster.api.edit("restartPolicy.maxRestarts", 7)

    def any_step(job: Job, seen: Observed, now: object) -> Step:
        return msgspec.structs.replace(Step(job.status), **step)

    async with serving() as (fake, api):
        operator = AnOperator(api, cluster, before)
        fake.on(f"GET {job_path(operator.key)}", Answer(cluster.api.snapshot().job))
        fake.on(f"GET /api/v1/namespaces/{operator.key.namespace}/pods", listing(cluster.api.snapshot().pods, 9))
        operator.reconcile._plan = any_step
        try:
            await operator.reconcile(operator.key)
        finally:
            await operator.close()
        assert writes(fake) == []


async def test_a_patch_names_the_pod_as_it_was_seen_and_one_that_has_changed_is_left_to_the_next_pass() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    chief = cluster.api.pods["mnist-worker-0"]["metadata"]
    chief["annotations"][ANNOTATION_ORDERS] = '{"maxRestarts": 99}'
    chief["resourceVersion"] = "12"
    job = cluster.api.snapshot().job
    async with serving() as (fake, api):
        operator = AnOperator(api, cluster, job)
        fake.on(f"GET {job_path(operator.key)}", Answer(job))
        path = f"/api/v1/namespaces/{operator.key.namespace}/pods/mnist-worker-0"
        fake.on(f"PATCH {path}", Answer({"message": "the object has been modified"}, 409))
        try:
            await operator.reconcile(operator.key)
        finally:
            await operator.close()
        assert writes(fake) == [("PATCH", path)]
        sent = fake.sent[0]["metadata"]
        assert (sent["uid"], sent["resourceVersion"]) == (chief["uid"], "12")

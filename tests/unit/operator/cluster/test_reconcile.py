"""One pass when an answer is bad or late: what is done, in which order. What to do is tested in tests/unit/operator."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from tests.support.fake_api_server import Answer, FakeServer, listing, pod, serving
from tests.unit.operator.cluster.test_refused_creations import JOB, NOW, OWN
from tftraining_api.kube.api import ApiError
from tftraining_api.model.job import Job, dump_status
from tftraining_api.model.names import ANNOTATION_GANG, Key
from tftraining_api.model.status import History, Progress, Status
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import LEAST_CONCURRENCY, Children
from tftraining_operator.cluster.events import Events
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.launcher_reports import LauncherReports, through_api_server
from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.quotas import Quotas
from tftraining_operator.cluster.work_queue import Lane, WorkQueue
from tftraining_operator.model.conditions import with_condition
from tftraining_operator.model.observed import Observed
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.refused_writes import judge
from tftraining_operator.plan.status_writes import longest_delay
from tftraining_operator.plan.step import Planner, PodDeletion, Step
from tftraining_operator.reconcile import Dependencies, Reconciler

KEY = Key("ns", "job")
CORE = "/api/v1/namespaces/ns"
PATH = "/apis/tftraining.dev/v1/namespaces/ns/tftrainingjobs/job"


def job(version: int, uid: str = "mine", **status: Any) -> dict[str, Any]:
    container = {"name": "tensorflow", "image": "i", "command": ["python", "c"]}
    spec = {"replicaSpecs": {"worker": {"replicas": 1}}, "template": {"spec": {"containers": [container]}}}
    meta = {"name": "job", "namespace": "ns", "uid": uid, "generation": 1, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": spec, "status": status}


@asynccontextmanager
async def reconciling(
    decide: Planner | None = None,
) -> AsyncIterator[tuple[FakeServer, Jobs, Reconciler]]:
    async with serving() as (fake, api):
        jobs, queue = Jobs(api), WorkQueue()
        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        launchers = LauncherReports(through_api_server(api), queue.add, max_long_polls=1)
        quotas = Quotas(api, queue.add, everywhere=True)
        dependencies = Dependencies(
            jobs, children, launchers, quotas, Events(api, "test"), Metrics(jobs.all, Counter())
        )
        try:
            yield fake, jobs, Reconciler(dependencies, queue, decide or partial(plan, image="image"))
        finally:
            queue.close()
            await launchers.close()
            await quotas.close()


def writes(fake: FakeServer) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _ in fake.asked if method not in ("GET", "WATCH")]


async def test_nothing_is_made_for_a_job_that_is_gone_though_the_watch_has_not_told() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, keras="Own"), False, lambda key: None)
        await reconcile(KEY)
        assert writes(fake) == [] and jobs.get(KEY) is None


async def test_nothing_is_made_for_a_job_that_was_replaced_meanwhile() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, keras="Own"), False, lambda key: None)
        fake.on(f"GET {PATH}", Answer(job(9, uid="another")))
        await reconcile(KEY)
        assert writes(fake) == []
        known = jobs.get(KEY)
        assert known is not None and known["metadata"]["uid"] == "another"


async def test_a_status_write_that_is_turned_away_stops_the_pass() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(
            job(5, phase="Starting", attempt=1, lastRestart={"time": "2026-01-01T00:00:00Z"}), False, lambda key: None
        )
        fake.on(f"GET {CORE}/pods", listing([], 5))
        fake.on(f"PUT {PATH}/status", Answer({"message": "conflict"}, 409))
        fake.on(f"GET {PATH}", Answer(job(6, phase="Starting", attempt=1)))
        await reconcile(KEY)
        assert writes(fake) == [("PUT", f"{PATH}/status")]


async def test_a_status_that_cannot_be_read_is_never_replaced() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, phase="Resizing", newer=1), False, lambda key: None)
        fake.on(f"PATCH {PATH}/status", Answer({"message": "conflict"}, 409), Answer(job(6, phase="Resizing")))
        fake.on(f"GET {PATH}", Answer(job(5, phase="Resizing", newer=1)))
        for _ in range(2):
            await reconcile(KEY)
        assert writes(fake) == [("PATCH", f"{PATH}/status")] * 2


async def test_what_a_patch_of_one_condition_does_not_send_does_not_count_as_dropped() -> None:
    def decide(job: Job, observed: Observed, now: datetime) -> Step:
        condition = with_condition(Status(), "Unreadable", "True", ("SpecUnreadable", "why"), now).conditions[0]
        return Step(status=Status(phase="Running", message="all"), patch_condition=condition)

    async with reconciling(decide) as (fake, jobs, reconcile):
        jobs.update(job(5), False, lambda key: None)
        fake.on(f"PATCH {PATH}/status", Answer(job(6)))
        await reconcile(KEY)
        assert writes(fake) == [("PATCH", f"{PATH}/status")]
        assert reconcile._memories[KEY].dropped == frozenset()


async def test_a_new_job_is_made_service_first_and_a_refusal_stops_the_rest() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, keras="Own"), False, lambda key: None)
        fake.on(f"GET {PATH}", Answer(job(5, keras="Own")))
        fake.on(f"POST {CORE}/services", Answer({"message": "no room"}, 503))
        await reconcile(KEY)
        assert writes(fake) == [("POST", f"{CORE}/services")]
        assert reconcile._memory(msgspec.structs.replace(JOB), NOW).refusal is not None


async def test_another_job_of_the_name_does_not_inherit_a_refusal() -> None:
    async with reconciling() as (_, _, reconcile):
        reconcile._memory(JOB, NOW).refusal = judge("pod/job-worker-0", 422, "no", 1, NOW)
        assert reconcile._memory(JOB, NOW).refusal is not None
        assert reconcile._memory(msgspec.structs.replace(JOB, uid="another"), NOW).refusal is None


def training(version: int) -> dict[str, Any]:
    """A job of one worker that trains, without a launcher."""
    one = {"desired": 1, "active": 1, "ready": 1}
    raw = job(version, phase="Running", attempt=1, ready="1/1", replicas={"worker": one}, observedGeneration=1)
    raw["spec"]["restartPolicy"] = {"mode": "Recreate"}
    return raw


def member(version: int, **status: Any) -> dict[str, Any]:
    """Its pod."""
    raw = pod("job-worker-0", version)
    names = {"role": "worker", "index": "0", "attempt": "1"}
    raw["metadata"]["labels"] |= {f"tftraining.dev/{name}": value for name, value in names.items()}
    raw["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {ANNOTATION_GANG: "worker=1"}}
    raw["metadata"]["ownerReferences"] = [{"kind": "TFTrainingJob", "name": "job", "uid": "mine", "controller": True}]
    return raw | {"spec": {"nodeName": "a"}, "status": {"phase": "Running", **status}}


def noting(steps: list[Step]) -> Planner:
    """The planner, which notes the steps that it plans."""

    def decide(job: Job, seen: Observed, now: datetime) -> Step:
        steps.append(plan(job, seen, now, image="image"))
        return steps[-1]

    return decide


async def test_a_gang_is_not_restarted_because_the_watch_of_pods_lags() -> None:
    """A new leader whose cache has no pod yet: all of them seem to be gone."""
    steps: list[Step] = []
    async with reconciling(noting(steps)) as (fake, jobs, reconcile):
        jobs.update(training(5), False, lambda key: None)
        fake.on(f"GET {CORE}/pods", listing([member(4)], 5))
        fake.on(f"GET {PATH}", Answer(training(5)))
        fake.on(f"PUT {PATH}/status", Answer({}, 409))
        for _ in range(2):
            await reconcile(KEY)
        assert [each.status.restarts.recreated for each in steps] == [1, 0, 0]
        assert fake.count(f"GET {CORE}/pods") == 1
        assert [method for method, path in writes(fake) if "pods" in path] == []
        assert all("resourceVersion" not in query for _, path, query in fake.asked if path == f"{CORE}/pods")


@pytest.mark.parametrize("status", [403, 500])
async def test_what_cannot_be_read_is_not_acted_upon(status: int) -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(training(5), False, lambda key: None)
        fake.on(f"GET {CORE}/pods", Answer({}, status))
        with pytest.raises(ApiError):
            await reconcile(KEY)
        assert writes(fake) == []


def unready(version: int, ready: str = "Unknown") -> dict[str, Any]:
    """The node of the pod, which has not been ready for long, or is ready again."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    meta = {"name": "a", "resourceVersion": str(version), "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "status": {"conditions": [condition]}}


@pytest.mark.parametrize("ready", ["True", "Unknown"])
async def test_a_pod_is_not_given_up_because_the_watch_of_nodes_is_silent(ready: str) -> None:
    steps: list[Step] = []
    async with reconciling(noting(steps)) as (fake, jobs, reconcile):
        children, now = reconcile._children, datetime(2026, 1, 1, tzinfo=UTC)
        children.nodes.clock = reconcile.clock = lambda: now
        jobs.update(training(5), False, lambda key: None)
        children.pods.upsert(member(4))
        children.nodes.replace("", [unready(3)], 4)
        fake.on(f"GET {CORE}/pods", listing([member(4)], 5))
        fake.on("GET /api/v1/nodes/a", Answer(unready(3 + (ready == "True"), ready)))
        fake.on(f"GET {PATH}", Answer(training(5)))
        fake.on(f"PUT {PATH}/status", Answer({}, 409))
        now += timedelta(hours=1)
        await reconcile(KEY)
        assert fake.count("GET /api/v1/nodes/a") == 1
        assert (children.nodes.of({"a"}).named["a"].is_ready) == (ready == "True")  # type: ignore[union-attr]
        assert [each.status.restarts.recreated for each in steps] == [1, ready == "Unknown"]


async def test_a_deletion_by_force_is_of_the_pod_as_it_was_read() -> None:
    forced = PodDeletion("job-worker-0", "uid", 0, "7")
    async with reconciling(lambda job, seen, now: Step(job.status, delete_pods=(forced,))) as (fake, jobs, reconcile):
        jobs.update(training(5), False, lambda key: None)
        fake.on(f"GET {CORE}/pods", listing([], 5))
        fake.on(f"GET {PATH}", Answer(training(5)))
        await reconcile(KEY)
        assert fake.sent[-1]["preconditions"] == {"uid": "uid", "resourceVersion": "7"}
        assert fake.count(f"GET {CORE}/pods") == 1


async def test_nothing_is_remembered_of_a_job_that_is_gone() -> None:
    async with reconciling() as (_, _, reconcile):
        reconcile._memory(JOB, NOW)
        await reconcile(KEY)
        assert not reconcile._memories


@pytest.mark.parametrize(
    ("ago", "written"), [(0.5, []), (1.5, [("PUT", f"{PATH}/status")]), (-3600, [("PUT", f"{PATH}/status")])]
)
async def test_counts_wait_for_a_second_and_not_for_a_clock_that_was_set_back(
    ago: float, written: list[tuple[str, str]]
) -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, phase="Running", attempt=1, ready="1/2"), False, lambda key: None)
        fake.on(f"PUT {PATH}/status", Answer(job(6)))
        reconcile._memory(JOB, NOW - timedelta(seconds=ago))
        reconcile.clock = lambda: NOW
        reconcile._plan = lambda job, seen, now: Step(msgspec.structs.replace(job.status, ready="2/2"))
        await reconcile(KEY)
        assert writes(fake) == written


@pytest.mark.parametrize(("ago", "training", "count"), [(9, 1, 0), (11, 1, 1), (66, 100_000, 0), (6700, 100_000, 1)])
async def test_progress_waits_for_its_turn_and_is_looked_at_again_then(
    ago: float, training: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reconciling() as (fake, jobs, reconcile):
        monkeypatch.setattr(LauncherReports, "followed", training)
        jobs.update(job(5, phase="Running", attempt=1, progress={"step": 1}), False, lambda key: None)
        fake.on(f"PUT {PATH}/status", Answer(job(6)))
        reconcile._memory(JOB, NOW - timedelta(seconds=ago))
        reconcile.clock = lambda: NOW
        reconcile._plan = lambda job, seen, now: Step(msgspec.structs.replace(job.status, progress=Progress(step=2)))
        await reconcile(KEY)
        assert len(writes(fake)) == count
        # Written or not, the news until the next turn start no pass of their own.
        assert KEY in reconcile._queue._timers
        reconcile._queue.add_within(KEY, longest_delay(training).total_seconds())
        assert reconcile._queue.depth == 0


@pytest.mark.parametrize(("change", "waiting"), [({"phase": "Restarting"}, 1), ({"progress": Progress(step=2)}, 0)])
async def test_a_written_status_is_looked_at_once_more_unless_it_tells_of_progress(
    change: dict[str, Any], waiting: int
) -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, phase="Running", attempt=1, progress={"step": 1}), False, lambda key: None)
        fake.on(f"PUT {PATH}/status", Answer(job(6)))
        reconcile._memory(JOB, NOW - timedelta(hours=1))
        reconcile.clock = lambda: NOW
        reconcile._plan = lambda job, seen, now: Step(msgspec.structs.replace(job.status, **change))
        await reconcile(KEY)
        assert writes(fake) == [("PUT", f"{PATH}/status")]
        assert reconcile._queue.depth == waiting


async def test_a_pass_gives_way_to_others_and_the_next_one_goes_on_where_it_was() -> None:
    def decide(job: Job, seen: Observed, _: datetime) -> Step:
        pods = tuple(pod(f"p-{number}", 10 + number) for number in range(3 * LEAST_CONCURRENCY))
        return Step(status=job.status, create_pods=pods, create_secret={"metadata": {"name": "key"}})

    async with reconciling(decide) as (fake, jobs, reconcile):
        jobs.update(job(5), False, lambda key: None)
        fake.on(f"GET {PATH}", Answer(job(5)))
        fake.on(f"POST {CORE}/secrets", Answer({}))
        fake.on(f"POST {CORE}/pods", Answer(pod("p", 10)))
        # The queue has no workers: this key keeps waiting.
        reconcile._queue.add(Key("ns", "other"))
        for passes in (1, 2):
            await reconcile(KEY)
            created = Counter(path.rpartition("/")[2] for method, path, _ in fake.asked if method == "POST")
            assert created == {"pods": passes * LEAST_CONCURRENCY, "secrets": 1}
            assert reconcile.lane(KEY) == Lane.INTERRUPTED


async def test_a_job_is_new_until_its_first_pass() -> None:
    async with reconciling() as (_, jobs, reconcile):
        jobs.update(job(5), False, lambda key: None)
        assert reconcile.lane(KEY) == Lane.NEW and reconcile.reconciled == 0
        await reconcile(KEY)
        assert reconcile.lane(KEY) == Lane.OTHER and reconcile.reconciled == 1


async def test_a_history_that_an_older_definition_of_the_resource_drops_causes_no_write() -> None:
    history = History(start_time=NOW, steps=(1,), epochs=(1,), seconds=(0.0,), metrics={"loss": (0.5,)})
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(job(5, phase="Running", attempt=1, progress={"step": 1}), False, lambda key: None)
        fake.on(f"PUT {PATH}/status", Answer(job(6, phase="Running", attempt=1, progress={"step": 2})))
        reconcile.clock = lambda: NOW + timedelta(days=1)
        reconcile._plan = lambda job, seen, now: Step(
            msgspec.structs.replace(job.status, progress=Progress(step=2), history=history)
        )
        reconcile._memory(JOB, NOW)
        await reconcile(KEY)
        reconcile._queue.close()  # a worker clears the timer of a job before its pass
        for _ in range(2):
            await reconcile(KEY)
        assert len(writes(fake)) == 1
        assert KEY not in reconcile._queue._timers


def expired(version: int, **run_policy: int) -> dict[str, Any]:
    """A job that was done long ago, with nothing left to do for it."""
    long_ago = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": "Done", "message": "", "lastTransitionTime": long_ago}
        for kind in ("Succeeded", "Cleaned")
    ]
    done: dict[str, Any] = {"phase": "Succeeded", "attempt": 1, "completionTime": long_ago, "observedGeneration": 1}
    raw = job(version, **done, conditions=conditions)
    raw["spec"]["runPolicy"] = run_policy
    return raw


async def test_a_job_whose_time_has_come_is_deleted_even_if_its_status_was_just_written() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(expired(5, ttlSecondsAfterFinished=1), False, lambda key: None)
        fake.on(f"DELETE {PATH}", Answer({}))
        await reconcile(KEY)
        assert writes(fake) == [("DELETE", PATH)]


async def test_a_job_that_is_changed_while_it_is_deleted_is_looked_at_again() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(expired(5, ttlSecondsAfterFinished=1), False, lambda key: None)
        fake.on(f"DELETE {PATH}", Answer({"message": "the resourceVersion does not match"}, 409))
        fake.on(f"GET {PATH}", Answer(expired(6)))
        await reconcile(KEY)
        assert writes(fake) == [("DELETE", PATH)]
        await reconcile(KEY)
        assert len(writes(fake)) == 1, "its time is not limited any more"


async def test_a_job_that_may_not_be_deleted_says_so_and_is_tried_again_later() -> None:
    async with reconciling() as (fake, jobs, reconcile):
        jobs.update(expired(5, ttlSecondsAfterFinished=1), False, lambda key: None)
        fake.on(f"DELETE {PATH}", Answer({"message": "not today"}, 403))
        fake.on(f"PUT {PATH}/status", Answer(expired(6, ttlSecondsAfterFinished=1)))
        reconcile._memory(JOB, NOW)
        reconcile.clock = lambda: NOW + timedelta(days=1)
        await reconcile(KEY)
        await reconcile(KEY)
        assert writes(fake) == [("DELETE", PATH), ("PUT", f"{PATH}/status")]
        reconcile.clock = lambda: NOW + timedelta(days=2)
        await reconcile(KEY)
        assert writes(fake)[2:] == [("DELETE", PATH)]
        assert reconcile._memory(JOB, NOW).refused_changes["DELETE tftrainingjob/job"].tries == 2


async def test_a_try_of_a_job_that_a_quota_holds_is_a_look_at_the_job_and_one_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reconciling() as (fake, jobs, reconcile):
        now, raw = NOW, job(5, keras="Own")
        raw["spec"]["replicaSpecs"]["worker"]["replicas"] = 40

        async def store(_: Key, seen: dict[str, Any], status: Status) -> None:
            version = str(int(seen["metadata"]["resourceVersion"]) + 1)
            take({**seen, "metadata": {**seen["metadata"], "resourceVersion": version}, "status": dump_status(status)})

        def take(stored: dict[str, Any]) -> None:
            jobs.update(stored, False, lambda key: None)
            fake.on(f"GET {PATH}", Answer(stored))

        take(raw)
        monkeypatch.setattr(jobs, "write_status", store)
        reconcile.clock = lambda: now
        quota = {"message": "pods is forbidden: exceeded quota: q, requested: pods=1, used: pods=9, limited: pods=9"}
        fake.on(f"POST {CORE}/pods", Answer(quota, 403))
        made = {"kind": "Service", **pod("job", 7)}
        made["metadata"]["ownerReferences"] = [OWN]
        fake.on(f"POST {CORE}/services", Answer(made))
        fake.on(f"POST {CORE}/secrets", Answer({}))
        for tries in range(8):
            now += timedelta(seconds=61)
            fake.asked.clear()
            await reconcile(KEY)
            # The watch of the quotas runs beside the passes, and lists again in its own time.
            asked = [method for method, path, _ in fake.asked if not path.endswith("/resourcequotas")]
            # The first ones make the rest, and tell of the quota.
            assert tries < 3 or asked == ["GET", "POST"]


async def test_failing_passes_show_on_the_job_and_the_first_that_succeeds_takes_that_back() -> None:
    broken = True

    def decide(job: Job, observed: Observed, now: datetime) -> Step:
        if broken:
            raise KeyError("bug")
        return Step(status=job.status)

    async with reconciling(decide) as (fake, jobs, reconcile):
        other = {"type": "Ready", "status": "True", "reason": "Training", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        jobs.update(job(5, phase="Running", conditions=[other]), False, lambda key: None)
        reconcile.clock = lambda: NOW
        fake.on(f"PATCH {PATH}/status", Answer(job(6, phase="Running", conditions=[other, {"type": "ReconcileError"}])))
        for failures in range(1, 4):
            with pytest.raises(KeyError) as error:
                await reconcile(KEY)
            await reconcile.report_failure(KEY, error.value, failures)
        assert writes(fake) == [("PATCH", f"{PATH}/status")]
        (sent,) = fake.sent
        assert sent["metadata"] == {"uid": "mine", "resourceVersion": "5"}
        ready, told = sent["status"]["conditions"]
        assert ready == other and (told["type"], told["status"]) == ("ReconcileError", "True")
        assert told["reason"] == "InternalError" and "KeyError('bug')" in told["message"]

        broken = False
        fake.on(f"PATCH {PATH}/status", Answer(job(7, phase="Running", conditions=[other])))
        await reconcile(KEY)
        await reconcile(KEY)
        assert len(writes(fake)) == 2
        assert fake.sent[1]["status"] == {"conditions": [other]}


async def test_a_job_that_changes_while_its_condition_is_removed_is_looked_at_again() -> None:
    async with reconciling(lambda job, observed, now: Step(status=job.status)) as (fake, jobs, reconcile):
        since = "2026-01-01T00:00:00Z"
        condition = {"type": "ReconcileError", "status": "True", "reason": "NoAnswer", "lastTransitionTime": since}
        jobs.update(job(5, conditions=[condition]), False, lambda key: None)
        fake.on(f"PATCH {PATH}/status", Answer({"message": "changed"}, 409), Answer(job(7)))
        fake.on(f"GET {PATH}", Answer(job(6, conditions=[condition])))
        await reconcile(KEY)
        await reconcile(KEY)
        assert [each["metadata"]["resourceVersion"] for each in fake.sent] == ["5", "6"]

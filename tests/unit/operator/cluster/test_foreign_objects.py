"""Objects of others with any values in them: each costs itself at most, and the other jobs have their passes.

A seeded generator changes the objects as they enter the caches, and the readers behind them. Odd values keep their type
(what an API server may send: a time of the year 0, a grace period of centuries): no reading and no pass fails then.
Wrong values may have any type: the watch, the store and the passes over other jobs go on.
"""

import asyncio
import copy
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest

from tftraining_api.model.job import dump_status, parse_job
from tftraining_api.model.names import Key
from tftraining_api.model.status import Phase, Status
from tftraining_api.model.times import FIRST, LAST, parse_time
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.metrics import Metrics
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.quotas import QuotaRequest, Quotas
from tftraining_operator.cluster.reflector import Reflector
from tftraining_operator.model.launcher_report import parse_report
from tftraining_operator.model.observed import LauncherReport, parse_pod
from tftraining_operator.plan.planner import plan
from tftraining_operator.plan.step import Step

Manifest = dict[str, Any]
NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
THEN, UID, NODE = "2026-03-01T12:00:00Z", "uid-of-mine", "node-a"
TIMES = (
    "0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "1801-05-30T04:34:53Z",
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "2026-03-01T12:59:59.999999999Z", "2318-06-09T00:00:00Z",
)  # fmt: skip
WORDS = ("", "True", "False", "Unknown", "Ready", "x" * 5000, "é\n", "exceeded quota: q, requested: pods=9e99, used: ")
INT32 = (0, -1, 2**31 - 1, -(2**31))
NUMBERS = (0, 1, -1, 2**31 - 1, 99_999_999_999, 2**63 - 1, -(2**63))
ANYTHING: tuple[Any, ...] = (
    *TIMES, *WORDS, *NUMBERS, None, True, 1e308, [], {}, [None], {"a": None}, [[]], "[" * 20_000,
)  # fmt: skip
# What the API server itself sets and checks.
IDENTITY = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation")
# The definition bounds it, and so many pods are wanted.
BOUNDED = ("replicas",)


def job(name: str, uid: str) -> Manifest:
    """A training job with a past."""
    container = {"name": "tensorflow", "image": "i", "command": ["python", "c"]}
    past = {"time": THEN, "pod": f"{name}-worker-1", "exitCode": 1, "reason": "Error", "downSeconds": 1.5}
    history = {"startTime": THEN, "steps": [1, 2], "seconds": [0.5, 1.0], "metrics": {"loss": [1.0, 0.5]}}
    return {
        "metadata": {
            "name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1", "generation": 1,
            "creationTimestamp": THEN, "labels": {"kueue.x-k8s.io/queue-name": "q"},
            "annotations": {"tftraining.dev/restartedAt": THEN},
        },
        "spec": {
            "replicaSpecs": {"worker": {"replicas": 2}, "evaluator": {}},
            "storage": {"uri": "gs://bucket/path"}, "launcher": {"terminationGraceSeconds": 5},
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 30}},
            "runPolicy": {
                "activeDeadlineSeconds": 3600, "startDeadlineSeconds": 600, "nodeLostSeconds": 60,
                "ttlSecondsAfterFinished": 60, "evaluatorGraceSeconds": 60, "stallTimeoutSeconds": 60, "suspend": False,
            },
            "restartPolicy": {"maxRestarts": 10, "sameFailureLimit": 3},
        },
        "status": {
            "phase": "Running", "attempt": 1, "startTime": THEN, "ready": "2/2",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": THEN, "reason": "R"}],
            "replicas": {"worker": {"desired": 2, "active": 2, "ready": 2, "highest": 1, "absentIndexes": "1"}},
            "successors": {"worker-1": 1}, "replaced": {"worker-1": "u"}, "acceptedTemplates": {"worker": "a"},
            "admittedTime": THEN, "completionTime": THEN, "observedGeneration": 1,
            "cleanup": {"removed": 1, "failedAttempts": 1},
            "restarts": {
                "counted": 1, "disruptions": 1, "inPlace": 1, "recreated": 1, "budgetUsed": 1, "withoutProgress": 1,
                "podFailures": 1, "epoch": 1, "checkpoint": 1, "sameFailure": {"key": "ab", "count": 1, "since": THEN},
            },
            "lastRestart": past, "history": {**history, "restarts": [{"time": THEN, "reason": "Error"}]},
            "progress": {"epoch": 1, "step": 7, "updatedTime": THEN, "backup": {"step": 5, "time": THEN}},
        },
    }  # fmt: skip


def pod(index: int, owner: str, job: str, ends: bool = False) -> Manifest:
    """A pod at work, or one at its end."""
    state = {"exitCode": 1, "reason": "Error", "startedAt": THEN, "finishedAt": THEN, "message": f"{result()}\nlast"}
    conditions = {"PodScheduled": "True", "Ready": "False", "ContainersReady": "True", "DisruptionTarget": "True"}
    name = f"{job}-worker-{index}"
    deletion = {"deletionTimestamp": THEN, "deletionGracePeriodSeconds": 30}
    labels = {"job-name": job, "role": "worker", "index": str(index), "attempt": "1"}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ns", "uid": f"uid-of-{name}", "resourceVersion": "1",
            "creationTimestamp": THEN, **(deletion if ends else {}),
            "labels": {f"tftraining.dev/{each}": value for each, value in labels.items()},
            "annotations": {
                "tftraining.dev/orders": '{"workers": 2}',
                "tftraining.dev/gang": "worker=2",
                "tftraining.dev/restartedAt": THEN,
            },
            "ownerReferences": [{"kind": "TFTrainingJob", "name": job, "uid": owner, "controller": True}],
        },
        "spec": {"nodeName": NODE},
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "reason": "", "message": "",
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": THEN, "reason": "", "message": ""}
                for kind, value in conditions.items()
            ][:4 if ends else 1],
            "initContainerStatuses": [{"name": "launcher", "state": {"terminated": {**state, "exitCode": 0}}}],
            "containerStatuses": [
                {"name": "tensorflow", "ready": True, "state": {"terminated": state} if ends else {"running": {}}},
                {"name": "side", "image": "i", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}},
            ],
        },
    }  # fmt: skip


def result() -> str:
    ledger = {"in_place": 1, "same_failure": {"key": "ab", "count": 1, "since": 1}}
    ended = {"verdict": "", "reason": "Error", "exitCode": 1, "ledger": ledger, "progress": {"updatedTime": THEN}}
    return "tftraining/1 " + msgspec.json.encode(ended).decode()


def report() -> Manifest:
    last = {"time": THEN, "member": "worker-1", "exitCode": 1, "downSeconds": 1.0, "lostSteps": 5, "lostSeconds": 1.0}
    history = {"startTime": THEN, "steps": [1, 2], "seconds": [0.5, 1.0], "metrics": {"loss": [1.0, 2.0]}}
    return {
        "phase": "Training", "version": 1, "job": {"uid": UID}, "round": 2, "missing": ["worker-1"], "revision": "1",
        "gang": {"size": 2, "full": 2}, "lastRestart": {**last, "resumedFromStep": 2, "resumedFrom": "Memory"},
        "ledger": {"inPlace": 3, "sameFailure": {"key": "ab", "count": 1, "since": 1}},
        "failure": {"member": "worker-1", "exitCode": 1, "reason": "Error", "logTail": "x"},
        "progress": {"epoch": 1, "step": 9, "metrics": {"loss": 0.5}, "stepsPerSecond": 9.5, "updatedTime": THEN},
        "backup": {"step": 8, "time": THEN, "bytes": 8, "seconds": 0.1, "members": 2, "on": True},
        "history": {**history, "restarts": [{"time": THEN, "step": 1, "reason": "Error"}], "after": 0},
    }  # fmt: skip


def node() -> Manifest:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": THEN}
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "timeAdded": THEN}
    meta = {"name": NODE, "resourceVersion": "1", "creationTimestamp": THEN}
    return {"metadata": meta, "spec": {"taints": [taint]}, "status": {"conditions": [ready]}}


def event() -> Manifest:
    about = {"kind": "Pod", "namespace": "ns", "name": "mine-worker-0", "uid": "uid-of-mine-worker-0"}
    meta = {"name": "e", "namespace": "ns", "uid": "e", "resourceVersion": "1"}
    return {"metadata": meta, "involvedObject": about, "type": "Warning", "reason": "FailedMount", "message": "m"}


def quota() -> Manifest:
    meta = {"name": "q", "namespace": "ns", "uid": "q", "resourceVersion": "1"}
    return {"metadata": meta, "status": {"hard": {"pods": "5", "memory": "1Gi"}, "used": {"pods": "5"}}}


def service() -> Manifest:
    raw = pod(1, UID, "mine", ends=True)
    meta = {**raw["metadata"], "name": "mine", "uid": "uid-of-service"}
    return {"kind": "Service", "metadata": meta, "spec": {}, "status": {}}


def lease() -> Manifest:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 14, "leaseTransitions": 3, "renewTime": THEN}
    return {"metadata": {"name": "l", "namespace": "ns", "resourceVersion": "1"}, "spec": spec}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of everything in the object but its identity."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        if path == ("metadata",) and name in IDENTITY:
            continue
        if name not in BOUNDED:
            yield (*path, name)
        yield from places(child, (*path, name))


def odd(rng: random.Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, str):
        return rng.choice(TIMES if value in (THEN, *TIMES) else WORDS)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return type(value)(rng.choice(NUMBERS))
    return value * rng.choice((0, 2)) if isinstance(value, list) else {}


class Mutated:
    """The object with one to three other values, again and again, and always with a newer version."""

    def __init__(self, raw: Manifest, change: Callable[[random.Random, Any], Any]) -> None:
        self._text, self._change, self._version = msgspec.json.encode(raw), change, 1
        self._places = [path for path in places(raw) if path != ("metadata",)]
        self._rng = random.Random(20261126)

    def __next__(self) -> Manifest:
        raw: Manifest = msgspec.json.decode(self._text)
        for *parents, last in self._rng.choices(self._places, k=self._rng.randint(1, 3)):
            place: Any = raw
            with suppress(KeyError, IndexError, TypeError):  # inside of what was changed before
                for each in parents:
                    place = place[each]
                place[last] = self._change(self._rng, place[last])
        self._version += 1
        raw.get("metadata", {})["resourceVersion"] = str(self._version)
        return raw

    def take(self, number: int) -> Iterator[Manifest]:
        return (next(self) for _ in range(number))


def wrong(rng: random.Random, _: Any) -> Any:
    return copy.copy(rng.choice(ANYTHING))


def planned(children: Children, raw: Manifest, said: LauncherReport | None = None) -> Step:
    """The step of a pass over the job."""
    observed = msgspec.structs.replace(children.observe(found := parse_job(raw)), launcher_report=said)
    return plan(found, observed, NOW, image="i")


class Caches:
    """The caches of an operator, with the pods of two jobs."""

    def __init__(self) -> None:
        self.nodes = NodeStore(NO_API)
        self.children = Children(NO_API, ChildStore(), ChildStore(), self.nodes)
        self.quotas = Quotas(NO_API, lambda key: None, everywhere=True)
        self.quotas._held[Key("ns", "mine")] = QuotaRequest("q", {"pods": 1000})
        self.nodes.replace("", [node()], 1)
        for index, name, owner in ((0, "mine", UID), (1, "mine", UID), (0, "other", "o"), (1, "other", "o")):
            self.children.pods.upsert(pod(index, owner, name))

    def of(self, kind: str) -> Any:
        """The cache that the reflector of that kind feeds."""
        known = {"pods": self.children.pods, "services": self.children.services, "events": self.children.warnings}
        return known.get(kind) or {"nodes": self.nodes, "resourcequotas": self.quotas}[kind]


class Feed:
    """An API server with one object, which its list and its watch send again and again, each time with other values."""

    def __init__(self, number: int, raw: Manifest) -> None:
        self._number, self._objects = number, Mutated(raw, wrong)
        self.all_sent = asyncio.Event()

    async def list(self, _: str, __: object, lean: Callable[[Manifest], Manifest]) -> tuple[list[Manifest], int]:
        return [lean(each) for each in self._objects.take(100)], 0

    async def request(self, *_: object, **__: object) -> Manifest:
        return {"metadata": {"resourceVersion": "1"}}

    async def watch(self, *_: object, opened: Callable[[], None]) -> AsyncIterator[Manifest]:
        opened()
        for number, raw in enumerate(self._objects.take(self._number)):
            yield {"type": "DELETED" if number % 5 == 4 else "MODIFIED", "object": raw}
        self.all_sent.set()
        await asyncio.Event().wait()


NO_API: Any = None
KINDS = {
    "pods": pod(1, UID, "mine", ends=True), "services": service(), "nodes": node(), "events": event(),
    "resourcequotas": quota(),
}  # fmt: skip
# Of each of eight kinds; a hundred thousand in all.
NUMBERS_OF_OBJECTS = [1_000, pytest.param(12_500, marks=pytest.mark.slow_fault)]


@pytest.mark.parametrize("number", NUMBERS_OF_OBJECTS)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_object_ends_no_watch_and_changes_nothing_for_others(kind: str, number: int) -> None:
    caches, feed, others = Caches(), Feed(number, KINDS[kind]), job("other", "o")
    before = planned(caches.children, others).status
    api: Any = feed
    reflecting = asyncio.create_task(Reflector(api, kind, "", caches.of(kind), lambda key: None).run())
    await asyncio.wait((reflecting, sent := asyncio.create_task(feed.all_sent.wait())), return_when="FIRST_COMPLETED")
    assert sent.done() and not reflecting.done(), "the watch goes on"
    reflecting.cancel()
    if kind != "nodes":  # both jobs are on this one
        assert planned(caches.children, others).status == before


@pytest.mark.parametrize("number", NUMBERS_OF_OBJECTS)
def test_a_wrong_job_or_report_is_refused_as_such(number: int) -> None:
    own, said, jobs = Mutated(job("mine", UID), wrong), Mutated(report(), wrong), Jobs(NO_API)
    metrics = Metrics(jobs.all, Counter())
    jobs.update(job("other", "o"), False, lambda key: None)
    for raw in own.take(number):
        jobs.update(raw, False, lambda key: None)
        list(metrics.collect())
        with suppress(ValueError):
            parse_report(msgspec.json.encode(next(said)))
    assert planned(Caches().children, jobs.all()[0]).status.phase == "Running"


@pytest.mark.parametrize("number", NUMBERS_OF_OBJECTS)
def test_an_odd_value_hinders_no_pass_over_its_own_job(number: int) -> None:
    caches, beside = Caches(), {kind: Mutated(raw, odd) for kind, raw in KINDS.items()}
    own, reports = Mutated(job("mine", UID), odd), Mutated(report(), odd)
    for phase, raw in zip(itertools.cycle(get_args(Phase)), own.take(number), strict=False):
        raw["status"] = {**(raw.get("status") or {}), "phase": phase}
        for kind, objects in beside.items():
            caches.of(kind).upsert(next(objects))
        said = None
        with suppress(ValueError):  # a number below zero, or a time of the year 0
            said = LauncherReport("uid-of-mine-worker-0", parse_report(msgspec.json.encode(next(reports))))
        status = planned(caches.children, raw, said).status
        left_alone = status.condition("Unreadable")
        assert left_alone is None or left_alone.reason in ("SpecUnreadable", "StatusUnreadable"), left_alone
        msgspec.json.encode(status)


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("policy", [{"suspend": True}, {"activeDeadlineSeconds": 60}], ids=str)
def test_no_time_in_a_report_keeps_a_job_from_its_end(time: str, policy: Manifest) -> None:
    raw, said = job("mine", UID), None
    raw["spec"]["runPolicy"] = policy
    with suppress(ValueError):  # the year 0: no report
        said = parse_report(msgspec.json.encode(report()).replace(THEN.encode(), time.encode()))
    last = LauncherReport("uid-of-mine-worker-0", said) if said is not None else None
    step = planned(Caches().children, raw, last)
    assert step.status.phase in ("Suspended", "Failed") and step.delete_pods
    for each in (step.status.last_restart, *(step.status.history.restarts if step.status.history else ())):
        assert each is None or FIRST <= each.time <= LAST


# What an API server takes, though the last two are no times.
STORED_TIMES = (*TIMES, "2026-03-01T12:00:00.5+23:59", "2026-03-01T12:00:00+99:99", "2026-03-01T12:00:00x5Z")
OF_STATUS = [path for path in places(job("mine", UID)["status"]) if path[-1] != "phase"]


def with_value(raw: Manifest, path: tuple[Any, ...], value: Any) -> Manifest:
    """A copy of the job with another value in its status."""
    raw = copy.deepcopy(raw)
    place: Any = raw["status"]
    for each in path[:-1]:
        place = place[each]
    place[path[-1]] = value
    return raw


@pytest.mark.parametrize(
    ("policy", "phase"), [({"suspend": True}, "Suspended"), ({"activeDeadlineSeconds": 60}, "Failed")], ids=str
)
def test_no_value_in_its_own_status_keeps_a_job_from_its_end(policy: Manifest, phase: str) -> None:
    raw, later = job("mine", UID), timedelta(seconds=60)
    raw["spec"]["runPolicy"] = policy
    for path in OF_STATUS:
        own = raw["status"]
        for each in path:
            own = own[each]
        others = STORED_TIMES if own == THEN else INT32 if isinstance(own, int) else ()
        for other in others:
            spoilt = with_value(raw, path, other)
            status = planned(Caches().children, spoilt).status
            if status.phase != phase:  # a start in the future is one of now
                assert (path, status.start_time) == (("startTime",), NOW), (path, other, status)
                spoilt["status"] = dump_status(status)
                status = plan(parse_job(spoilt), Caches().children.observe(parse_job(spoilt)), NOW + later, "i").status
            assert status.phase == phase and status.condition("Unreadable") is None, (path, other, status)


@pytest.mark.parametrize("time", STORED_TIMES)
def test_a_start_before_the_job_was_created_ends_no_deadline(time: str) -> None:
    raw = with_value(job("mine", UID), ("startTime",), time)
    raw["metadata"]["creationTimestamp"] = "2026-03-01T12:29:30Z"
    raw["spec"]["runPolicy"] = {"activeDeadlineSeconds": 60}
    status = planned(Caches().children, raw).status
    assert status.phase == "Running" and status.start_time is not None
    assert NOW - timedelta(seconds=30) <= status.start_time <= NOW


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31)])
def test_a_count_leaves_room_for_one_more(number: int) -> None:
    raw, caches, names = job("mine", UID), Caches(), ("counted", "recreated", "withoutProgress", "disruptions")
    raw["spec"]["restartPolicy"] = {"maxRestarts": 10, "mode": "Recreate"}
    raw["status"]["restarts"] |= dict.fromkeys(names, number)
    raw["status"]["lastRestart"] = None
    caches.children.pods.discard(pod(0, UID, "mine"))
    restarts = planned(caches.children, raw).status.restarts
    assert restarts.recreated == (1 if number < 0 else 10**9 + 1)
    assert all(0 <= dump_status(Status(restarts=restarts))["restarts"].get(name, 0) < 2**31 for name in names)


def test_a_job_is_left_alone_while_one_of_its_pods_cannot_be_read() -> None:
    caches, raw = Caches(), pod(1, UID, "mine", ends=True)
    spoilt = {**raw, "metadata": {**raw["metadata"], "resourceVersion": "2"}, "status": {"containerStatuses": 5}}
    caches.children.pods.upsert(spoilt)
    step = planned(caches.children, job("mine", UID))
    left_alone = step.status.condition("Unreadable")
    assert left_alone is not None and left_alone.reason == "ChildUnreadable"
    assert left_alone.message.startswith("cannot read pod/mine-worker-1: ")
    assert step.patch_condition == left_alone and not step.touches_children
    assert planned(caches.children, job("other", "o")).status.condition("Unreadable") is None
    raw["metadata"]["resourceVersion"] = "3"
    caches.children.pods.upsert(raw)
    assert planned(caches.children, job("mine", UID)).status.condition("Unreadable") is None


def test_a_grace_period_of_centuries_is_one_that_has_not_ended() -> None:
    # As the API server of Kubernetes 1.34 writes it: its sum of the time and the period has overflowed.
    raw = pod(1, UID, "mine")
    raw["metadata"] |= {"deletionTimestamp": "1801-05-30T04:34:53Z", "deletionGracePeriodSeconds": 99_999_999_999}
    found = parse_pod(raw)
    assert found is not None and found.deletion_deadline == LAST
    assert found.deleted_at == parse_time(THEN), "no deletion precedes the creation"

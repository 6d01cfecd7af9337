"""Which gang gets the room of a quota, and which gives back what it has taken."""

import asyncio
from typing import Any

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.unit.operator.cluster.test_quotas import quota, refused
from tests.unit.operator.cluster.test_storage_admission import World
from tftraining_api.manifests.pod import pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Key
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.quota_admission import QuotaAdmission
from tftraining_operator.model.observed import QuotaHold, Refusal
from tftraining_operator.model.pod_usage import selects, usage_of
from tftraining_operator.plan.step import QuotaAsk


class Namespace(World):
    """Jobs of a namespace with one quota."""

    def __init__(self) -> None:
        super().__init__()
        self.quotas = [quota(1, hard=60, used=0, namespace="ml")]
        self.gangs = QuotaAdmission(self, self.jobs, self.pods, lambda key: self.woken.append(key.name))  # type: ignore[arg-type]

    async def read(self, namespace: str, fresh: bool = False) -> list[Manifest]:
        return self.quotas

    def use(self, used: int, hard: int = 60) -> None:  # type: ignore[override]
        self.quotas = [quota(1, hard, used, namespace="ml")]

    def gang(self, name: str, size: int, year: int) -> Manifest:
        return self.job(name, a_job().workers(size), creationTimestamp=f"{year}-01-01T00:00:00Z")

    def create(self, raw: Manifest, count: int) -> None:
        job = parse_job(raw)
        assert job.spec is not None
        for replica in job.spec.gang[:count]:
            self.pod(raw, made=pod(job, job.spec, replica, "image"))

    def ask(
        self, raw: Manifest, there: int = 0, begins: bool = True, refusal: Refusal | None = None
    ) -> QuotaHold | None:
        job = parse_job(raw)
        assert job.spec is not None
        missing = job.spec.gang[there:]
        return asyncio.run(self.gangs.admit(job, QuotaAsk(missing, begins, there > 0) if missing else None, refusal))

    def done(self, raw: Manifest) -> None:
        asyncio.run(self.gangs.admit(parse_job(raw), None, None))


@pytest.fixture
def ns() -> Namespace:
    return Namespace()


def test_a_gang_that_is_being_created_has_its_room_to_itself(ns: Namespace) -> None:
    first, second = ns.gang("a", 40, 2020), ns.gang("b", 40, 2021)
    assert ns.ask(first) is None and ns.ask(first, there=16) is None
    assert ns.ask(second) == QuotaHold("40 pods wait for room in the quota q: they need pods=40 of 60")
    ns.create(first, 40)
    ns.use(40)
    ns.done(first)
    assert ns.woken == ["b"] and ns.ask(second) is not None
    ns.use(0)
    assert ns.ask(second) is None


def test_of_two_gangs_that_each_hold_a_part_the_younger_gives_back(ns: Namespace) -> None:
    old, young = ns.gang("old", 40, 2020), ns.gang("young", 40, 2021)
    ns.create(old, 22)
    ns.create(young, 38)
    ns.use(60)
    held = [ns.ask(old, 22, refusal=refused()), ns.ask(young, 38, refusal=refused())]
    assert [each and each.gives_back for each in held] == [False, True]
    assert ns.ask(old, 22) is not None
    ns.use(22)
    assert ns.ask(old, 22) is None


def test_one_that_has_trained_gives_nothing_back(ns: Namespace) -> None:
    old, young = ns.gang("old", 40, 2020), ns.gang("young", 21, 2021)
    ns.create(young, 20)
    ns.use(60)
    assert ns.ask(old) is not None
    held = ns.ask(young, 20, begins=False)
    assert held is not None and not held.gives_back
    ns.use(59)
    assert ns.ask(young, 20, begins=False) is None, "a single successor does not queue behind a gang"


def test_a_gang_that_others_leave_no_room_is_named_and_blocks_nobody(ns: Namespace) -> None:
    large, small, ours = ns.gang("large", 40, 2020), ns.gang("small", 5, 2021), ns.gang("ours", 10, 2022)
    ns.create(ours, 10)
    ns.use(10 + 25)
    held = ns.ask(large)
    assert held is not None and "never fit" in held.message
    assert ns.ask(small) is None
    ns.done(small)
    ns.use(10 + 15)
    held = ns.ask(large)
    assert held is not None and "never fit" not in held.message, "it fits once our own job has ended"
    assert ns.ask(small) == QuotaHold("room in the quota q goes to the older job large first")
    ns.gangs.end(Key("ml", "large"))
    assert ns.woken[-1] == "small" and ns.ask(small) is None


def test_what_a_refusal_tells_of_a_pod_counts_for_all(ns: Namespace) -> None:
    """A LimitRange or a webhook gives pods more than their manifests ask for."""
    job = ns.gang("a", 4, 2020)
    ns.quotas[0]["status"] = {"hard": {"requests.cpu": "6"}, "used": {"requests.cpu": "2"}}
    assert ns.ask(job) is None
    held = ns.ask(job, refusal=refused("requests.cpu=1500m"))
    assert held is not None and held.message.endswith("they need requests.cpu=6 of 6, beside what others use")


CPU: dict[str, Any] = {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": 1}}

PRIORITY = {"scopeName": "PriorityClass"}


def test_a_pod_counts_as_the_api_server_counts_it() -> None:
    inits = [{"resources": {"requests": {"cpu": "3"}}}, {"restartPolicy": "Always", "resources": CPU}]
    used = usage_of({"spec": {"containers": [{"resources": CPU}], "initContainers": inits}})
    assert {name: used[name] for name in ("pods", "requests.cpu", "cpu", "limits.cpu")} == {
        "pods": 1000,
        "requests.cpu": 3000,
        "cpu": 3000,
        "limits.cpu": 4000,
    }
    assert used["requests.memory"] == used["memory"] == 2 * 1000 * 2**30
    assert used["requests.nvidia.com/gpu"] == 2000 and "nvidia.com/gpu" not in used


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        ({}, True),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["BestEffort"]}, False),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["x"]}]
                }
            },
            True,
        ),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, False),
        ({"scopes": ["SomethingNew"]}, False),
    ],
)
def test_a_quota_limits_the_pods_of_its_scopes(scopes: Manifest, expected: bool) -> None:
    made = {"spec": {"containers": [{"resources": CPU}], "priorityClassName": "x"}}
    assert selects({"spec": scopes}, made) is expected

"""What is made beside the pods: what the API server's answers to it mean."""

from typing import Any

import pytest

from tests.support.fake_api_server import Answer, serving
from tests.unit.operator.cluster.test_refused_creations import JOB, NOW
from tftraining_operator.cluster.auxiliary_objects import ensure, remove
from tftraining_operator.cluster.errors import WriteRefused
from tftraining_operator.plan.refused_writes import judge

API = "scheduling.volcano.sh/v1beta1"
COLLECTION = f"/apis/{API}/namespaces/ns/podgroups"
GROUP: dict[str, Any] = {
    "apiVersion": API,
    "kind": "PodGroup",
    "metadata": {"name": "job-mine"},
    "spec": {"minMember": 2, "queue": None},
}
EXISTING = Answer({"metadata": {"name": "job-mine", "uid": "u-1"}})
NO_SUCH_RESOURCE = Answer({"reason": "NotFound", "message": "the server could not find the requested resource"}, 404)
NO_SUCH_NAMESPACE = Answer({"reason": "NotFound", "message": 'namespaces "ns" not found'}, 404)


async def test_what_is_there_already_is_brought_up_to_date_unread() -> None:
    async with serving() as (fake, api):
        fake.on(f"POST {COLLECTION}", Answer({}, 201), Answer({"reason": "AlreadyExists"}, 409))
        fake.on(f"PATCH {COLLECTION}/job-mine", EXISTING)
        await ensure(api, JOB, GROUP)
        await ensure(api, JOB, GROUP)
        methods = [method for method, _, _ in fake.asked]
    assert methods == ["POST", "POST", "PATCH", "PATCH"]
    assert fake.sent == [{}, {"metadata": {"uid": "u-1"}, "spec": GROUP["spec"]}], "a change names the object's UID"


async def test_a_group_that_is_being_deleted_is_not_there_for_new_pods() -> None:
    leaving = Answer({"metadata": {"name": "job-mine", "uid": "u-1", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    async with serving() as (fake, api):
        fake.on(f"POST {COLLECTION}", Answer({"reason": "AlreadyExists"}, 409))
        fake.on(f"PATCH {COLLECTION}/job-mine", leaving)
        with pytest.raises(WriteRefused, match="podgroup/job-mine: is being deleted"):
            await ensure(api, JOB, GROUP)
    assert fake.sent == [{}], "it is not changed"


async def test_a_cluster_without_gangs_of_its_own_scheduler_is_told_how_to_get_them() -> None:
    native = {**GROUP, "apiVersion": "scheduling.k8s.io/v1beta1"}
    async with serving() as (fake, api):
        fake.on("POST /apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups", Answer(b"404 page not found\n", 404))
        with pytest.raises(WriteRefused, match="feature gate GenericWorkload; turn that on, or remove"):
            await ensure(api, JOB, native)


async def test_a_deletion_names_the_object_and_a_newer_one_of_the_name_stays() -> None:
    async with serving() as (fake, api):
        fake.on(f"PATCH {COLLECTION}/job-mine", EXISTING)
        fake.on(f"DELETE {COLLECTION}/job-mine", Answer({"reason": "Conflict", "message": "the UID in"}, 409))
        await remove(api, JOB, GROUP)
    assert fake.sent == [{}, {"preconditions": {"uid": "u-1"}}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(b"404 page not found\n", 404), f"the cluster has no PodGroup of {API}: install its scheduler"),
        (NO_SUCH_RESOURCE, f"the cluster has no PodGroup of {API}: install its scheduler"),
        (NO_SUCH_NAMESPACE, 'namespaces "ns" not found'),
        (Answer({"reason": "BadRequest", "message": "the queue is closed"}, 400), "the queue is closed"),
    ],
    ids=["not served", "not served in this version of a group", "no namespace", "refused"],
)
async def test_a_refusal_names_the_child_and_is_never_for_ever(answer: Answer, said: str) -> None:
    async with serving() as (fake, api):
        fake.on(f"POST {COLLECTION}", answer)
        with pytest.raises(WriteRefused) as refused:
            await ensure(api, JOB, GROUP)
    error = refused.value
    assert error.child == "podgroup/job-mine" and error.message.startswith(said)
    assert not judge(error.child, error.status, error.message, 1, NOW).permanent


async def test_a_patch_that_is_refused_is_a_refusal_too() -> None:
    async with serving() as (fake, api):
        fake.on(f"POST {COLLECTION}", Answer({"reason": "AlreadyExists"}, 409))
        fake.on(f"PATCH {COLLECTION}/job-mine", Answer({"reason": "Forbidden", "message": "no"}, 403))
        with pytest.raises(WriteRefused, match="podgroup/job-mine: no"):
            await ensure(api, JOB, GROUP)


async def test_what_is_gone_need_not_be_removed() -> None:
    async with serving() as (fake, api):
        fake.on(f"PATCH {COLLECTION}/job-mine", Answer({}, 404))
        await remove(api, JOB, GROUP)
        fake.on(f"PATCH {COLLECTION}/job-mine", EXISTING)
        fake.on(f"DELETE {COLLECTION}/job-mine", Answer({}, 404))
        await remove(api, JOB, GROUP)
        fake.on(f"DELETE {COLLECTION}/job-mine", Answer({"reason": "Forbidden"}, 403))
        with pytest.raises(WriteRefused) as refused:
            await remove(api, JOB, GROUP)
        assert refused.value.write == "DELETE podgroup/job-mine"

"""What a refusal means, and what an object in the way is."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.fake_api_server import Answer, pod, serving
from tests.support.simulated_cluster.builders import a_job
from tftraining_api.manifests.pod import pod as pod_manifest
from tftraining_api.model.job import Job
from tftraining_api.model.names import Key, Replica
from tftraining_api.model.status import Status
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import (
    GROUP_DROPPED,
    NOT_OWNED,
    UNLABELLED,
    Children,
    _conflict,
    _labelled_again,
)
from tftraining_operator.cluster.errors import WriteRefused
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.plan.refused_writes import EARLIER, judge
from tftraining_operator.plan.step import PodAnnotation, PodDeletion, Step

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(key=Key("ns", "job"), uid="mine", generation=1, status=Status(), spec=None)
OWN = {"kind": "TFTrainingJob", "name": "job", "uid": "mine", "controller": True}


POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b'"
DENIALS = [(400, ": window"), (403, ": violates PodSecurity"), (413, ""), (422, " without explanation")]


@pytest.mark.parametrize(
    ("status", "message", "permanent"),
    [
        (400, "strict decoding error", True),
        (422, "Invalid value", True),
        (413, "limit is 3145728", True),
        (403, 'pods "a" is forbidden: violates PodSecurity "restricted:latest"', True),
        (403, 'pods "a" is forbidden: exceeded quota', False),
        (403, "because it is being terminated", False),
        (409, "exists", False),
        (404, "namespaces not found", False),
        (429, "slow down", False),
        (500, "webhook", False),
        (0, "Connection refused", False),
        *((code, f'admission webhook "w.example" denied the request{why}', False) for code, why in DENIALS),
        *((code, f"pods 'a' is forbidden: {POLICY} denied request{why}", False) for code, why in DENIALS),
        (422, 'Invalid value: "admission webhook \\"w\\" denied the request"', True),
    ],
)
def test_which_refusals_are_for_ever(status: int, message: str, permanent: bool) -> None:
    assert judge("pod/a", status, message, 1, NOW).permanent is permanent


@pytest.mark.parametrize("child", ["networkpolicy/a", "service/a", "secret/a", "podgroup/a"])
def test_only_a_pod_is_refused_for_what_the_user_wrote(child: str) -> None:
    assert not judge(child, 422, "Invalid value", 1, NOW).permanent


def test_the_pause_doubles_up_to_a_minute_and_messages_are_bounded() -> None:
    pauses = [(judge("pod/a", 500, "", tries, NOW).retry_at - NOW).total_seconds() for tries in (1, 2, 3, 7, 1000)]
    assert pauses == [1, 2, 4, 60, 60]
    assert len(judge("pod/a", 500, "x" * 10**6, 1, NOW).message) == 4096


def test_the_server_may_ask_for_a_longer_pause_and_not_for_a_shorter_one() -> None:
    pauses = [(judge("pod/a", 429, "", tries, NOW, 5.0).retry_at - NOW).total_seconds() for tries in (1, 2, 3, 4, 5)]
    assert pauses == [5, 5, 5, 8, 16]


@pytest.mark.parametrize(
    ("owners", "labels", "why"),
    [
        ([OWN], {"tftraining.dev/role": "worker", "tftraining.dev/index": "0", "tftraining.dev/attempt": "1"}, ""),
        ([OWN], {}, UNLABELLED),
        ([OWN], {"tftraining.dev/job-name": "other"}, UNLABELLED),
        ([], {}, NOT_OWNED),
        ([{**OWN, "controller": False}], {}, EARLIER),
        ([{**OWN, "uid": "another"}], {}, EARLIER),
        ([{**OWN, "kind": "Job", "uid": "another"}], {}, NOT_OWNED),
    ],
)
def test_what_may_be_taken_for_the_child(owners: list[object], labels: dict[str, str], why: str) -> None:
    raw = pod("job-worker-0", 1)
    raw["metadata"] |= {"ownerReferences": owners, "creationTimestamp": "2026-01-01T00:00:00Z"}
    raw["metadata"]["labels"] |= labels
    assert _conflict(JOB, raw) == why


CONTENDED = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'


@pytest.mark.parametrize(
    ("step", "collection"),
    [
        ({"create_pods": ({"metadata": {"name": "a"}},)}, "/api/v1/namespaces/ns/pods"),
        ({"create_secret": {"metadata": {"name": "a"}}}, "/api/v1/namespaces/ns/secrets"),
        (
            {"auxiliary_objects": ({"kind": "PodGroup", "apiVersion": "g/v1", "metadata": {"name": "a"}, "spec": {}},)},
            "/apis/g/v1/namespaces/ns/podgroups",
        ),
    ],
    ids=["pod", "secret", "auxiliary object"],
)
async def test_a_quota_that_many_write_to_is_no_object_conflict(step: dict[str, Any], collection: str) -> None:
    """Kubernetes answers 409 for both; only the reason tells them apart (kubernetes#67761)."""
    async with serving() as (fake, api):
        fake.on(f"POST {collection}", Answer({"reason": "Conflict", "message": CONTENDED}, 409))
        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        with pytest.raises(WriteRefused, match="/a: Operation cannot be fulfilled") as refused:
            await children.create(JOB, Step(status=Status(), **step))
        assert [method for method, _, _ in fake.asked] == ["POST"], "nobody looks for what is not there"
    assert not judge("pod/a", refused.value.status, refused.value.message, 1, NOW).permanent


DRY_RUN_REFUSED = Answer({"message": 'admission webhook "w" does not support dry run'}, 400)


@pytest.mark.parametrize("dry_run", ["kept", "dropped", "refused"])
@pytest.mark.parametrize("created", ["kept", "dropped", "there before", "runs already"])
async def test_no_pod_of_a_gang_stays_where_its_group_is_dropped(dry_run: str, created: str) -> None:
    """A dry run shows it, unless a webhook refuses dry runs, or one API server of several lacks the feature gate."""
    job, spec = a_job().set("runPolicy.scheduling.gang", "Native").parsed()
    wanted = pod_manifest(job, spec, Replica("worker", 0), "operator:1")
    stored = {**wanted["metadata"], "uid": "1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    kept = {**wanted, "metadata": stored}
    bare = {**kept, "spec": {name: each for name, each in kept["spec"].items() if name != "schedulingGroup"}}
    running = {**bare, "status": {"phase": "Running"}}
    pods = f"/api/v1/namespaces/{job.key.namespace}/pods"
    answers = {"kept": Answer(kept, 201), "dropped": Answer(bare, 201), "refused": DRY_RUN_REFUSED}
    exists = Answer({"reason": "AlreadyExists"}, 409)
    async with serving() as (fake, api):
        fake.on(f"POST {pods}", answers[dry_run], answers.get(created, exists))
        fake.on(f"GET {pods}/mnist-worker-0", Answer(running if created == "runs already" else bare))
        fake.on(f"DELETE {pods}/mnist-worker-0", Answer({}))
        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        creation = children.create(job, Step(status=Status(), create_pods=(wanted,)))
        if dry_run != "dropped" and created in ("kept", "runs already"):
            await creation
            assert children.pods.of(job.key)
        else:
            with pytest.raises(WriteRefused, match=r"pod/mnist-worker-0: the API server drops spec\.schedulingGroup"):
                await creation
            assert not children.pods.of(job.key)
            gone = [each["preconditions"] for each in fake.sent]
            assert gone == ([] if dry_run == "dropped" else [{"uid": "1"}])
        posts = ["dryRun" in str(query) for method, _, query in fake.asked if method == "POST"]
        assert posts == ([True] if dry_run == "dropped" else [True, False])
    assert not judge("pod/job-worker-0", 501, GROUP_DROPPED, 1, NOW).permanent, "the job waits"


WEBHOOK = {"message": 'admission webhook "w" denied the request'}


@pytest.mark.parametrize(
    "answer", [Answer(WEBHOOK, 403), Answer(WEBHOOK, 404), Answer(WEBHOOK, 409), Answer({}, 500), Answer(b"page", 502)]
)
async def test_a_refused_change_keeps_no_other_one_from_being_done(answer: Answer) -> None:
    async with serving() as (fake, api):
        for each in ("DELETE", "PATCH"):
            fake.on(f"{each} /api/v1/namespaces/ns/pods/a", answer)
        fake.on("PATCH /apis/g/v1/namespaces/ns/podgroups/a", Answer({"metadata": {"uid": "a"}}))
        fake.on("DELETE /apis/g/v1/namespaces/ns/podgroups/a", answer)
        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        group = {"kind": "PodGroup", "apiVersion": "g/v1", "metadata": {"name": "a"}, "spec": {}}
        step = Step(
            status=Status(),
            delete_pods=(PodDeletion("a", "a", None), PodDeletion("b", "b", None)),
            annotate_pod=PodAnnotation("a", "a", "1", {}),
            delete_auxiliary_objects=(group,),
            delete_service=True,
        )
        children.services.upsert(service())
        refused = await children.change(JOB, step)
        assert [each.write for each in refused] == ["DELETE pod/a", "PATCH pod/a", "DELETE podgroup/a"]
        assert fake.count("DELETE /api/v1/namespaces/ns/pods/b") == 1
        assert not fake.count("DELETE /api/v1/namespaces/ns/services/job"), "by it is known that there is more to do"


def service() -> dict[str, Any]:
    """The Service of the job."""
    raw = pod("job", 1)
    raw["metadata"]["ownerReferences"] = [OWN]
    return {**raw, "kind": "Service"}


ROLE = {"tftraining.dev/role": "worker", "tftraining.dev/index": "0"}
WANTED = {"metadata": {"name": "job-worker-0", "labels": {**ROLE, "tftraining.dev/job-name": "job", "team": "a"}}}
WANTED["metadata"]["labels"]["tftraining.dev/attempt"] = "3"  # type: ignore[index]


@pytest.mark.parametrize(
    ("labels", "attempt"),
    [({}, "0"), ({"tftraining.dev/attempt": "2"}, "2"), (None, "0"), ({"tftraining.dev/attempt": "x"}, "0")],
)
def test_labels_that_are_given_back_never_move_a_pod_into_another_attempt(labels: Any, attempt: str) -> None:
    raw = {"metadata": {"uid": "pod", "labels": labels}}
    given = {**ROLE, "tftraining.dev/job-name": "job", "tftraining.dev/attempt": attempt}
    assert _labelled_again(raw, WANTED) == {"metadata": {"uid": "pod", "labels": given}}


@pytest.mark.parametrize(("code", "told"), [(403, 409), (422, 409), (409, 409), (500, 500)])
async def test_labels_that_cannot_be_given_back_are_tried_again(code: int, told: int) -> None:
    """No answer to it says that the pod's template is wrong."""
    bare = pod("job-worker-0", 5, job="")
    bare["metadata"] |= {"ownerReferences": [OWN], "creationTimestamp": "2026-01-01T00:00:00Z"}
    place = "/api/v1/namespaces/ns/pods"
    async with serving() as (fake, api):
        fake.on(f"POST {place}", Answer({"reason": "AlreadyExists", "message": "exists"}, 409))
        fake.on(f"GET {place}/job-worker-0", Answer(bare))
        fake.on(f"PATCH {place}/job-worker-0", Answer({"message": "not now"}, code))
        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        with pytest.raises(WriteRefused) as refused:
            await children.create(JOB, Step(status=Status(), create_pods=(WANTED,)))
    assert (refused.value.status, judge("pod/a", told, "not now", 1, NOW).permanent) == (told, False)


async def test_labels_that_somebody_takes_away_at_once_are_no_hot_loop() -> None:
    bare = pod("job-worker-0", 5, job="")
    bare["metadata"] |= {"ownerReferences": [OWN], "creationTimestamp": "2026-01-01T00:00:00Z"}
    place = "/api/v1/namespaces/ns/pods"
    async with serving() as (fake, api):
        fake.on(f"POST {place}", Answer({"reason": "AlreadyExists", "message": "exists"}, 409))
        fake.on(f"GET {place}/job-worker-0", Answer(bare))
        fake.on(f"PATCH {place}/job-worker-0", Answer(bare))
        children = Children(api, ChildStore(), ChildStore(), NodeStore(api))
        with pytest.raises(WriteRefused, match="its labels keep disappearing"):
            await children.create(JOB, Step(status=Status(), create_pods=(WANTED,)))
        assert fake.count(f"PATCH {place}/job-worker-0") == 1

"""What kubelets say of pods in their events: whose it is, how long it counts, and what is done with the rest."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.fake_api_server import events, listing, pod, serving
from tftraining_api.model.names import Key
from tftraining_operator.cluster import kubelet_warnings
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.kubelet_warnings import KubeletWarnings
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.reflector import Reflector
from tftraining_operator.model.kubelet_warning import parse_kubelet_warning, with_kubelet_warning
from tftraining_operator.model.observed import ContainerExit, Pod, parse_pod

KEY = Key("ns", "job")
NO_API: Any = None
PULL = 'Failed to pull image "trainer:1": rpc error: code = NotFound desc = not found'
SAID = "container tensorflow: image pull failed (trainer:1): rpc error: code = NotFound desc = not found"
POD = Pod("job-worker-0", "job-worker-0", 1, datetime(2026, 1, 1, tzinfo=UTC), node="node-a")


def event(reason: str, message: str, number: int = 1, place: str = "spec.containers{tensorflow}") -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "ns", "name": "job-worker-0", "uid": "job-worker-0", "fieldPath": place}
    meta = {"name": f"e-{number}", "namespace": "ns", "uid": f"e-{number}", "resourceVersion": str(number)}
    return {"metadata": meta, "involvedObject": about, "type": "Warning", "reason": reason, "message": message}


WAITING = replace(POD, waiting_containers=("init container fetch", "container tensorflow"))


def test_an_image_that_cannot_be_pulled_reads_as_the_status_of_the_pod_will() -> None:
    warned = parse_kubelet_warning(event("Failed", PULL))
    assert with_kubelet_warning(WAITING, warned).waiting == SAID
    init = parse_kubelet_warning(event("Failed", PULL, place="spec.initContainers{fetch}"))
    held = with_kubelet_warning(WAITING, init)
    assert held.waiting == f"init {SAID.replace('tensorflow', 'fetch')}"


@pytest.mark.parametrize(
    "known",
    [
        replace(WAITING, waiting="something else"),
        replace(WAITING, running=True),
        replace(WAITING, exit=ContainerExit(0)),
        replace(POD, waiting_containers=("container another", "init container tensorflow")),
        POD,
    ],
    ids=["the status says more", "it runs", "it has ended", "another container", "nothing yet, or it has started"],
)
def test_what_has_passed_is_not_said(known: Pod) -> None:
    assert with_kubelet_warning(known, parse_kubelet_warning(event("Failed", PULL))) == known


@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
@pytest.mark.parametrize("state", ["waiting", "running", "terminated"])
def test_which_containers_wait(kind: str, state: str) -> None:
    labels = {"tftraining.dev/role": "worker", "tftraining.dev/index": "0", "tftraining.dev/attempt": "1"}
    raw = pod("job-worker-0", 1)
    raw["metadata"] |= {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    parsed = parse_pod(raw | {"status": {kind: [{"name": "x", "state": {state: {"reason": "ContainerCreating"}}}]}})
    assert parsed is not None
    who = "init container x" if kind.startswith("init") else "container x"
    assert parsed.waiting_containers == ((who,) if state == "waiting" else ())


def test_volumes_and_networks_are_said_of_a_pod_that_is_being_prepared() -> None:
    warned = parse_kubelet_warning(event("FailedMount", 'MountVolume.SetUp failed for volume "data"', place=""))
    preparing = replace(POD, preparing=True)
    assert with_kubelet_warning(preparing, warned).unprepared == 'MountVolume.SetUp failed for volume "data"'
    assert with_kubelet_warning(POD, warned) == POD
    assert with_kubelet_warning(preparing, None) == preparing


@pytest.mark.parametrize(
    ("reason", "message", "place"),
    [
        ("Failed", "Error: ErrImagePull", "spec.containers{tensorflow}"),
        ("Failed", PULL, ""),
        ("Failed", PULL, "spec.ephemeralContainers{debug}"),
        ("Killing", "no", ""),
        ("", "", ""),
    ],
)
def test_other_words_are_nothing(reason: str, message: str, place: str) -> None:
    assert parse_kubelet_warning(event(reason, message, place=place)) is None


def knowing() -> KubeletWarnings:
    pods = ChildStore()
    pods.upsert({**pod("job-worker-0", 1), "spec": {}})
    return KubeletWarnings(pods.job_of)


def test_the_job_of_the_pod_is_told_once() -> None:
    warnings = knowing()
    assert warnings.upsert(event("Failed", PULL, 5)) == {KEY}
    assert warnings.upsert(event("Failed", PULL, 6)) == set(), "the same again"
    assert warnings.upsert(event("Failed", PULL + "!", 4)) == set(), "older"
    assert warnings.upsert(event("Failed", PULL + "!", 7)) == {KEY}
    assert warnings.upsert(event("Failed", "Error: ErrImagePull", 8)) == set(), "it follows each, and says less"
    warned = warnings.of("job-worker-0")
    assert warned is not None and warned.words.endswith("not found!")
    assert warnings.of("another") is None


def test_a_list_counts_in_its_order() -> None:
    warnings = knowing()
    assert warnings.replace("", [event("Failed", PULL + "!", 9), event("Failed", PULL, 3)], 9) == {KEY}
    warned = warnings.of("job-worker-0")
    assert warned is not None and warned.words.endswith("!")
    assert warnings.discard(event("Failed", PULL + "!", 9)) == set()


@pytest.mark.parametrize(
    "said",
    [
        {"name": "other"},
        {"uid": "invented"},
        {"name": "job-worker-1"},  # of an event about one's own pod with the UID of another one
        {"uid": None},
    ],
    ids=str,
)
def test_what_is_said_of_no_pod_of_a_job_is_not_kept(said: dict[str, str]) -> None:
    pods = ChildStore()
    for name in ("job-worker-0", "job-worker-1"):
        pods.upsert({**pod(name, 1), "spec": {}})
    warnings, forged = KubeletWarnings(pods.job_of), event("Failed", PULL)
    forged["involvedObject"] |= said
    assert warnings.upsert(forged) == set() and not warnings._known
    abroad = event("Failed", PULL)
    abroad["metadata"]["namespace"] = "elsewhere"
    assert warnings.upsert(abroad) == set() and not warnings._known


def test_a_warning_lasts_as_long_as_its_pod_however_many_events_come() -> None:
    children = Children(NO_API, ChildStore(), ChildStore(), NodeStore(NO_API))
    warnings = children.warnings
    for name in ("job-worker-0", "job-worker-1"):
        children.pods.upsert(pod(name, 1))
    assert warnings.upsert(event("Failed", PULL)) == {KEY}
    for number in range(2, 10_000):
        flood = event("FailedMount", "no", number)
        flood["involvedObject"] |= {"name": "job-worker-1", "uid": "job-worker-1" if number % 2 else f"{number}"}
        warnings.upsert(flood)
    assert set(warnings._known) == {"job-worker-0", "job-worker-1"}
    children.pods.discard(pod("job-worker-0", 2))
    children.pods.upsert(pod("job-worker-1", 10, uid="its successor"))
    assert not warnings._known


async def test_only_new_events_are_asked_for_and_the_server_selects_them() -> None:
    warnings, changed, path = knowing(), asyncio.Queue[Key](), "/api/v1/events"
    async with serving() as (fake, api):
        fake.on(f"GET {path}", listing([event("Failed", PULL, 3)], 7, more="a hundred thousand"))
        fake.on(f"WATCH {path}", events(("ADDED", event("Failed", PULL, 8)), hold=True))
        task = asyncio.create_task(Reflector(api, "events", "", warnings, changed.put_nowait).run())
        assert await changed.get() == KEY
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    selected = {"labelSelector": "", "fieldSelector": kubelet_warnings.FIELDS}
    (_, _, first), (_, _, watch) = fake.asked
    assert first == {**selected, "limit": "1"}
    assert watch.items() >= {**selected, "resourceVersion": "7", "timeoutSeconds": "60"}.items()

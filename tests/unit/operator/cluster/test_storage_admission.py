"""Two jobs with one directory: which of them writes, which waits, who is told, and who is woken."""

from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job
from tftraining_api.manifests.cleanup_pod import CleanupTask, cleanup_pod
from tftraining_api.manifests.pod import pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Key
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.cluster.storage_admission import StorageAdmission
from tftraining_operator.model.observed import StorageUse
from tftraining_operator.model.storage_place import place_of_job, place_of_pod

SHARED: dict[str, Any] = {"directory": "run"}


class World:
    """Jobs, their pods, and the operator's look at who writes what."""

    def __init__(self) -> None:
        self.jobs, self.pods = Jobs(None), ChildStore()  # type: ignore[arg-type]
        self.woken: list[str] = []
        self.users = StorageAdmission(self.jobs, self.pods, lambda key: self.woken.append(key.name))
        self.version = 0

    def job(self, name: str, builder: JobBuilder | None = None, namespace: str = "ml", **meta: Any) -> Manifest:
        raw = (builder or a_job().storage(**SHARED)).raw()
        self.version += 1
        identity = {"name": name, "uid": f"{name}-uid", "namespace": namespace, "resourceVersion": str(self.version)}
        raw["metadata"] |= identity | meta
        self.jobs.update(raw, False, lambda _: None)
        return raw

    def change(self, raw: Manifest, **status: Any) -> Manifest:
        self.version += 1
        raw = {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(self.version)}, "status": status}
        self.jobs.update(raw, False, lambda _: None)
        return raw

    def pod(self, raw: Manifest, phase: str = "Running", lean: bool = False, made: Manifest | None = None) -> Manifest:
        job = parse_job(raw)
        assert job.spec is not None
        made = made or pod(job, job.spec, job.spec.gang[0], "image")
        self.version += 1
        made["metadata"] |= {
            "uid": f"pod-{made['metadata']['name']}",
            "resourceVersion": str(self.version),
            "creationTimestamp": "2026-03-01T12:00:00Z",
        }
        made["status"] = {"phase": phase}
        self.pods.upsert(ChildStore.lean(made) if lean else made)
        return made

    def use(self, raw: Manifest, may_begin: bool = True) -> StorageUse:
        return self.users.observe(parse_job(raw), may_begin)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("lean", [False, True], ids=["watched", "listed"])
@pytest.mark.parametrize("launched", [False, True])
@pytest.mark.parametrize("bucket", [False, True], ids=["claim", "bucket"])
def test_a_pod_and_its_job_name_the_same_place(world: World, bucket: bool, launched: bool, lean: bool) -> None:
    builder = a_job().bucket(**SHARED) if bucket else a_job().storage(**SHARED)
    raw = world.job("a", builder.in_place() if launched else builder)
    place = place_of_job(Key("ml", "a"), raw)
    world.pod(raw, lean=lean)
    assert place is not None and [child.name for _, child in world.pods.writers(place)] == ["a-worker-0"]
    job = parse_job(raw)
    assert job.spec is not None and job.spec.storage is not None
    task = CleanupTask(job.spec.storage, (1,), "image", 1)
    assert place_of_pod(cleanup_pod(job, job.spec, task)) == place


def test_a_volume_that_each_pod_has_for_itself_is_not_shared() -> None:
    private: Manifest
    for private in ({"emptyDir": {}}, {"ephemeral": {"volumeClaimTemplate": {}}}):
        assert place_of_job(Key("ml", "a"), {"spec": {"storage": {"volume": private}}}) is None
    odd: Any
    for odd in (None, {}, {"spec": []}, {"spec": {"storage": 1}}, {"spec": {"storage": {"volume": [1]}}}):
        assert place_of_job(Key("ml", "a"), odd) is None


def test_a_job_without_pods_waits_while_another_ones_pods_write(world: World) -> None:
    first, second = world.job("a"), world.job("b", creationTimestamp="2020-01-01T00:00:00Z")
    world.pod(first)
    assert world.use(second).held == "run of the claim ml/training is in use by the job a"
    world.users.passed(Key("ml", "a"))
    assert world.woken == []
    world.pod(first, "Succeeded")
    world.change(first, phase="Succeeded")
    world.users.passed(Key("ml", "a"))
    assert world.woken == ["b"] and world.use(second) == StorageUse()


def test_the_pods_of_a_deleted_job_and_its_cleanup_pod_still_write(world: World) -> None:
    first, second = world.job("a"), world.job("b")
    job = parse_job(first)
    assert job.spec is not None and job.spec.storage is not None
    made = world.pod(first, made=cleanup_pod(job, job.spec, CleanupTask(job.spec.storage, (1,), "i", 1)))
    world.jobs.forget(Key("ml", "a"))
    assert world.use(second).held
    world.pods.discard(made)
    world.users.passed(Key("ml", "a"))
    assert world.woken == ["b"] and not world.use(second).held


def test_the_oldest_goes_first_then_the_smaller_uid(world: World) -> None:
    jobs = [world.job(name) for name in ("c", "b", "a")]
    assert [bool(world.use(each).held) for each in jobs] == [True, True, False], "created in one second"
    world.jobs.forget(Key("ml", "a"))
    world.users.passed(Key("ml", "a"))
    assert sorted(world.woken) == ["b", "c"]
    assert [bool(world.use(each).held) for each in jobs[:2]] == [True, False]


def test_what_a_job_was_allowed_it_keeps_until_its_pods_are_there(world: World) -> None:
    young = world.job("young", creationTimestamp="2026-05-01T00:00:00Z")
    assert not world.use(young).held
    old = world.job("old", creationTimestamp="2020-05-01T00:00:00Z")
    assert world.use(old).held, "the pods of the first may be on their way"
    world.pod(young)
    assert world.use(old).held and not world.use(young).held


def test_a_job_that_waits_for_its_quota_lets_a_later_one_go_first(world: World) -> None:
    large, small = world.job("large", creationTimestamp="2020-05-01T00:00:00Z"), world.job("small")
    assert not world.use(large).held and world.use(small).held
    assert not world.use(large, may_begin=False).held and world.woken == ["small"]
    assert not world.use(small).held
    assert world.use(large).held, "the pods of the small one may be on their way"
    world.pod(world.change(small, phase="Succeeded"), "Succeeded")
    world.users.passed(Key("ml", "small"))
    assert world.woken == ["small", "large"] and not world.use(large).held
    assert world.use(world.job("third")).held, "its turn is as before"


def test_one_that_has_begun_keeps_its_directory_while_it_waits_for_its_quota(world: World) -> None:
    begun = world.change(world.job("begun"), phase="Restarting")
    assert not world.use(begun, may_begin=False).held
    assert world.use(world.job("other", creationTimestamp="2020-05-01T00:00:00Z")).held


def test_a_suspended_job_holds_nothing_and_waits_when_it_is_resumed(world: World) -> None:
    suspended = a_job().storage(**SHARED).set("runPolicy.suspend", True)
    first, second = world.job("a", suspended), world.job("b", suspended)
    assert not world.use(first).held and not world.use(second).held
    second = world.job("b")
    assert not world.use(second).held
    world.pod(second)
    assert world.use(world.job("a")).held


def test_a_finished_job_is_in_nobodys_way_though_its_pods_are_kept(world: World) -> None:
    done = world.change(world.job("base"), phase="Succeeded")
    world.pod(done, "Succeeded")
    assert world.use(world.job("fine-tuning")) == StorageUse()


def test_a_job_between_two_attempts_keeps_its_directory_whoever_is_older(world: World) -> None:
    restarting = world.change(world.job("young", creationTimestamp="2026-05-01T00:00:00Z"), phase="Restarting")
    waiting = world.job("old", creationTimestamp="2020-05-01T00:00:00Z")
    assert world.use(waiting).held and not world.use(restarting).held


def test_no_cleanup_pod_is_made_where_another_job_writes(world: World) -> None:
    ended = world.change(world.job("a"), phase="Failed")
    other = world.job("b")
    assert not world.use(other).held, "an ended job holds nothing"
    assert world.use(ended).held, "the pods of the other are on their way"


@pytest.mark.parametrize(
    ("directory", "namespace", "told"),
    [
        ("run", "ml", "run of the claim ml/training: the job other writes the same directory"),
        ("run/2", "ml", "run of the claim ml/training: the job other writes run/2 of the claim ml/training"),
        ("runs", "ml", ""),
        ("run", "another", ""),
    ],
)
def test_jobs_that_write_already_are_told_and_go_on(world: World, directory: str, namespace: str, told: str) -> None:
    mine = world.job("mine")
    world.pod(mine)
    other = world.job("other", a_job().storage(directory=directory), namespace)
    world.pod(other)
    assert world.use(mine) == StorageUse(shared=told)
    assert bool(world.use(other).shared) == bool(told) and not world.use(other).held


def test_a_bucket_is_shared_with_other_namespaces_whose_jobs_are_not_named(world: World) -> None:
    world.pod(world.job("secret", a_job().set("storage", {"uri": "gs://bucket", "directory": "team/run"}), "another"))
    mine = world.job("mine", a_job().bucket(directory="run"))
    assert world.use(mine).shared == "gs://bucket/team/run: a job of another namespace writes the same directory"
    assert not world.use(mine).held


def test_nothing_is_kept_of_jobs_and_pods_that_are_gone(world: World) -> None:
    for number in range(3):
        raw = world.job(f"job-{number}", a_job().storage(directory=f"deep/run-{number}"))
        world.use(raw, may_begin=number > 0)
        made = world.pod(raw)
        world.pods.discard({**made, "metadata": {**made["metadata"], "resourceVersion": "1000"}})
        world.jobs.forget(parse_job(raw).key)
        world.users.passed(parse_job(raw).key)
    assert (world.users._allowed, world.users._out_of_turn, world.pods._at, world.pods._below) == ({}, set(), {}, {})

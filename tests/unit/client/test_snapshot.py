"""A job with its pods and events, followed by three watches: the first snapshot is complete, each change gives one."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from tests.support.client.cluster_objects import RAW, a_job, a_pod
from tftraining_api.kube.api import ApiError
from tftraining_client.cluster.snapshot import Snapshot, SnapshotFollower
from tftraining_client.cluster.watching import Change, Watch
from tftraining_client.errors import JobDeleted


class ScriptedWatch:
    """Says what the test puts into it; an error is raised."""

    def __init__(self, *news: Change | ApiError) -> None:
        self.queue: asyncio.Queue[Change | ApiError] = asyncio.Queue()
        for each in news:
            self.queue.put_nowait(each)

    async def changes(self) -> AsyncGenerator[Change, None]:
        while True:
            news = await self.queue.get()
            if isinstance(news, ApiError):
                raise news
            yield news


LISTED = Change("LISTED", {})
FORBIDDEN = ApiError(403, "Forbidden", "no")


def change(kind: str, raw: dict[str, Any]) -> Change:
    return Change(cast(Any, kind), raw)


def follow(jobs: ScriptedWatch, pods: ScriptedWatch, events: ScriptedWatch) -> AsyncGenerator[Snapshot, None]:
    watches = [cast(Watch, each) for each in (jobs, pods, events)]
    return SnapshotFollower(a_job(), *watches).snapshots()


async def test_the_first_snapshot_waits_for_all_lists_and_each_change_gives_one() -> None:
    jobs, events = ScriptedWatch(change("ADDED", RAW), LISTED), ScriptedWatch(LISTED)
    pods = ScriptedWatch(change("ADDED", a_pod(1).raw), change("ADDED", a_pod(0).raw), LISTED)
    snapshots = follow(jobs, pods, events)
    first = await anext(snapshots)
    assert [pod.replica for pod in first.pods] == ["worker-0", "worker-1"] and first.hidden == ()
    pods.queue.put_nowait(change("DELETED", a_pod(1).raw))
    assert [pod.replica for pod in (await anext(snapshots)).pods] == ["worker-0"]
    event = {"metadata": {"uid": "e"}, "reason": "Training", "eventTime": "2026-01-02T03:40:03Z"}
    events.queue.put_nowait(change("ADDED", event))
    assert [each.reason for each in (await anext(snapshots)).events] == ["Training"]
    await snapshots.aclose()


async def test_what_the_caller_may_not_read_is_left_out_and_named() -> None:
    jobs = ScriptedWatch(change("ADDED", RAW), LISTED)
    snapshots = follow(jobs, ScriptedWatch(LISTED), ScriptedWatch(FORBIDDEN))
    assert (await anext(snapshots)).hidden == ("events",)
    await snapshots.aclose()


async def test_without_the_right_to_read_jobs_there_is_no_snapshot() -> None:
    with pytest.raises(ApiError, match="403"):
        await anext(follow(ScriptedWatch(FORBIDDEN), ScriptedWatch(LISTED), ScriptedWatch(LISTED)))


async def test_a_job_that_is_gone_before_the_first_list_ends_the_following() -> None:
    with pytest.raises(JobDeleted, match="job digits was deleted while it was followed"):
        await anext(follow(ScriptedWatch(LISTED), ScriptedWatch(LISTED), ScriptedWatch(LISTED)))


async def test_the_end_of_a_job_that_is_deleted_at_once_is_told() -> None:
    ended = a_job(phase="Succeeded").raw
    jobs = ScriptedWatch(change("ADDED", RAW), LISTED, change("MODIFIED", ended), change("DELETED", ended))
    snapshots = follow(jobs, ScriptedWatch(LISTED), ScriptedWatch(LISTED))
    assert (await anext(snapshots)).job.succeeded
    with pytest.raises(JobDeleted, match="job digits was deleted while it was followed"):
        await anext(snapshots)


@pytest.mark.parametrize("uid", ["u", "another"])
async def test_a_job_that_is_deleted_or_created_again_ends_the_following(uid: str) -> None:
    raw = {**RAW, "metadata": {**RAW["metadata"], "uid": uid}}
    jobs = ScriptedWatch(change("DELETED" if uid == "u" else "ADDED", raw))
    with pytest.raises(JobDeleted, match="job digits was deleted while it was followed"):
        await anext(follow(jobs, ScriptedWatch(), ScriptedWatch()))

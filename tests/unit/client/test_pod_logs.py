"""The merged logs of a job's pods, when connections break, logs are rotated, and pods come late or go."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import aiohttp
import pytest

from tests.support.fake_api_server import Answer, serving
from tftraining_api.kube import api as kube_api
from tftraining_api.kube.api import Api, ApiError, Query
from tftraining_client.cluster import pod_logs
from tftraining_client.cluster.followed_job import FollowedJob
from tftraining_client.cluster.log_position import LogPosition, parse_line
from tftraining_client.cluster.models import Job, LogLine, Pod
from tftraining_client.cluster.pod_logs import Follower, LogQuery, read_logs
from tftraining_client.cluster.watching import Change, Watch
from tftraining_client.commands.logs import stamp
from tftraining_client.errors import JobDeleted

STAMP = "2026-01-02T03:04:{:02d}.{}Z {}"
BROKEN = ApiError(0, "NoAnswer", "connection reset")
GONE = ApiError(404, "NotFound", 'pods "x" not found')


def at(second: int, text: str, fraction: str = "5") -> bytes:
    return STAMP.format(second, fraction, text).encode()


def pod(index: int, state: str = "running", uid: str = "") -> dict[str, Any]:
    name = f"job-worker-{index}"
    labels = {"tftraining.dev/job-name": "job", "tftraining.dev/role": "worker", "tftraining.dev/index": str(index)}
    entry = {"name": "tensorflow", "ready": state == "running", "state": {state: {}}}
    return {
        "metadata": {"name": name, "uid": uid or name, "labels": labels, "resourceVersion": "1"},
        "status": {"phase": "Running", "containerStatuses": [entry]},
    }


def job(phase: str = "Running") -> dict[str, Any]:
    meta = {"name": "job", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"replicaSpecs": {"worker": {}}}, "status": {"phase": phase}}


class ScriptedApi:
    """Each opening of a pod's log gives the next script: its lines, then perhaps an error; the last one is repeated."""

    def __init__(self, pods: Sequence[dict[str, Any]] = ()) -> None:
        self.pods = list(pods)
        self.scripts: dict[str, list[list[bytes | ApiError]]] = {}
        self.asked: list[dict[str, str]] = []

    async def list(self, path: str, query: Any) -> tuple[Sequence[dict[str, Any]], int]:
        return self.pods, 1

    async def lines(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        self.asked.append(dict(query))
        name = path.split("/")[-2]
        scripts = self.scripts[name]
        for each in scripts.pop(0) if len(scripts) > 1 else scripts[0]:
            if isinstance(each, ApiError):
                raise each
            yield each


class ScriptedWatch:
    """A watch that says what the test puts into it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Change] = asyncio.Queue()

    def say(self, kind: str, raw: dict[str, Any] | None = None) -> None:
        self.queue.put_nowait(Change(cast(Any, kind), raw or {}))

    async def changes(self) -> AsyncGenerator[Change, None]:
        while True:
            yield await self.queue.get()


class Following:
    """A follower of scripted logs; `run` returns the texts and the notices."""

    def __init__(self) -> None:
        self.api = ScriptedApi()
        self.jobs, self.pods = ScriptedWatch(), ScriptedWatch()
        self.notices: list[str] = []
        self.followed = FollowedJob(Job.of(job()))
        self.query = LogQuery()

    def lines(self) -> AsyncGenerator[LogLine, None]:
        watches = (cast(Watch, self.jobs), cast(Watch, self.pods))
        return Follower(cast(Api, self.api), self.followed, self.query, self.notices.append, *watches).lines()

    async def run(self) -> list[str]:
        async with asyncio.timeout(20):
            return [f"{line.replica}: {line.text}" async for line in self.lines()]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(pod_logs, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(pod_logs, "LAST_LINES_SECONDS", 0.3)


def ended(following: Following, *pods: dict[str, Any]) -> None:
    """The pods have ended, and the job with them."""
    for each in pods:
        following.pods.say("ADDED", each)
    following.pods.say("LISTED")
    following.jobs.say("MODIFIED", job("Succeeded"))


async def test_lines_are_merged_by_time() -> None:
    api = ScriptedApi([pod(0), pod(1)])
    api.scripts = {"job-worker-0": [[at(1, "a"), at(3, "c")]], "job-worker-1": [[at(2, "b"), at(4, "d")]]}
    lines = read_logs(cast(Api, api), Job.of(job("Running")), LogQuery(tail=2), print)
    assert [(line.replica, line.text) async for line in lines] == [
        ("worker-0", "a"),
        ("worker-1", "b"),
        ("worker-0", "c"),
        ("worker-1", "d"),
    ]
    assert api.asked[0] == {"container": "tensorflow", "timestamps": "true", "tailLines": "2"}


async def test_another_container_is_read_from_then_on_also_before_the_program_has_started() -> None:
    waiting = pod(0)
    waiting["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "PodInitializing"}}
    api = ScriptedApi([waiting])
    api.scripts = {"job-worker-0": [[at(1, "a")]]}
    lines = read_logs(cast(Api, api), Job.of(job()), LogQuery(since=90, container="fetch"), print)
    assert [(stamp(line), line.text) async for line in lines] == [("2026-01-02T03:04:01.500000000Z ", "a")]
    assert api.asked == [{"container": "fetch", "timestamps": "true", "sinceSeconds": "90"}]


async def test_a_log_that_is_opened_again_goes_on_at_its_line_and_not_at_the_option() -> None:
    following = Following()
    following.query = LogQuery(since=90)
    following.api.scripts = {"job-worker-0": [[at(1, "a"), BROKEN], [at(1, "a"), at(2, "b")]]}
    ended(following, pod(0, "terminated"))
    assert await following.run() == ["worker-0: a", "worker-0: b"]
    first, again = following.api.asked
    assert first["sinceSeconds"] == "90" and "sinceTime" in again and "sinceSeconds" not in again


async def test_another_container_is_followed_from_its_own_start_to_its_own_end() -> None:
    following = Following()
    following.query = LogQuery(container="fetch")
    following.api.scripts = {"job-worker-0": [[at(1, "a")]]}
    prepared, other = pod(0, "waiting"), pod(1)
    prepared["status"]["initContainerStatuses"] = [{"name": "fetch", "state": {"terminated": {}}}]
    other["spec"] = {"containers": [{"name": "tensorflow"}], "initContainers": [{"name": "launcher"}]}
    ended(following, prepared, other, other)
    assert await following.run() == ["worker-0: a"]
    assert following.api.asked == [{"container": "fetch", "timestamps": "true", "follow": "true"}]
    assert following.notices == ["worker-1 has no container fetch; it has tensorflow, launcher"]


async def test_a_pod_that_has_not_started_is_named() -> None:
    waiting = pod(1)
    waiting["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
    api, notices = ScriptedApi([waiting]), list[str]()
    assert [line async for line in read_logs(cast(Api, api), Job.of(job("Running")), LogQuery(), notices.append)] == []
    assert notices == ["worker-1 has not started: ImagePullBackOff"]


async def test_each_line_comes_once_over_a_broken_connection() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [
        [at(1, "one"), at(2, "two"), at(2, "also two"), BROKEN],
        [at(2, "two"), at(2, "also two"), at(2, "third of two"), at(3, "three")],
    ]
    ended(following, pod(0, "terminated"))
    assert await following.run() == [
        f"worker-0: {text}" for text in ("one", "two", "also two", "third of two", "three")
    ]
    assert following.notices == []
    assert [each.get("sinceTime") for each in following.api.asked] == [None, "2026-01-02T03:04:02Z"]


async def test_a_rotated_log_is_told() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[at(1, "one"), BROKEN], [at(9, "nine"), at(10, "ten")]]
    ended(following, pod(0, "terminated"))
    assert await following.run() == ["worker-0: one", "worker-0: nine", "worker-0: ten"]
    assert following.notices == ["worker-0: lines before the next one may be missing (the log was rotated)"]


async def test_a_pod_that_takes_its_last_lines_along_is_told() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[at(1, "one"), BROKEN], [GONE]]
    ended(following, pod(0))
    assert await following.run() == ["worker-0: one"]
    assert following.notices == ["worker-0: the pod is gone, and its last lines with it"]


async def test_a_new_pod_of_the_same_name_is_read_from_its_beginning() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[at(1, "first life")], [at(1, "second life")]]
    following.pods.say("ADDED", pod(0, "terminated", uid="first"))
    following.pods.say("LISTED")
    lines = following.lines()
    assert (await anext(lines)).text == "first life"
    following.pods.say("DELETED", pod(0, "terminated", uid="first"))
    following.pods.say("ADDED", pod(0, "waiting", uid="second"))
    following.pods.say("MODIFIED", pod(0, "terminated", uid="second"))
    second = await anext(lines)
    assert (second.text, second.pod_uid) == ("second life", "second")
    await lines.aclose()


async def test_a_pod_that_still_runs_after_the_end_is_left() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[at(1, "one")]]
    ended(following, pod(0))
    assert await following.run() == ["worker-0: one"]
    assert following.notices == ["worker-0 still runs; its further lines are not followed"]


async def test_a_deleted_job_ends_the_following_after_the_last_lines() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[at(1, "one")]]
    following.pods.say("ADDED", pod(0, "terminated"))
    following.pods.say("LISTED")
    following.jobs.say("DELETED", job())
    async with aclosing(following.lines()) as lines:
        assert (await anext(lines)).text == "one"
        with pytest.raises(JobDeleted, match="job job was deleted while its logs were followed"):
            await anext(lines)


async def test_a_job_that_is_gone_before_the_first_list_ends_the_following() -> None:
    following = Following()
    following.pods.say("LISTED")
    following.jobs.say("LISTED")
    with pytest.raises(JobDeleted, match="job job was deleted while its logs were followed"):
        await following.run()


async def test_a_job_that_is_deleted_at_its_end_has_ended() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[at(1, "one")]]
    following.pods.say("ADDED", pod(0, "terminated"))
    following.pods.say("LISTED")
    following.jobs.say("ADDED", job())
    following.jobs.say("DELETED", job("Failed"))
    assert await following.run() == ["worker-0: one"]
    assert following.followed.job.failed


class DeadConnection(ScriptedApi):
    """The first opening of a log gives its lines and then nothing, as a connection whose other end is gone."""

    async def lines(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        async for line in super().lines(path, query):
            yield line
        if len(self.asked) == 1:
            await asyncio.sleep(60)


async def test_the_end_of_a_log_is_read_over_a_dead_connection() -> None:
    following = Following()
    following.api = DeadConnection()
    following.api.scripts = {"job-worker-0": [[at(1, "one")], [at(1, "one"), at(2, "two")]]}
    ended(following, pod(0, "terminated"))
    assert await following.run() == ["worker-0: one", "worker-0: two"]
    assert following.notices == []


async def test_a_silent_log_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_api, "STREAM_TIMEOUT", aiohttp.ClientTimeout(total=None, sock_read=0.2))
    async with serving() as (fake, api):
        path = "/api/v1/namespaces/ns/pods/job-worker-0/log"
        first, second = at(1, "one") + b"\n", at(1, "one") + b"\n" + at(2, "two") + b"\n"
        fake.on(f"GET {path}", Answer(first, hold=True), Answer(second, hold=True))
        log = pod_logs._PodLog(api, "ns", Pod.of(pod(0)), LogQuery(), print)
        async with asyncio.timeout(10), aclosing(log.follow()) as lines:
            assert [(await anext(lines)).text, (await anext(lines)).text] == ["one", "two"]


async def test_a_missing_right_ends_the_following() -> None:
    following = Following()
    following.api.scripts["job-worker-0"] = [[ApiError(403, "Forbidden", "no")]]
    ended(following, pod(0))
    with pytest.raises(ApiError, match="403"):
        await following.run()


def test_times_are_read_with_and_without_zeros_and_zones() -> None:
    whole, text = parse_line(b"2026-01-02T03:04:05Z hello  world")
    assert text == "hello  world"
    assert parse_line(b"2026-01-02T03:04:05.000000000Z x")[0] == whole
    assert parse_line(b"2026-01-02T05:04:05.5+02:00 x")[0] == (whole or 0) + 500_000_000
    assert parse_line(b"unable to retrieve container logs") == (None, "unable to retrieve container logs")


def test_lines_out_of_order_are_kept_while_nothing_is_repeated() -> None:
    position = LogPosition()
    position.reopen()
    assert [position.admit(time) for time in (5, 4, 5)] == [True, True, True]


def test_the_selector_names_what_is_asked_for() -> None:
    assert LogQuery("worker", 1, 2).selector("job") == (
        "tftraining.dev/job-name=job,tftraining.dev/role=worker,tftraining.dev/index=1,tftraining.dev/attempt=2"
    )


def test_a_pod_of_an_unknown_shape_is_read() -> None:
    bare = Pod.of({"metadata": {"name": "x", "uid": "u"}})
    assert (bare.phase, bare.started, bare.terminated, bare.reason) == ("Pending", False, False, "")


class SlowApi(ScriptedApi):
    """A log that comes slower than LAST_LINES_SECONDS allows for all of it."""

    async def lines(self, path: str, query: Query) -> AsyncGenerator[bytes, None]:
        async for line in super().lines(path, query):
            await asyncio.sleep(0.05)
            yield line


async def test_the_log_of_an_ended_pod_is_read_to_its_end_however_long_that_takes() -> None:
    following = Following()
    following.api = SlowApi()
    following.api.scripts = {"job-worker-0": [[at(second, str(second)) for second in range(20)]]}
    ended(following, pod(0, "terminated"))
    assert await following.run() == [f"worker-0: {second}" for second in range(20)]
    assert following.notices == []

"""Asking launchers: how often, within which bounds, and what an answer that is none costs."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from tests.support.fake_api_server import Answer, serving
from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tftraining_api.kube.api import Api, ApiError
from tftraining_api.manifests.launcher import secret
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Key, Replica
from tftraining_api.model.status import Phase, Status
from tftraining_operator.cluster import launcher_reports, poll_schedule
from tftraining_operator.cluster.child_store import ChildStore
from tftraining_operator.cluster.children import Children
from tftraining_operator.cluster.errors import WriteRefused
from tftraining_operator.cluster.launcher_reports import (
    DirectConnection,
    LauncherEndpoint,
    LauncherReports,
    launcher_endpoint,
    through_api_server,
)
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.refused_writes import KEY_GONE
from tftraining_operator.plan.step import Step

KEY = Key("ns", "job")
CHIEF = LauncherEndpoint("uid-1", "job-1", "ns", "job-worker-0", "10.0.0.1", "Running 2/2")


def status_page(phase: str = "Training", **fields: Any) -> bytes:
    return json.dumps({"phase": phase, "job": {"uid": CHIEF.job}, **fields}).encode()


class Pods:
    """Answers in order, the last one for ever; notes when it was asked, in the loop's time."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.requested_at: list[float] = []
        self.known: list[str] = []
        self.changed: list[Key] = []

    async def fetch(self, _: LauncherEndpoint, known: str) -> bytes:
        self.known.append(known)
        self.requested_at.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def pauses(self) -> list[float]:
        return [
            round(later - earlier, 2) for earlier, later in zip(self.requested_at, self.requested_at[1:], strict=False)
        ]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second is ten milliseconds."""
    monkeypatch.setattr(poll_schedule, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(poll_schedule, "LONGEST_PAUSE", 0.15)


@asynccontextmanager
async def following(pods: Pods) -> AsyncIterator[LauncherReports]:
    launchers = LauncherReports(pods.fetch, pods.changed.append, max_long_polls=100)
    launchers.follow(KEY, CHIEF)
    try:
        yield launchers
    finally:
        await launchers.close()


async def until(check: Callable[[], bool]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not check():
        assert asyncio.get_running_loop().time() < deadline, "not within a minute"
        await asyncio.sleep(0.005)


async def test_no_launcher_is_asked_before_the_first_passes_are_done() -> None:
    pods = Pods(status_page())
    launchers = LauncherReports(pods.fetch, pods.changed.append, max_long_polls=100)
    launchers.pause()
    launchers.follow(KEY, CHIEF)
    await asyncio.sleep(0.05)
    assert pods.requested_at == []
    launchers.resume()
    await until(lambda: launchers.last_report(KEY) is not None)
    await launchers.close()


async def test_a_calm_launcher_is_asked_less_and_less_often(quick: None) -> None:
    pods = Pods(status_page())
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 6)
    assert [round(pause * 100) >= least for pause, least in zip(pods.pauses, (2, 4, 8, 15, 15), strict=True)] == [
        True
    ] * 5
    assert pods.changed == [KEY], "what is the same is no news"


async def test_a_change_is_followed_closely(quick: None) -> None:
    pods = Pods(
        status_page(),
        status_page(),
        status_page(),
        status_page("Restarting"),
        status_page("Restarting"),
        status_page("Restarting"),
    )
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 7)
    assert min(pods.pauses[3:]) < 0.08 <= pods.pauses[2]
    assert pods.changed == [KEY, KEY]


async def test_progress_is_news_but_no_unrest(quick: None) -> None:
    pods = Pods(*(status_page(progress={"step": step}) for step in range(20)))
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 5)
    assert pods.pauses[3] > 0.14
    assert len(pods.changed) == 5


@pytest.mark.parametrize(
    ("before", "after", "is_news"),
    [
        ({"progress": {"epoch": 1, "step": 5}}, {"progress": {"epoch": 1, "step": 6, "metrics": {"loss": 1}}}, False),
        ({"backup": {"on": True, "step": 5}}, {"backup": {"on": True, "step": 6}}, False),
        ({"progress": {"epoch": 1, "step": 5}}, {"progress": {"epoch": 2, "step": 6}}, True),
        ({"progress": None}, {"progress": {"step": 1}}, True),
        ({"backup": {"on": True, "step": 5}}, {"backup": {"on": False, "step": 5, "reason": "no room"}}, True),
        ({"progress": {"step": 5}}, {"progress": {"step": 6}, "round": 2}, True),
        ({"progress": {"step": 5}}, {"progress": {"step": 6}, "revision": "a.2"}, True),
    ],
)
async def test_steps_of_an_epoch_are_told_apart_from_news(
    quick: None, before: dict[str, Any], after: dict[str, Any], is_news: bool
) -> None:
    pods, progressed = Pods(status_page(**before), status_page(**after)), list[Key]()
    launchers = LauncherReports(pods.fetch, pods.changed.append, 100, progressed.append)
    launchers.follow(KEY, CHIEF)
    await until(lambda: len(pods.requested_at) == 4)
    await launchers.close()
    assert (pods.changed, progressed) == (([KEY, KEY], []) if is_news else ([KEY], [KEY]))


async def test_a_pod_that_changes_is_worth_a_question_at_once() -> None:
    pods = Pods(status_page())
    async with following(pods) as launchers:
        await until(lambda: len(pods.requested_at) == 1)
        launchers.follow(KEY, CHIEF)
        await asyncio.sleep(0.05)
        assert len(pods.requested_at) == 1
        launchers.follow(KEY, LauncherEndpoint("uid-1", "job-1", "ns", "job-worker-0", "10.0.0.1", "Running 1/2"))
        await until(lambda: len(pods.requested_at) == 2)


async def test_what_is_heard_is_known_by_the_pod_that_said_it() -> None:
    pods = Pods(status_page(round=3))
    async with following(pods) as launchers:
        await until(lambda: launchers.last_report(KEY) is not None)
        last_report = launchers.last_report(KEY)
        assert last_report is not None and (last_report.pod_uid, last_report.report.round) == ("uid-1", 3)
        assert launchers.last_report(Key("ns", "other")) is None


@pytest.mark.parametrize(
    "trouble", [b"not a report", OSError("refused"), TimeoutError(), ApiError(503, "", "no endpoints")]
)
async def test_after_three_silences_nothing_is_known_any_more(
    monkeypatch: pytest.MonkeyPatch, trouble: bytes | Exception
) -> None:
    monkeypatch.setattr(poll_schedule, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(poll_schedule, "LONGEST_PAUSE", 0.02)
    pods = Pods(status_page(), trouble, trouble, status_page(), trouble, trouble, trouble)
    async with following(pods) as launchers:
        await until(lambda: len(pods.requested_at) == 6)
        assert launchers.last_report(KEY) is not None
        await until(lambda: len(pods.requested_at) == 8)
        assert launchers.last_report(KEY) is None
    assert pods.changed == [KEY, KEY]


async def test_what_the_launcher_of_another_job_says_is_no_answer(
    quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Two chiefs on the network of one host have one address; one that was given back is another pod's soon."""
    caplog.set_level("INFO")
    own, other = {"name": "job", "uid": "job-1"}, {"name": "other", "uid": "job-2"}
    others = [status_page(job=each, round=7) for each in (other, {}, {"name": "job"})]
    pods = Pods(*others, status_page(job=own, round=3))
    async with following(pods) as launchers:
        await until(lambda: launchers.is_silent(KEY))
        assert launchers.last_report(KEY) is None
        await until(lambda: launchers.last_report(KEY) is not None)
        last_report = launchers.last_report(KEY)
        assert last_report is not None and last_report.report.round == 3
    assert "a launcher of another job answered" in caplog.text


async def test_a_launcher_that_has_never_answered_is_known_to_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_schedule, "FIRST_PAUSE", 0.01)
    pods = Pods(OSError("refused"), OSError("refused"), OSError("refused"), status_page())
    async with following(pods) as launchers:
        await until(lambda: pods.changed == [KEY])
        assert (len(pods.requested_at), launchers.is_silent(KEY)) == (3, True)
        await until(lambda: launchers.last_report(KEY) is not None)
        assert not launchers.is_silent(KEY)


async def test_another_pod_is_not_silent_because_the_last_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_schedule, "FIRST_PAUSE", 0.01)
    async with following(Pods(OSError("refused"))) as launchers:
        await until(lambda: launchers.is_silent(KEY))
        launchers.follow(KEY, replace(CHIEF, job_state="Restarting 0/2"))
        assert launchers.is_silent(KEY)
        launchers.follow(KEY, replace(CHIEF, uid="uid-2"))
        assert not launchers.is_silent(KEY)


async def test_a_fault_of_our_own_does_not_end_the_asking(quick: None, caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods(KeyError("bug"), status_page())
    async with following(pods) as launchers:
        await until(lambda: launchers.last_report(KEY) is not None)
    assert "bug" in caplog.text


async def test_nobody_is_asked_about_a_job_that_is_done() -> None:
    pods = Pods(status_page())
    async with following(pods) as launchers:
        await until(lambda: len(pods.requested_at) == 1)
        launchers.follow(KEY, None)
        assert launchers.last_report(KEY) is None
        await asyncio.sleep(0)
    assert len(pods.requested_at) == 1


async def test_through_the_api_server_not_all_are_asked_at_once() -> None:
    now, most = 0, 0

    class Slow(Api):
        async def read(self, *_: Any) -> bytes:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            await asyncio.sleep(0.01)
            now -= 1
            return status_page()

    changed: list[Key] = []
    async with serving() as (_, api):
        launchers = LauncherReports(through_api_server(Slow(api._transport)), changed.append, max_long_polls=1)
        for number in range(100):
            launchers.follow(Key("ns", f"job-{number}"), CHIEF)
        await until(lambda: len(changed) == 100)
        await launchers.close()
    assert most == launcher_reports.CONCURRENCY


# --- waiting for a change


class Waited:
    """A launcher that can be waited for, as the real one: at most so many clients hang, for so long."""

    def __init__(self, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self.round = 1
        self.uid = "job-1"
        self.known: list[str] = []
        self.hanging = 0
        self.changed: list[Key] = []
        self._again = asyncio.Event()

    def change(self) -> None:
        self.round += 1
        self._again.set()
        self._again = asyncio.Event()

    async def fetch(self, _: LauncherEndpoint, known: str) -> bytes:
        self.known.append(known)
        if known == f"x.{self.round}":
            self.hanging += 1
            try:
                async with asyncio.timeout(self.seconds):
                    await self._again.wait()
            except TimeoutError:
                pass
            finally:
                self.hanging -= 1
        return status_page(round=self.round, revision=f"x.{self.round}", job={"uid": self.uid})


def round_of(launchers: LauncherReports, key: Key = KEY) -> int:
    last_report = launchers.last_report(key)
    return last_report.report.round if last_report else 0


async def test_a_change_is_known_at_once() -> None:
    pod = Waited()
    launchers = LauncherReports(pod.fetch, pod.changed.append, max_long_polls=10)
    launchers.follow(KEY, CHIEF)
    await until(lambda: pod.hanging == 1)
    assert pod.known == ["", "x.1"]
    for number in (2, 3, 4):  # a restart: its begin, the next round, its first steps
        pod.change()
        began = asyncio.get_running_loop().time()
        await until(lambda number=number: round_of(launchers) == number)  # type: ignore[misc]
        assert asyncio.get_running_loop().time() - began < 1
        await until(lambda: pod.hanging == 1)
    assert pod.changed == [KEY] * 4
    await launchers.close()
    assert pod.hanging == 0


async def test_a_calm_launcher_is_asked_once_in_the_time_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_reports, "CALM_SECONDS", 0.2)
    monkeypatch.setattr(poll_schedule, "CALM_SECONDS", 0.2)
    pod = Waited(seconds=0.3)
    launchers = LauncherReports(pod.fetch, pod.changed.append, max_long_polls=10)
    launchers.follow(KEY, CHIEF)
    await asyncio.sleep(1.5)
    await launchers.close()
    assert pod.known[1:] == ["x.1"] * (len(pod.known) - 1) and 3 <= len(pod.known) <= 6
    assert pod.changed == [KEY]


async def test_a_launcher_that_never_makes_anybody_wait_is_polled(quick: None) -> None:
    """It has too many clients; or it is none of ours, and would have us ask all the time."""
    pods = Pods(status_page(revision="x.1"))
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 7)
    assert pods.known == ["", *["x.1"] * 6]
    assert pods.pauses[5] >= 0.14, pods.pauses


async def test_a_launcher_with_something_new_all_the_time_is_not_asked_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poll_schedule, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr(poll_schedule, "QUICK_PAUSE", 0.01)
    pods = Pods(*(status_page(round=number, revision=f"x.{number}") for number in range(100)))
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 9)
    assert min(pods.pauses[5:]) > 0.18, "test_poll_schedule.py has the shorter pauses before"


async def test_an_old_launcher_is_polled_and_never_told_a_revision(quick: None) -> None:
    pods = Pods(status_page())
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 5)
    assert set(pods.known) == {""} and pods.pauses[3] > 0.1


@pytest.mark.parametrize("revision", ["x y", "", "é", "x" * 65, "x\r\nHost: other"])
async def test_a_revision_that_is_none_is_not_sent_back(quick: None, revision: str) -> None:
    pods = Pods(status_page(revision=revision))
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 3)
    assert set(pods.known) == {""}


@pytest.mark.parametrize("change", [{"uid": "uid-2", "ip": "10.0.0.2"}, {"job_state": "Restarting 1/2"}])
async def test_news_of_the_pod_ends_the_wait_and_is_no_silence(change: dict[str, str]) -> None:
    pod = Waited()
    launchers = LauncherReports(pod.fetch, pod.changed.append, max_long_polls=10)
    launchers.follow(KEY, CHIEF)
    await until(lambda: pod.hanging == 1)
    for _ in range(3):  # more than one at a time
        launchers.follow(KEY, replace(CHIEF, **change))
        launchers.follow(KEY, CHIEF)
    launchers.follow(KEY, replace(CHIEF, **change))
    await until(lambda: len(pod.known) >= 4 and pod.hanging == 1)
    assert pod.known[2:4] == ["", "x.1"]
    assert launchers._followed[KEY].unanswered == 0
    await launchers.close()


async def test_after_a_silence_the_next_answer_is_not_waited_for(quick: None) -> None:
    pods = Pods(status_page(revision="x.1"), status_page(revision="x.2"), OSError("reset"), status_page(revision="x.2"))
    async with following(pods):
        await until(lambda: len(pods.requested_at) == 5)
    assert pods.known[:5] == ["", "x.1", "x.2", "", "x.2"]


def turns_of(pods: dict[str, Waited]) -> dict[str, int]:
    return {name: len([known for known in pod.known if known]) for name, pod in pods.items()}


async def test_those_for_whom_there_is_no_room_are_polled_and_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left to the poll, which comes seldom here; and who is gone, or silent, keeps no place."""
    monkeypatch.setattr(launcher_reports, "CALM_SECONDS", 0.05)
    pods = {f"job-{number}": Waited(seconds=0.1) for number in range(8)}
    silent = {"job-5"}
    most = 0

    async def fetch(endpoint: LauncherEndpoint, known: str) -> bytes:
        nonlocal most
        if known and endpoint.pod in silent:
            raise OSError("reset")
        most = max(most, sum(pod.hanging for pod in pods.values()) + bool(known))
        return await pods[endpoint.pod].fetch(endpoint, known)

    launchers = LauncherReports(fetch, lambda _: None, max_long_polls=2)
    for name in pods:
        launchers.follow(Key("ns", name), replace(CHIEF, pod=name))
    await until(lambda: len(launchers._turns._queue) >= 4)
    for name in ("job-0", next(iter(launchers._turns._queue)).name):
        launchers.follow(Key("ns", name), None)
        pods.pop(name).known.clear()
    others = {name: pod for name, pod in pods.items() if name not in silent}
    before = turns_of(others)
    began = asyncio.get_running_loop().time()
    await until(lambda: all(turns >= before[name] + 3 for name, turns in turns_of(others).items()))
    assert asyncio.get_running_loop().time() - began < 3
    await launchers.close()
    assert most == 2 and sum(pod.hanging for pod in pods.values()) == 0


async def test_one_that_cannot_be_reached_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """250 of 1000 chiefs on nodes that are cut off: requests to sixteen of them at a time once held up all others."""
    pod, answers = Waited(), asyncio.Event()

    async def fetch(endpoint: LauncherEndpoint, known: str) -> bytes:
        if endpoint.ip.startswith("10.9."):
            await answers.wait()  # there are none
        return await pod.fetch(endpoint, known)

    launchers = LauncherReports(fetch, pod.changed.append, max_long_polls=1000)
    for number in range(1000):
        ip = f"10.{9 if number < 250 else 1}.0.1"
        launchers.follow(Key("ns", f"job-{number}"), replace(CHIEF, ip=ip))
    await until(lambda: pod.hanging == 750)
    await launchers.close()


# --- whom to ask


JOB = parse_job(a_launched_job().raw())
RUNNING = Status(phase="Running", attempt=1, ready="1/2")
POD = Pod(
    name="mnist-worker-0",
    uid="u",
    attempt=1,
    created=datetime(2026, 1, 1, tzinfo=UTC),
    replica=Replica("worker", 0),
    running=True,
    ip="10.0.0.1",
)


def test_the_chiefs_pod_is_asked() -> None:
    other = replace(POD, name="mnist-worker-1", replica=Replica("worker", 1))
    assert launcher_endpoint(JOB, RUNNING, (other, POD)) == LauncherEndpoint(
        "u", "job-uid", "ml", "mnist-worker-0", "10.0.0.1", "Running 1/2"
    )


@pytest.mark.parametrize("phase", ["Pending", "Suspended", "Succeeded", "Failed"])
def test_a_job_that_does_not_run_has_nobody_to_ask(phase: Phase) -> None:
    assert launcher_endpoint(JOB, replace(RUNNING, phase=phase), (POD,)) is None


@pytest.mark.parametrize("change", [{"ip": ""}, {"running": False}, {"attempt": 2}, {"replica": Replica("worker", 1)}])
def test_a_pod_that_cannot_answer_is_not_asked(change: dict[str, Any]) -> None:
    assert launcher_endpoint(JOB, RUNNING, (replace(POD, **change),)) is None


def test_jobs_that_are_not_ours_or_have_no_launcher_are_not_asked() -> None:
    others = [a_job().raw(), a_launched_job().set("runPolicy.managedBy", "example.com/other").raw()]
    assert [launcher_endpoint(parse_job(raw), RUNNING, (POD,)) for raw in others] == [None, None]
    assert launcher_endpoint(replace(JOB, deleting=True), RUNNING, (POD,)) is None


# --- the ways into a pod


@asynccontextmanager
async def a_pod(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], ip: str = "127.0.0.1"
) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_get("/status", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, ip, 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def ask_directly(monkeypatch: pytest.MonkeyPatch, port: int, known: str = "", ip: str = "127.0.0.1") -> bytes:
    monkeypatch.setattr(launcher_reports, "STATUS_PORT", port)
    direct = DirectConnection()
    try:
        return await direct.fetch(replace(CHIEF, ip=ip), known)
    finally:
        await direct.close()


@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
async def test_the_direct_way(monkeypatch: pytest.MonkeyPatch, ip: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=status_page())

    async with a_pod(answer, ip) as port:
        assert await ask_directly(monkeypatch, port, ip=ip) == status_page()


async def test_an_endless_answer_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    async with a_pod(answer) as port:
        with pytest.raises(ValueError, match="longer than 4194304 bytes"):
            await ask_directly(monkeypatch, port)


async def test_a_slow_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_reports, "TIMEOUT_SECONDS", 0.1)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.02)

    async with a_pod(answer) as port:
        with pytest.raises(TimeoutError):
            await ask_directly(monkeypatch, port)


@pytest.mark.parametrize("status", [302, 404, 503])
async def test_only_a_success_is_an_answer(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": "/status"}, body=status_page())

    async with a_pod(answer) as port:
        with pytest.raises(ValueError, match=f"HTTP status {status}"):
            await ask_directly(monkeypatch, port)


async def test_the_way_through_the_api_server() -> None:
    path = "/api/v1/namespaces/ns/pods/job-worker-0:8472/proxy/status"
    async with serving() as (fake, api):
        fake.on(
            f"GET {path}", Answer(status_page()), Answer(b"x" * 4_200_000), Answer({"message": "no endpoints"}, 503)
        )
        fetch = through_api_server(api)
        assert await fetch(CHIEF, "a.7") == status_page()
        with pytest.raises(ValueError, match="longer than 4194304 bytes"):
            await fetch(CHIEF, "")
        with pytest.raises(ApiError, match="no endpoints"):
            await fetch(CHIEF, "")
    assert [query for _, _, query in fake.asked] == [
        {"changedSince": "a.7", "timeoutSeconds": "15", "members": "false"},
        {},
        {},
    ]


# --- the Secret


@pytest.mark.parametrize("status", [201, 400, 403, 409, 0, 500])
async def test_whether_a_secret_is_still_there_is_found_without_reading_it(status: int) -> None:
    """A quota or a webhook may answer before it is known; the server's own trouble may pass."""
    asked: list[tuple[str, str, Any]] = []

    class Answering(Api):
        async def request(self, method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:
            assert "data" not in body
            asked.append((method, path, query))
            if status != 201:
                raise ApiError(status, "Reason", "words")
            return {}

    async with serving() as (_, api):
        children = Children(Answering(api._transport), ChildStore(), ChildStore(), NodeStore(api))
        step = Step(status=RUNNING, verify_secret=secret(JOB))
        if status in (400, 403, 409):
            await children.create(JOB, step)
        else:
            with pytest.raises(WriteRefused, match="secret/mnist-launcher-job-uid: ") as refused:
                await children.create(JOB, step)
            assert (refused.value.message == KEY_GONE) == (status == 201)
    assert asked == [("POST", "/api/v1/namespaces/ml/secrets", [("dryRun", "All")])]


async def test_the_key_is_made_where_it_is_sent_and_one_that_is_there_stays() -> None:
    sent: list[dict[str, Any]] = []

    class Recording(Api):
        async def request(self, method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:
            sent.append({"method": method, "path": path, **body})
            if len(sent) > 2:
                raise ApiError(len(sent) * 100 + 9, "AlreadyExists", "it exists")
            return {}

    async with serving() as (_, api):
        children = Children(Recording(api._transport), ChildStore(), ChildStore(), NodeStore(api))
        step = Step(status=RUNNING, create_secret=secret(JOB))
        await children.create(JOB, step)
        await children.create(JOB, step)
        with pytest.raises(WriteRefused):
            await children.create(JOB, step)
        await children.create(JOB, step)
    keys = [base64.b64decode(each["data"]["key"]) for each in sent]
    assert [len(key) for key in keys] == [32] * 4 and len(set(keys)) == 4
    assert (sent[0]["method"], sent[0]["path"]) == ("POST", "/api/v1/namespaces/ml/secrets")
    assert "data" not in secret(JOB)

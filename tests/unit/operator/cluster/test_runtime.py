"""Settings, health and the metrics page: what the operator says of itself."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from prometheus_client import CollectorRegistry, generate_latest

from tests.support.fake_api_server import Answer, serving
from tests.support.ports import free_port
from tftraining_api.kube.api import Api
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.status import LastRestart, Restarts, Status
from tftraining_operator.cluster.http_server import serve
from tftraining_operator.cluster.kopf_session import WatchAges
from tftraining_operator.cluster.leader_election import LeaderElector
from tftraining_operator.cluster.lease import LeaseName
from tftraining_operator.cluster.metrics import Counted, Metrics
from tftraining_operator.runtime import Operator, OperatorConfig, _check_installed, read_settings


def test_settings_of_an_empty_environment_are_the_defaults() -> None:
    assert read_settings({}) == OperatorConfig()


def test_settings_are_read() -> None:
    env = {
        "TFTRAINING_NAMESPACES": " a, b,",
        "TFTRAINING_PORT": "9000",
        "TFTRAINING_LOG_LEVEL": "debug",
        "TFTRAINING_LOG_FORMAT": "json",
        "POD_NAME": "p",
        "TFTRAINING_NETWORK_POLICY": "system/example.com/app=a,b=c",
        "TFTRAINING_METRICS_FROM": '[{"podSelector": {}}]',
        "TFTRAINING_LEADER_ELECTION": "system/lease",
        "TFTRAINING_NODE_CONDITIONS": "GpuEccError, example.com/Xid,",
        "TFTRAINING_NODE_CONDITION_INTERVAL": "5",
    }
    operator_selector = OperatorSelector("system", {"example.com/app": "a", "b": "c"}, ({"podSelector": {}},))
    settings = OperatorConfig(
        namespaces=("a", "b"), port=9000, log_level="DEBUG", identity="p", operator_selector=operator_selector
    )
    settings = msgspec.structs.replace(settings, leader_election=LeaseName("system", "lease"), log_format="json")
    conditions, interval = ("GpuEccError", "example.com/Xid"), timedelta(seconds=5)
    settings = msgspec.structs.replace(settings, node_conditions=conditions, node_condition_interval=interval)
    assert read_settings(env) == settings


def scrapers(**expression: object) -> dict[str, str]:
    """TFTRAINING_METRICS_FROM with one expression."""
    return {"TFTRAINING_METRICS_FROM": json.dumps([{"podSelector": {"matchExpressions": [expression]}}])}


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {"example.com/a_b.c": "B-1", "a": ""}, "matchExpressions": None},
        {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", ""]}]},
        {"matchExpressions": [{"key": "a", "operator": "DoesNotExist", "values": []}], "matchLabels": None},
    ],
)
def test_a_selector_that_the_api_server_takes_is_taken(selector: dict[str, object]) -> None:
    peers = [{"namespaceSelector": {}, "podSelector": selector}]
    env = {"TFTRAINING_NETWORK_POLICY": "system/a=b", "TFTRAINING_METRICS_FROM": json.dumps(peers)}
    read = read_settings(env).operator_selector
    assert read is not None and list(read.metrics_from) == peers


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"TFTRAINING_PORT": "0"}, "TFTRAINING_PORT must be a port number from 1 to 65535, not '0'"),
        ({"TFTRAINING_PORT": "65536"}, "TFTRAINING_PORT"),
        ({"TFTRAINING_PORT": "²"}, "TFTRAINING_PORT"),
        ({"TFTRAINING_NETWORK_POLICY": "system"}, "TFTRAINING_NETWORK_POLICY must be empty or NAMESPACE/LABEL=VALUE"),
        ({"TFTRAINING_NETWORK_POLICY": "system/a=b,c"}, "TFTRAINING_NETWORK_POLICY must be empty or NAMESPACE/LABEL"),
        ({"TFTRAINING_NETWORK_POLICY": "/a=b"}, "TFTRAINING_NETWORK_POLICY must be empty or NAMESPACE/LABEL=VALUE"),
        ({"TFTRAINING_METRICS_FROM": "x"}, "TFTRAINING_METRICS_FROM must be empty or a JSON list"),
        ({"TFTRAINING_METRICS_FROM": "[{}]"}, "with namespaceSelector, podSelector or both, each"),
        ({"TFTRAINING_METRICS_FROM": '[{"podselector": {}}]'}, "TFTRAINING_METRICS_FROM must be empty or"),
        ({"TFTRAINING_METRICS_FROM": '[{"podSelector": {"app": "x"}}]'}, "each with matchLabels, matchExpressions"),
        ({"TFTRAINING_METRICS_FROM": '[{"podSelector": {"matchLabels": {"a": 1}}}]'}, "each with matchLabels"),
        (
            scrapers(key="a", operator="in", values=["b"]),
            r"'in' - at `\$\[0\].podSelector.matchExpressions\[0\].operator",
        ),
        (scrapers(key="a", operator="In"), "operator In with 0 values"),
        (scrapers(key="a", operator="Exists", values=["b"]), "operator Exists with 1 values"),
        (scrapers(key="a b", operator="Exists"), r"matchExpressions\[0\].key"),
        (scrapers(key="a", operator="In", values=["b\n"]), r"matchExpressions\[0\].values"),
        (scrapers(key="a", operator="Exists", value="b"), "unknown field `value`"),
        ({"TFTRAINING_METRICS_FROM": '[{"podSelector": null}]'}, "TFTRAINING_METRICS_FROM"),
        ({"TFTRAINING_METRICS_FROM": '[{"podSelector": {"matchLabels": {"-": "b"}}}]'}, "TFTRAINING_METRICS_FROM"),
        ({"TFTRAINING_NETWORK_POLICY": "System/a=b"}, "TFTRAINING_NETWORK_POLICY must be empty or NAMESPACE/LABEL"),
        ({"TFTRAINING_NETWORK_POLICY": "system/a=b c"}, "TFTRAINING_NETWORK_POLICY must be empty or NAMESPACE/LABEL"),
        ({"TFTRAINING_IMAGE": " operator:1"}, "TFTRAINING_IMAGE must be the name of an image"),
        ({"TFTRAINING_LEADER_ELECTION": "lease"}, "TFTRAINING_LEADER_ELECTION must be empty or NAMESPACE/NAME"),
        ({"TFTRAINING_LEADER_ELECTION": "a/b/c"}, "TFTRAINING_LEADER_ELECTION must be empty or NAMESPACE/NAME"),
        ({"TFTRAINING_NODE_CONDITIONS": "GpuEccError,Ready"}, "TFTRAINING_NODE_CONDITIONS must not contain Ready"),
        ({"TFTRAINING_NODE_CONDITION_INTERVAL": "0"}, "must be a number of seconds from 1 to 86400, not '0'"),
        ({"TFTRAINING_NODE_CONDITION_INTERVAL": "86401"}, "TFTRAINING_NODE_CONDITION_INTERVAL"),
        ({"TFTRAINING_NODE_CONDITION_INTERVAL": "1m"}, "TFTRAINING_NODE_CONDITION_INTERVAL"),
        ({"TFTRAINING_LOG_FORMAT": "xml"}, "TFTRAINING_LOG_FORMAT must be text or json, not 'xml'"),
        ({"TFTRAINING_LOG_LEVEL": "LOUD"}, "TFTRAINING_LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not 'LOUD'"),
    ],
)
def test_nonsense_in_the_environment_is_named(env: Mapping[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("'", ".")):
        read_settings(env)


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_the_pages_turn_red_and_green_with_what_they_ask() -> None:
    dead: list[str] = []
    unready, refused = ["pods are not synced yet"], ["pods in b", "events in c"]
    runner = await serve(free_port(), lambda: dead, lambda: unready, lambda: refused, CollectorRegistry())
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        assert await get(f"{url}/healthz") == (200, "ok")
        assert await get(f"{url}/readyz") == (500, "pods are not synced yet")
        unready.clear()
        said = "ok, but this account may not list and watch pods in b, events in c"
        assert await get(f"{url}/readyz") == (200, said)
        refused.clear()
        assert await get(f"{url}/readyz") == (200, "ok")
        dead.append("the event writer has stopped")
        assert await get(f"{url}/healthz") == (500, "the event writer has stopped")
    finally:
        await runner.cleanup()


async def test_a_part_that_ends_by_itself_turns_healthz_red(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (fake, api):

        async def connected() -> Api:
            return api

        async def broken(self: object) -> None:
            raise KeyError("bug")

        monkeypatch.setattr("tftraining_operator.runtime.connect", connected)
        monkeypatch.setattr("tftraining_operator.cluster.events.Events.run", broken)
        fake.on("GET /apis/tftraining.dev/v1", INSTALLED)
        operator = await Operator.start(msgspec.structs.replace(OperatorConfig(), port=free_port()))
        try:
            await asyncio.sleep(0.05)
            assert operator.dead() == ["the event writer has stopped"]
            assert operator.unready() == [
                "pods in all namespaces are not synced yet",
                "services in all namespaces are not synced yet",
                "nodes are not synced yet",
            ]
            assert "KeyError: 'bug'" in caplog.text
        finally:
            await operator.stop()


async def test_a_silent_watch_of_jobs_turns_healthz_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as (fake, api):

        async def connected() -> Api:
            return api

        monkeypatch.setattr("tftraining_operator.runtime.connect", connected)
        fake.on("GET /apis/tftraining.dev/v1", INSTALLED)
        operator = await Operator.start(msgspec.structs.replace(OperatorConfig(), port=free_port()))
        try:
            now = 0.0
            operator.kopf_sessions.ages = WatchAges(lambda: now)
            path = "/apis/tftraining.dev/v1/namespaces/team-a/tftrainingjobs"
            operator.kopf_sessions.ages.begin(path, SimpleNamespace(total_bytes=0))
            now = 99.0
            assert operator.dead() == []
            now = 101.0
            assert operator.dead() == ["the watch of jobs in team-a gets no answer"]
            await operator._serve("team-b")  # and kopf begins no watch
            now = 202.0
            assert "the watch of jobs in team-b gets no answer" in operator.dead()
        finally:
            await operator.stop()


INSTALLED = Answer({"resources": [{"name": "tftrainingjobs"}, {"name": "tftrainingjobs/status"}]})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses of the start are short, and the silences that end a watch as well."""
    monkeypatch.setattr("tftraining_operator.runtime.START_PAUSE", 0.05)
    monkeypatch.setattr("tftraining_operator.cluster.reflector.WATCH_SILENCE", -9.98)


async def test_the_start_waits_for_the_api_server_and_is_well_meanwhile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, short: None
) -> None:
    async with serving() as (fake, api):

        async def connected() -> Api:
            return api

        monkeypatch.setattr("tftraining_operator.runtime.connect", connected)
        fake.on("GET /apis/tftraining.dev/v1", Answer({"message": "starting"}, 503))
        port = free_port()
        starting = asyncio.create_task(Operator.start(OperatorConfig(port=port)))
        while fake.count("GET /apis/tftraining.dev/v1") < 3:
            assert not starting.done()
            await asyncio.sleep(0.01)
        assert await get(f"http://127.0.0.1:{port}/healthz") == (200, "ok"), "its watches have not begun"
        assert (await get(f"http://127.0.0.1:{port}/readyz"))[0] == 500
        fake.on("GET /apis/tftraining.dev/v1", INSTALLED)
        operator = await starting
        try:
            assert "503 : starting; retrying in 0.05 s" in caplog.text
        finally:
            await operator.stop()


@pytest.mark.parametrize(
    ("status", "said"), [(403, "unexpected answer of the API server: 403"), (404, "is not installed: kubectl apply")]
)
async def test_what_does_not_pass_by_itself_ends_the_start(status: int, said: str) -> None:
    async with serving() as (fake, api):
        fake.on("GET /apis/tftraining.dev/v1", Answer({}, status), INSTALLED)
        with pytest.raises(RuntimeError, match=said):
            await _check_installed(api)


async def test_too_many_requests_pass(short: None) -> None:
    async with serving() as (fake, api):
        fake.on("GET /apis/tftraining.dev/v1", Answer({}, 429), INSTALLED)
        await _check_installed(api)


async def test_a_served_resource_without_its_status_ends_the_start() -> None:
    async with serving() as (fake, api):
        fake.on("GET /apis/tftraining.dev/v1", Answer({"resources": [{"name": "tftrainingjobs"}]}))
        with pytest.raises(RuntimeError, match="does not serve tftrainingjobs/status"):
            await _check_installed(api)


async def test_a_fault_of_the_leader_election_ends_the_process_and_its_writes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (fake, _):

        async def broken(self: LeaderElector) -> str:
            self.fence.extend(self.fence.clock() + 10)
            raise KeyError("bug")

        async def synced(self: Operator) -> None:
            """As if all caches were filled."""

        async def connected() -> Api:
            return Api(RESTClientObject(Configuration(host=fake.url)))

        monkeypatch.setattr("tftraining_operator.runtime.connect", connected)
        monkeypatch.setattr(LeaderElector, "run", broken)
        monkeypatch.setattr(Operator, "_synced", synced)
        fake.on("GET /apis/tftraining.dev/v1", INSTALLED)
        lost = asyncio.Queue[str]()
        settings = OperatorConfig(port=free_port(), leader_election=LeaseName("system", "lease"))
        operator = await Operator.start(settings, lost.put_nowait)
        try:
            async with asyncio.timeout(60):
                told = await lost.get()
            assert told == "lost the lease system/lease: a fault of the leader election: KeyError('bug')"
            assert lost.empty()
            assert not operator._leads(), "no write is sent any more"
            assert "Traceback" in caplog.text
        finally:
            await operator.stop()


START, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def restarted(when: str, reason: str, down: float | None = None, counted: int = 0, recreated: int = 1) -> Status:
    last = msgspec.convert({"time": when, "reason": reason}, LastRestart)
    last = msgspec.structs.replace(last, down_seconds=down)
    return Status(last_restart=last, restarts=Restarts(counted=counted, recreated=recreated))


def test_metrics_count_phases_restarts_and_recoveries_once() -> None:
    jobs = [{"status": {"phase": "Running"}}, {"status": {"phase": "Running"}}, {}]
    metrics, counted = Metrics(lambda: jobs, Counter(GET=3)), Counted.since(START)
    before, down = Status(), restarted("2026-01-01T00:00:00Z", "OOMKilled", counted=1)
    up = restarted("2026-01-01T00:00:00Z", "OOMKilled", down=2.5, counted=1)
    metrics.observe(before, down, counted, LATER)
    metrics.observe(down, up, counted, LATER)
    metrics.observe(up, up, counted, LATER)
    text = generate_latest(metrics.registry).decode()
    for line in (
        'tftraining_jobs{phase="Running"} 2.0',
        'tftraining_jobs{phase="Pending"} 1.0',
        'tftraining_jobs{phase="Failed"} 0.0',
        'tftraining_restarts_total{charged="true",mode="Recreate",reason="OOMKilled"} 1.0',
        "tftraining_recovery_seconds_count 1.0",
        "tftraining_recovery_seconds_sum 2.5",
        'tftraining_api_requests_total{method="GET"} 3.0',
    ):
        assert line in text.splitlines()


def test_metrics_tell_restarts_in_place_apart() -> None:
    metrics = Metrics(list, Counter())
    before = restarted("2026-01-01T00:00:00Z", "Killed", down=1.0, counted=1, recreated=0)
    for number, reason in enumerate(("Killed", "MemberLost"), start=1):
        after = restarted(f"2026-01-01T00:00:0{number}Z", reason, down=1.5, counted=1, recreated=0)
        # The charge had been written while the launchers were at it.
        restarts = msgspec.structs.replace(after.restarts, in_place=number)
        after = msgspec.structs.replace(after, restarts=restarts)
        metrics.observe(before, after, Counted.since(START), LATER)
        before = after
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'tftraining_restarts_total{charged="true",mode="InPlace",reason="Killed"} 1.0' in lines
    assert 'tftraining_restarts_total{charged="false",mode="InPlace",reason="MemberLost"} 1.0' in lines
    assert "tftraining_recovery_seconds_sum 3.0" in lines


@pytest.mark.parametrize("way", ["", "direct", "proxy"])
def test_the_way_to_launchers_can_be_chosen(way: str) -> None:
    assert read_settings({"TFTRAINING_LAUNCHERS": way}).launchers == way
    with pytest.raises(ValueError, match="TFTRAINING_LAUNCHERS must be direct, proxy or empty, not 'by car'"):
        read_settings({"TFTRAINING_LAUNCHERS": "by car"})

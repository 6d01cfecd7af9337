"""What is known of nodes: a few words each, no more news than there is; before an act they are read by name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.fake_api_server import Answer, FakeServer, events, listing, serving
from tftraining_api.kube.api import ApiError
from tftraining_operator.cluster.node_store import NodeStore
from tftraining_operator.cluster.reflector import Reflector
from tftraining_operator.model.node import Node, NodeCondition, parse_node

SINCE = "2026-01-01T00:00:00Z"


def node(name: str, version: int, ready: str = "True", since: str = SINCE, **spec: Any) -> dict[str, Any]:
    conditions = [
        {"type": "MemoryPressure", "status": "False", "lastHeartbeatTime": f"2026-01-01T00:00:{version:02d}Z"},
        {"type": "Ready", "status": ready, "lastTransitionTime": since},
    ]
    meta = {"name": name, "uid": name, "resourceVersion": str(version), "creationTimestamp": SINCE}
    return {"metadata": meta, "spec": spec, "status": {"conditions": conditions, "images": [{"names": ["x" * 999]}]}}


class Running:
    """A store fed by a reflector, both at work on a fake server."""

    def __init__(self, fake: FakeServer, store: NodeStore, changed: list[str]) -> None:
        self.fake, self.store, self.changed = fake, store, changed

    def find(self, name: str) -> Node | None:
        nodes = self.store.of({name})
        return nodes.named.get(name) if nodes else None

    async def until(self, name: str, **wanted: Any) -> None:
        deadline = asyncio.get_running_loop().time() + 5
        while (found := self.find(name)) is None or any(getattr(found, k) != v for k, v in wanted.items()):
            assert asyncio.get_running_loop().time() < deadline, found
            await asyncio.sleep(0.01)


@asynccontextmanager
async def reflecting(**answers: tuple[Answer, ...]) -> AsyncIterator[Running]:
    async with serving() as (fake, api):
        for method, those in answers.items():
            fake.on(f"{method} /api/v1/nodes", *those)
        changed: list[str] = []
        store = NodeStore(api)
        reflector = Reflector(api, "nodes", "", store, changed.append)
        task = asyncio.create_task(reflector.run())
        try:
            yield Running(fake, store, changed)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def a_store(*raws: dict[str, Any]) -> NodeStore:
    store = NodeStore(None)  # type: ignore[arg-type]  # asks nobody
    store.replace("", raws, 100)
    return store


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_node_is_ready_or_not_since_when(status: str, ready: bool) -> None:
    found = parse_node(node("a", 1, status))
    assert (found.unready_since is None) == ready
    assert found.unready_since is None or found.unready_since.isoformat() == "2026-01-01T00:00:00+00:00"


def test_a_node_that_has_not_told_anything_yet_is_not_lost() -> None:
    assert parse_node({"metadata": {"name": "a"}}) == Node("a")


def test_the_taint_of_a_node_that_is_shut_down() -> None:
    shut = node("a", 1, taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}])
    assert parse_node(shut).out_of_service and parse_node(shut).evicts
    gentle = node("a", 1, taints=[{"key": "node.kubernetes.io/out-of-service", "effect": "NoSchedule"}])
    assert parse_node(gentle).out_of_service and not parse_node(gentle).evicts
    assert not parse_node(node("a", 1, taints=[{"key": "node.kubernetes.io/unreachable"}])).out_of_service


def test_of_the_conditions_only_listed_ones_that_hold_are_kept() -> None:
    raw, words = node("a", 1), "2 uncorrectable errors" * 100
    told = [
        ("GpuEccError", "True", SINCE),
        ("Quiet", "False", SINCE),
        ("Other", "True", SINCE),
        ("Timeless", "True", None),
        ("Unsure", "Unknown", SINCE),
    ]
    raw["status"]["conditions"] = [
        {"type": kind, "status": status, "lastTransitionTime": since, "message": words} for kind, status, since in told
    ]
    listed = ("GpuEccError", "Quiet", "Timeless", "Unsure")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert parse_node(raw, listed).conditions == (NodeCondition("GpuEccError", since, words[:256]),)
    assert parse_node(raw).conditions == ()


def test_a_listed_condition_is_news_and_its_heartbeats_are_none() -> None:
    store = NodeStore(None, ("MemoryPressure",))  # type: ignore[arg-type]  # asks nobody
    assert store.upsert(node("a", 1)) == {"a"}
    for version, news in ((2, {"a"}), (3, set())):
        raw = node("a", version)
        raw["status"]["conditions"][0] |= {"status": "True", "lastTransitionTime": SINCE}
        assert store.upsert(raw) == news
    assert store.upsert(node("a", 4)) == {"a"}


def test_heartbeats_are_no_news() -> None:
    store = a_store(node("a", 1))
    assert [store.upsert(node("a", version)) for version in range(2, 30)] == [set()] * 28
    assert store.upsert(node("a", 30, "Unknown")) == {"a"}
    assert store.upsert(node("a", 29)) == set(), "older than what is known"


def test_a_thousand_nodes_are_a_few_words_each() -> None:
    store = NodeStore(None)  # type: ignore[arg-type]  # asks nobody
    raw = store.lean(node("a", 1))
    assert "images" not in str(raw) and parse_node(raw) == parse_node(node("a", 1))


def test_since_when_enough_nodes_of_a_zone_are_ready() -> None:
    def steady(store: NodeStore) -> str:
        nodes = store.of({"a"})
        assert nodes is not None
        return str(nodes.steady_since[""])

    store = a_store(node("a", 1, "Unknown"), node("b", 1), node("c", 1, since="2026-01-02T00:00:00Z"))
    assert steady(store) == "2026-01-02 00:00:00+00:00", "since the second of the two that have to be"
    store.upsert(node("b", 2, "Unknown"))
    assert steady(store) == "None"
    store.discard(node("a", 2))
    assert steady(store) == "2026-01-02 00:00:00+00:00", "of two nodes one is enough"
    store.discard(node("c", 2))
    assert steady(store) == "None"
    store.upsert(node("b", 3, since="2026-01-03T00:00:00Z"))
    assert steady(store) == "2026-01-03 00:00:00+00:00"


def test_an_operator_counts_from_when_it_saw_that_a_node_is_not_ready() -> None:
    def noticed(store: NodeStore) -> object:
        nodes = store.of({"a"})
        return nodes and nodes.named["a"].noticed_at

    store, times = a_store(node("a", 1)), iter(range(1, 9))
    store.clock = lambda: datetime(2026, 1, next(times), tzinfo=UTC)
    assert noticed(store) is None
    store.upsert(node("a", 2, "Unknown"))
    store.upsert(node("a", 3, "Unknown"))
    store.upsert(node("a", 4, "False", since="2026-01-05T00:00:00Z"))
    assert noticed(store) == datetime(2026, 1, 1, tzinfo=UTC)
    store.upsert(node("a", 5))
    store.upsert(node("a", 6, "Unknown"))
    assert noticed(store) == datetime(2026, 1, 2, tzinfo=UTC)


def test_what_a_list_does_not_show_any_more_is_gone_unless_it_is_newer() -> None:
    store = a_store(node("a", 1), node("b", 1))
    store.upsert(node("c", 300))
    assert store.replace("", [node("b", 1)], 200) == {"a"}
    nodes = store.of({"a", "b", "c"})
    assert nodes is not None
    assert nodes.named["a"].gone and not nodes.named["b"].gone and not nodes.named["c"].gone


def test_a_node_that_joins_again_is_not_gone() -> None:
    store = a_store(node("a", 1))
    assert store.discard(node("a", 2)) == {"a"} and store.discard(node("a", 2)) == set()
    assert store.upsert(node("a", 3)) == {"a"}
    nodes = store.of({"a"})
    assert nodes is not None and not nodes.named["a"].gone


async def test_nothing_is_known_before_the_list() -> None:
    async with reflecting(GET=(Answer({}, 403),)) as run:
        await asyncio.sleep(0.05)
        assert run.store.of({"a"}) is None


async def test_a_watch_tells_of_what_matters_only() -> None:
    news = events(
        ("MODIFIED", node("a", 6)), ("MODIFIED", node("a", 7, "Unknown")), ("DELETED", node("b", 8)), hold=True
    )
    async with reflecting(GET=(listing([node("a", 1), node("b", 1)], 5),), WATCH=(news,)) as run:
        await run.until("b", gone=True)
        assert run.changed[2:] == ["a", "b"]
        assert all(query["labelSelector"] == "" for _, _, query in run.fake.asked)


async def test_a_look_reads_what_is_not_ready_or_not_known_and_nothing_else() -> None:
    raws = [node("well", 1), node("back", 2, "Unknown"), node("still", 3, "Unknown"), node("gone", 4, "Unknown")]
    async with reflecting(GET=(listing(raws, 5),), WATCH=(events(hold=True),)) as run:
        await run.until("gone", gone=False)
        assert run.find("young") == Node("young", gone=True), "until it is read"
        for name, found in (("back", node("back", 9)), ("still", raws[2]), ("young", node("young", 9))):
            run.fake.on(f"GET /api/v1/nodes/{name}", Answer(found))
        for _ in range(2):
            await run.store.look(["well", "back", "still", "gone", "young"])
        found = {name: run.find(name) for name in ("back", "still", "gone", "young")}
        assert [each.is_ready for each in found.values() if each] == [True, False, False, True]
        assert found["gone"] == Node("gone", gone=True)
        asked = {name: run.fake.count(f"GET /api/v1/nodes/{name}") for name in ("well", *found)}
        assert asked == {"well": 0, "back": 1, "still": 2, "gone": 2, "young": 1}


@pytest.mark.parametrize("status", [403, 429, 500])
async def test_a_node_that_cannot_be_read_is_not_gone(status: int) -> None:
    async with reflecting(GET=(listing([node("a", 1, "Unknown")], 5),), WATCH=(events(hold=True),)) as run:
        await run.until("a", gone=False)
        run.fake.on("GET /api/v1/nodes/a", Answer({}, status))
        with pytest.raises(ApiError):
            await run.store.look(["a"])
        assert run.find("a") is not None and not run.find("a").gone  # type: ignore[union-attr]


async def test_a_node_that_was_made_again_under_its_name_is_there() -> None:
    gone = events(("DELETED", node("a", 6)), hold=True)
    async with reflecting(GET=(listing([node("a", 1)], 5),), WATCH=(gone,)) as run:
        await run.until("a", gone=True)
        run.fake.on("GET /api/v1/nodes/a", Answer(node("a", 9)))
        await run.store.look(["a"])
        assert run.find("a") == parse_node(node("a", 9))

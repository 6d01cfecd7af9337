"""Long polls of /status: what counts as a change, how many may wait, and that they block no other client."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.simulated_gang.members import disconnect_cleanly
from tests.support.simulated_gang.simulation import exited, heartbeat, hello, make_coordinator
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.peer import Hello
from tftraining.launch.http import long_polls, pages, server
from tftraining.launch.http.long_polls import MAX_WAITING, LongPolls, PollQuery
from tftraining.launch.http.revision import RevisionCounter
from tftraining.launch.http.server import HttpServer, Response

# --- what is a change


def running(*members: str, **policy: Any) -> Coordinator:
    found = make_coordinator(*members, **policy)
    for name in found.membership.gang:
        found.handle_hello(hello(name), 0.0)
    assert found.rounds.running
    return found


def revisions(found: Coordinator, incarnation: str = "a") -> RevisionCounter:
    return RevisionCounter(incarnation, lambda: pages._gang_fields(found))


def train(found: Coordinator, now: float, step: int = 1, **progress: Any) -> None:
    """All members report so many steps in this round."""
    for name in found.membership.gang:
        told = {"step": step, "first_step": 0, "first_step_time": now - 0.5, "updated": now, **progress}
        found.handle_frame(name, heartbeat(found.rounds.number, now, **told), now)


def test_a_step_changes_no_revision_but_a_phase_does() -> None:
    found = running()
    seen = revisions(found)
    started = seen.current()
    assert seen.current() == started
    train(found, 1.0)
    training = seen.current()
    assert training != started, "it trains"
    train(found, 2.0, step=70, steps_per_second=3.5)
    train(found, 3.0, step=140, epoch=2, epochs=5)
    assert seen.current() == training
    told = pages.gang_status(found, 3.0)
    assert (told["phase"], told["progress"]["step"]) == ("Training", 140)


@pytest.mark.parametrize("what", ["exit", "loss", "resize", "verdict"])
def test_each_relevant_field_changes_the_revision(what: str) -> None:
    found = running("worker-0", "worker-1", "worker-2", max_restarts=1 if what != "verdict" else 0)
    train(found, 1.0)
    seen = revisions(found)
    before = seen.current()
    if what in ("exit", "verdict"):
        found.handle_frame("worker-1", exited(1, code=1), 2.0)
    elif what == "loss":
        disconnect_cleanly(found, "worker-1", 2.0)
    else:
        found.apply_spec_update(found.membership.job.gang.resized(2), found.membership.policy, 2.0)
    assert seen.current() != before


def test_each_stage_of_a_restart_changes_the_revision() -> None:
    found = running()
    train(found, 1.0)
    seen = revisions(found)
    known = [seen.current()]
    found.handle_frame("worker-1", exited(1, number_of_signal=9), 2.0)
    known.append(seen.current())
    assert pages.gang_status(found, 2.0)["ledger"]["processFailures"] == 1
    for name in found.membership.gang:
        found.handle_frame(name, {"type": "ready", "round": 1}, 2.5)
    known.append(seen.current())
    assert pages.gang_status(found, 2.5)["ledger"]["inPlace"] == 1
    train(found, 3.0)
    known.append(seen.current())
    assert len(set(known)) == 4
    assert pages.gang_status(found, 3.0)["reason"] == "Resumed"


def test_revisions_of_two_launchers_never_match() -> None:
    found = running()
    assert revisions(found, "a").current() != revisions(found, "b").current()


def test_a_check_of_the_gang_takes_time_linear_in_its_size() -> None:
    """It was the square: 50 s for a gang of 10,000."""
    found = make_coordinator(*(f"worker-{index}" for index in range(10_000)))
    for name in found.membership.gang:
        found.membership.admit(name).record_join(Hello("x"), hello(name), 0.0)
    found.rounds.running = True
    began = time.process_time()
    pages.gang_status(found, 1.0)
    assert time.process_time() - began < 2


# --- the question


@pytest.mark.parametrize(
    ("query", "known", "seconds"),
    [
        ("", "", 60.0),
        ("changedSince=a.7&timeoutSeconds=15", "a.7", 15.0),
        ("timeoutSeconds=1.5&changedSince=a.7&pretty", "a.7", 1.5),
        ("changedSince=a.7", "a.7", 60.0),
        ("changedSince=a.7&timeoutSeconds=86400", "a.7", 60.0),
        ("changedSince=a.7&timeoutSeconds=" + "9" * 400, "a.7", 60.0),
    ],
)
def test_the_query_is_parsed(query: str, known: str, seconds: float) -> None:
    wait = PollQuery.parse(query)
    assert (wait.known_revision, wait.seconds) == (known, seconds)


def test_members_false_returns_the_summary() -> None:
    assert [PollQuery.parse(query).short for query in ("members=false", "members=true", "")] == [True, False, False]


@pytest.mark.parametrize("text", ["-1", "soon", "1e3", "nan", "inf", "1.2.3", "²", "."])
def test_an_invalid_query_raises(text: str) -> None:
    with pytest.raises(ValueError, match="timeoutSeconds must be a number of seconds, not"):
        PollQuery.parse(f"changedSince=a.1&timeoutSeconds={text}")


# --- the server


class Served:
    """A server with pages whose revision a test raises."""

    def __init__(self) -> None:
        self.number = 1
        self.port = 0
        page = lambda: Response(200, json.dumps({"revision": self.revision()}))  # noqa: E731
        pages: dict[str, Callable[[], Response]] = {"/status": page, "/healthz": lambda: Response(200, "ok\n")}
        self.server = HttpServer(pages, {"/status": LongPolls(self.revision)})

    def revision(self) -> str:
        return f"x.{self.number}"

    async def connect(self, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return reader, writer

    async def get(self, path: str) -> tuple[int, str]:
        """Status code (0 if the connection was cut) and body."""
        reader, writer = await self.connect(path)
        try:
            text = (await reader.read()).decode()
        except ConnectionResetError:
            text = ""
        finally:
            writer.close()
        head, _, body = text.partition("\r\n\r\n")
        return int(head.split(" ")[1]) if head else 0, body

    def hang(self, seconds: float = 30.0) -> asyncio.Task[tuple[int, str]]:
        path = f"/status?changedSince={self.revision()}&timeoutSeconds={seconds}"
        return asyncio.create_task(self.get(path))

    async def hang_one_by_one(self) -> list[asyncio.Task[tuple[int, str]]]:
        hanging = []
        for _ in range(MAX_WAITING):
            hanging.append(self.hang())
            await asyncio.sleep(0.05)
        return hanging


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    found = Served()
    await found.server.open("127.0.0.1", 0)
    assert isinstance(found.server._server, asyncio.Server)
    found.port = found.server._server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        await found.server.close()
        await asyncio.sleep(0.05)


async def test_a_waiting_client_is_answered_when_the_revision_changes() -> None:
    async with served() as found:
        waiting = found.hang()
        await asyncio.sleep(0.3)
        assert not waiting.done()
        found.number = 2
        began = time.monotonic()
        assert await waiting == (200, '{"revision": "x.2"}')
        assert time.monotonic() - began < 10, "it could have waited for 30 s"


@pytest.mark.parametrize("known", ["", "x.0", "another.1"])
async def test_a_client_with_no_or_another_revision_is_answered_at_once(known: str) -> None:
    async with served() as found:
        began = time.monotonic()
        assert (await found.get(f"/status?changedSince={known}&timeoutSeconds=30"))[0] == 200
        assert time.monotonic() - began < 10, "it could have waited for 30 s"


async def test_the_waiting_time_is_bounded() -> None:
    async with served() as found:
        began = time.monotonic()
        assert await found.hang(0.4) == (200, '{"revision": "x.1"}')
        assert 0.4 <= time.monotonic() - began < 10


async def test_the_number_of_waiting_clients_is_bounded() -> None:
    async with served() as found:
        first, *others = await found.hang_one_by_one()
        await asyncio.sleep(0.2)
        assert not first.done()
        latest = found.hang()
        assert await first == (200, '{"revision": "x.1"}')
        await asyncio.sleep(0.2)
        assert not latest.done() and not any(each.done() for each in others)
        found.number = 2
        assert [code for code, _ in await asyncio.gather(latest, *others)] == [200] * MAX_WAITING


async def test_a_disconnected_client_takes_no_place() -> None:
    async with served() as found:
        for _ in range(3 * MAX_WAITING):
            _, writer = await found.connect("/status?changedSince=x.1&timeoutSeconds=30")
            await writer.drain()
            writer.transport.abort()
        waits_for = found.server._long_polls["/status"]
        await asyncio.sleep(0.5)
        assert waits_for._waiting == []


async def test_probes_are_answered_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS", 2)
    async with served() as found:
        hanging = await found.hang_one_by_one()
        for _ in range(5):
            assert await found.get("/healthz") == (200, "ok\n")
        assert not any(each.done() for each in hanging)
        found.number = 2
        await asyncio.gather(*hanging)


def test_closing_the_server_answers_all_waiting_clients_before_the_loop_ends() -> None:
    """The launcher's process ends right after: an answer that is not written by then never comes."""

    def ask(port: int, revision: str) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"GET /status?changedSince={revision}&timeoutSeconds=30 HTTP/1.1\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(65536), b""))

    async def serve(clients: ThreadPoolExecutor) -> list[Future[bytes]]:
        found = Served()
        await found.server.open("127.0.0.1", 0)
        assert isinstance(found.server._server, asyncio.Server)
        port = found.server._server.sockets[0].getsockname()[1]
        asked = [clients.submit(ask, port, found.revision()) for _ in range(MAX_WAITING)]
        while len(found.server._long_polls["/status"]._waiting) < MAX_WAITING:  # noqa: ASYNC110 (the server tells nobody)
            await asyncio.sleep(0.01)
        await found.server.close()
        return asked

    with ThreadPoolExecutor(MAX_WAITING) as clients:
        asked = asyncio.run(serve(clients))
        for each in asked:
            assert each.result(timeout=5).endswith(b'{"revision": "x.1"}')


async def test_a_client_that_does_not_read_delays_the_end_by_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLOSE_SECONDS", 0.2)
    async with served() as found:
        _, writer = await found.connect("/status?changedSince=x.1&timeoutSeconds=30")
        await asyncio.sleep(0.2)
        began = time.monotonic()
        await found.server.close()
        assert 0.1 < time.monotonic() - began < 10
        writer.close()


async def test_an_invalid_query_gets_a_400() -> None:
    async with served() as found:
        code, words = await found.get("/status?changedSince=x.1&timeoutSeconds=soon")
        assert (code, words) == (400, "timeoutSeconds must be a number of seconds, not 'soon'\n")
        assert (await found.get("/healthz?timeoutSeconds=soon"))[0] == 200


async def test_checks_of_the_revision_take_a_bounded_share_of_the_time() -> None:
    looks = 0

    def slow() -> str:
        nonlocal looks
        looks += 1
        time.sleep(0.02)
        return "x.1"

    gone: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    await LongPolls(slow).wait_for_change(PollQuery("x.1", 1.0), gone)
    assert looks <= 1 / (0.02 * long_polls.PAUSE_FACTOR) + 1

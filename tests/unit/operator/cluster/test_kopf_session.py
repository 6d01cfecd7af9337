"""The pauses before kopf's watches, its requests in the metrics, and that the same credentials keep their session."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import kopf
import pytest

from tests.support.fake_api_server import Answer, events, job, serving
from tests.support.ports import free_port
from tftraining_operator.cluster.kopf_session import KopfSessions, WatchAges, WatchPauses

JOBS = "/apis/tftraining.dev/v1/{}tftrainingjobs"


def test_watches_that_end_at_once_come_ever_more_slowly_and_one_that_lasts_ends_that() -> None:
    now = 0.0
    pauses = WatchPauses(lambda: now)
    found = []
    for _ in range(9):
        found.append(pauses.next("/jobs"))
        now += found[-1]
    assert found == [0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert pauses.next("/others") == 0
    now += 300
    assert pauses.next("/jobs") == 0


async def test_the_same_credentials_have_one_session_and_new_ones_another() -> None:
    sessions = KopfSessions(Counter(), lambda method, code, seconds: None)
    first = sessions.of(kopf.ConnectionInfo(server="http://a", token="one"))
    assert sessions.of(kopf.ConnectionInfo(server="http://a", token="one")) is first
    assert first.aiohttp_session.headers["Authorization"] == "Bearer one"
    second = sessions.of(kopf.ConnectionInfo(server="http://a", token="two"))
    assert second is not first
    for each in (first, second):
        await each.aiohttp_session.close()


def test_the_age_of_a_watch_is_the_time_since_anything_came() -> None:
    now, content = 0.0, SimpleNamespace(total_bytes=10)
    ages = WatchAges(lambda: now)
    ages.begin(JOBS.format(""), content)
    now = 50.0
    ages.sample()
    assert ages.by_namespace() == {"": 50}
    content.total_bytes += 1
    now = 51.0
    ages.sample()
    now = 60.0
    assert ages.by_namespace() == {"": 9}
    ages.begin(JOBS.format("namespaces/red/"), SimpleNamespace(total_bytes=0))
    ages.begin(JOBS.format(""), SimpleNamespace(total_bytes=0))
    assert ages.by_namespace() == {"": 0, "red": 0}


async def test_kopfs_requests_are_counted_and_its_watches_have_an_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tftraining_operator.cluster.kopf_session.SAMPLE_SECONDS", 0.01)
    requests, answered = Counter[str](), Counter[tuple[str, int]]()
    sessions = KopfSessions(requests, lambda method, code, seconds: answered.update([(method, code)]))
    jobs = JOBS.format("")
    async with serving() as (fake, _):
        fake.on(f"GET {jobs}", Answer({}, 200), Answer({}, 500))
        fake.on(f"WATCH {jobs}", events(("ADDED", job("a", 1)), hold=True))
        session = sessions.of(kopf.ConnectionInfo(server="http://a")).aiohttp_session
        for _ in range(2):
            async with session.get(f"{fake.url}{jobs}"):
                pass
        assert sessions.ages.by_namespace() == {}
        with pytest.raises(OSError):
            await session.get(f"http://127.0.0.1:{free_port()}{jobs}")
        async with session.get(f"{fake.url}{jobs}", params={"watch": "true"}):
            sampler = asyncio.create_task(sessions.ages.sample_until_cancelled())
            await asyncio.sleep(0.2)
            assert 0.05 < sessions.ages.by_namespace()[""] < 10
            sampler.cancel()
        await session.close()
    assert requests == {"GET": 4}
    assert answered == {("GET", 200): 1, ("GET", 500): 1, ("GET", 0): 1, ("WATCH", 200): 1}

"""A watch that lasts: over broken connections and expired versions, without a second list where none is needed."""

import asyncio
from contextlib import aclosing

import pytest

from tests.support.fake_api_server import GONE, Answer, FakeServer, events, job, listing, serving
from tftraining_api.kube.api import Api, ApiError
from tftraining_client.cluster import watching
from tftraining_client.cluster.watching import Watch

PATH = "/apis/tftraining.dev/v1/namespaces/ns/tftrainingjobs"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "FIRST_PAUSE", 0.01)


async def take(api: Api, count: int, errors: list[ApiError]) -> list[tuple[str, str]]:
    """The first changes, by the name of their object."""
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(20), aclosing(Watch(api, PATH, [], errors.append).changes()) as changes:
        async for change in changes:
            found.append((change.type, change.object.get("metadata", {}).get("name", "")))
            if len(found) == count:
                break
    return found


def lists(fake: FakeServer) -> int:
    return fake.count(f"GET {PATH}")


async def test_a_watch_that_the_server_ends_goes_on_without_a_list() -> None:
    async with serving() as (fake, api):
        fake.on(f"GET {PATH}", listing([job("a", 1)], 5))
        fake.on(f"WATCH {PATH}", events(("MODIFIED", job("a", 6))), events(("DELETED", job("a", 7)), hold=True))
        assert await take(api, 4, []) == [("ADDED", "a"), ("LISTED", ""), ("MODIFIED", "a"), ("DELETED", "a")]
        assert lists(fake) == 1
        assert [query["resourceVersion"] for method, _, query in fake.asked if method == "WATCH"] == ["5", "6"]


async def test_after_an_expired_version_only_the_differences_come() -> None:
    async with serving() as (fake, api):
        fake.on(
            f"GET {PATH}",
            listing([job("same", 1), job("changed", 2), job("gone", 3)], 5),
            listing([job("same", 1), job("changed", 8), job("new", 9)], 9),
        )
        fake.on(f"WATCH {PATH}", events(GONE), events(hold=True))
        found = await take(api, 8, [])
    assert found[4:] == [("DELETED", "gone"), ("MODIFIED", "changed"), ("ADDED", "new"), ("LISTED", "")]


async def test_an_interruption_is_told_and_survived() -> None:
    errors: list[ApiError] = []
    async with serving() as (fake, api):
        fake.on(f"GET {PATH}", listing([], 5))
        fake.on(f"WATCH {PATH}", Answer({"message": "starting"}, 503), events(("ADDED", job("a", 6)), hold=True))
        assert await take(api, 2, errors) == [("LISTED", ""), ("ADDED", "a")]
    assert [error.status for error in errors] == [503]


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_an_error_of_the_first_list_is_raised(status: int) -> None:
    async with serving() as (fake, api):
        fake.on(f"GET {PATH}", Answer({"message": "no"}, status))
        with pytest.raises(ApiError) as raised:
            await take(api, 1, [])
    assert raised.value.status == status


async def test_a_right_that_is_taken_away_ends_the_watch() -> None:
    async with serving() as (fake, api):
        fake.on(f"GET {PATH}", listing([], 5))
        fake.on(f"WATCH {PATH}", Answer({"message": "no"}, 403))
        with pytest.raises(ApiError, match="403"):
            await take(api, 2, [])

"""What is known of the jobs: late answers and late events never replace newer news; ghosts are found."""

from typing import Any, cast

import pytest

from tests.support.fake_api_server import Answer, job, listing, serving
from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.names import Key
from tftraining_api.model.status import Status
from tftraining_operator.cluster.jobs import APPLIED, Jobs

KEY = Key("ns", "a")
PATH = "/apis/tftraining.dev/v1/namespaces/ns/tftrainingjobs/a"
LIST = "GET /apis/tftraining.dev/v1/tftrainingjobs"


def known(jobs: Jobs) -> dict[str, str]:
    return {raw["metadata"]["name"]: raw["metadata"]["resourceVersion"] for raw in jobs.all()}


def take(jobs: Jobs, raw: dict[str, Any], deleted: bool = False) -> None:
    jobs.update(raw, deleted, lambda key: None)


async def test_events_of_an_earlier_job_of_the_name_come_too_late() -> None:
    async with serving() as (_, api):
        jobs = Jobs(api)
        take(jobs, job("a", 10, uid="new"))
        take(jobs, job("a", 8, uid="old"))
        take(jobs, job("a", 9, uid="old"), deleted=True)
        assert jobs.get(KEY) == job("a", 10, uid="new")


async def test_the_watch_event_of_a_known_version_starts_no_pass() -> None:
    async with serving() as (_, api):
        jobs, passes = Jobs(api), list[Key]()
        for version in (10, 10, 9, 11):
            jobs.update(job("a", version), False, passes.append)
        assert passes == [KEY, KEY]
        jobs.update(job("a", 11), True, passes.append)
        assert passes == [KEY] * 3


async def test_an_answer_never_replaces_newer_news_nor_brings_a_job_back() -> None:
    async with serving() as (fake, api):
        jobs = Jobs(api)
        take(jobs, job("a", 10))
        seen = jobs.get(KEY)
        assert seen is not None
        fake.on(f"PUT {PATH}/status", Answer(job("a", 11)))
        take(jobs, job("a", 12))
        await jobs.write_status(KEY, seen, Status())
        assert known(jobs) == {"a": "12"}
        take(jobs, job("a", 13), deleted=True)
        await jobs.write_status(KEY, seen, Status())
        assert known(jobs) == {}


async def test_a_refresh_forgets_a_job_that_is_gone_and_tells_of_other_trouble() -> None:
    async with serving() as (fake, api):
        jobs = Jobs(api)
        take(jobs, job("a", 10))
        fake.on(f"GET {PATH}", Answer({"message": "busy"}, 503), Answer({}, 404))
        with pytest.raises(ApiError, match="busy"):
            await jobs.refresh(KEY)
        assert known(jobs) == {"a": "10"}
        await jobs.refresh(KEY)
        assert known(jobs) == {}


async def test_the_audit_finds_ghosts_and_what_was_never_told() -> None:
    async with serving() as (fake, api):
        jobs = Jobs(api)
        changed: list[Key] = []
        for raw in (job("kept", 3), job("ghost", 4), job("stale", 6), job("newer-than-the-list", 30)):
            take(jobs, raw)
        fake.on(LIST, listing([job("kept", 3), job("missed", 5), job("stale", 9)], 20))
        await jobs.audit(("",), changed.append)
        assert known(jobs) == {"kept": "3", "missed": "5", "stale": "9", "newer-than-the-list": "30"}
        assert set(changed) == {Key("ns", "ghost"), Key("ns", "missed"), Key("ns", "stale")}


async def test_the_audit_goes_on_after_a_namespace_that_was_deleted(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (fake, api):
        jobs = Jobs(api)
        path = "GET /apis/tftraining.dev/v1/namespaces/{}/tftrainingjobs"
        fake.on(path.format("gone"), Answer({"reason": "Forbidden", "message": "no Role"}, 403))
        fake.on(path.format("ns"), listing([job("missed", 5)], 20))
        await jobs.audit(("gone", "ns"), lambda key: None)
        assert known(jobs) == {"missed": "5"}
        assert "cannot list the jobs in gone: 403 Forbidden: no Role" in caplog.text


def test_a_large_spec_is_kept_packed_and_read_as_it_was() -> None:
    jobs = Jobs(cast(Api, None))
    raw = job("a", 5) | {"spec": {"template": {"env": [str(number) for number in range(20_000)]}}}
    raw["metadata"] |= {"generation": 1, "managedFields": [], "annotations": {APPLIED: "{}", "own": "kept"}}
    jobs.update(raw, False, lambda key: None)
    seen, head = jobs.get(KEY), jobs.head(KEY)
    assert seen is not None and head is not None
    assert seen["spec"] == raw["spec"] and seen["metadata"] is head["metadata"]
    assert seen["metadata"]["annotations"] == {"own": "kept"} and "managedFields" not in seen["metadata"]
    assert isinstance(head["spec"], bytes) and len(head["spec"]) < 60_000
    # A write of the status packs nothing again; a change of the spec does.
    jobs.update(raw | {"metadata": raw["metadata"] | {"resourceVersion": "6"}}, False, lambda key: None)
    assert jobs.all()[0]["spec"] is head["spec"]
    changed = raw | {"spec": {}, "metadata": raw["metadata"] | {"resourceVersion": "7", "generation": 2}}
    jobs.update(changed, False, lambda key: None)
    assert jobs.get(KEY) == jobs.head(KEY) and jobs.all()[0]["spec"] == {}

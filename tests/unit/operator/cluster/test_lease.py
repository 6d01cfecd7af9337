"""The requests that the leader election sends, and the connection that sends writes only while this process leads."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.fake_api_server import Answer, events, serving
from tftraining_api.kube.api import SECONDS_TO_CLOSE, ApiError
from tftraining_operator.cluster.fence import Fence, FencedApi
from tftraining_operator.cluster.lease import LeaderLease, LeaseName
from tftraining_operator.cluster.older_operators import older_operator
from tftraining_operator.model.lease import LeaseClaim, LeaseRecord

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
PODS = "/api/v1/namespaces/system/pods"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def raw(holder: str, version: str) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 14, "leaseTransitions": 3}
    return {"metadata": {"name": "operator", "resourceVersion": version}, "spec": spec}


async def test_a_lease_is_created_changed_at_one_version_and_watched_by_name() -> None:
    async with serving() as (fake, api):
        lease = LeaderLease(api, LeaseName("system", "operator"), lambda: NOW)
        assert await lease.read() is None
        fake.on(f"POST {COLLECTION}", Answer(raw("me", "1"), 201))
        fake.on(f"PATCH {COLLECTION}/operator", Answer(raw("me", "2")), Answer({"reason": "Conflict"}, 409))
        assert await lease.write("me", LeaseClaim("", 0), acquired=True) == LeaseRecord("me", 14, 3, "1")
        assert (await lease.write("me", LeaseClaim("1", 3), acquired=False)).version == "2"
        with pytest.raises(ApiError):
            await lease.write("me", LeaseClaim("1", 3), acquired=False)
        sent = fake.sent[0]
        assert sent["metadata"] == {"resourceVersion": "1"}
        assert sent["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z" and "acquireTime" not in sent["spec"]
        changes = events(("MODIFIED", raw("", "3")), ("DELETED", raw("", "4")))
        fake.on(f"WATCH {COLLECTION}", changes)
        seen = [each async for each in lease.changes("2")]
        assert seen == [LeaseRecord("", 14, 3, "3"), None]
        query = fake.asked[-1][2]
        assert (query["fieldSelector"], query["resourceVersion"]) == ("metadata.name=operator", "2")


async def test_a_lease_of_decades_is_waited_for_no_longer_than_ten_minutes() -> None:
    async with serving() as (fake, api):
        far = raw("other", "1")
        far["spec"]["leaseDurationSeconds"] = 2**31 - 1
        fake.on(f"GET {COLLECTION}/operator", Answer(far))
        assert await LeaderLease(api, LeaseName("system", "operator")).read() == LeaseRecord("other", 600, 3, "1")


async def test_writes_wait_for_the_lease_and_reads_do_not() -> None:
    async with serving() as (fake, api):
        fence = Fence()
        fenced = FencedApi(api, fence)
        fake.on("GET /a", Answer({}))
        fake.on("POST /a", Answer({}))
        assert await fenced.request("GET", "/a") == {}
        waiting = asyncio.create_task(fenced.request("POST", "/a", {}))
        await asyncio.sleep(0.05)
        assert fake.count("POST /a") == 0
        fence.extend(fence.clock() + 5)
        assert await waiting == {}
        fence.close()
        late = asyncio.create_task(fenced.request("DELETE", "/a"))
        await asyncio.sleep(0.05)
        assert not late.done() and fake.count("DELETE /a") == 0
        late.cancel()


async def test_the_end_waits_for_connections_that_a_cancelled_request_of_the_election_has_left() -> None:
    async with serving() as (fake, api):
        fenced = FencedApi(api, Fence())
        fake.on("GET /a", Answer({}))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await api.request("GET", "/a")
        began = time.monotonic()
        await fenced.close()
        assert time.monotonic() - began >= SECONDS_TO_CLOSE


async def test_an_operator_without_election_is_found_by_its_missing_label() -> None:
    async with serving() as (fake, api):
        fake.on(f"GET {PODS}", Answer({"items": [{"metadata": {"name": "old-1"}}]}), Answer({"items": []}))
        assert "old-1" in await older_operator(api, "system", "app=operator")
        assert await older_operator(api, "system", "app=operator") == ""
        assert fake.asked[0][2]["labelSelector"] == "app=operator,!tftraining.dev/leader-election"
        assert await older_operator(api, "system", "") == "" and len(fake.asked) == 2

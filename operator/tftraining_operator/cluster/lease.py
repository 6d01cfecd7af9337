"""Reads, watches and writes the Lease of the leader election. Never decides who leads."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import NamedTuple

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.spec import Manifest
from tftraining_operator.model.lease import LeaseClaim, LeaseRecord

API_VERSION = "coordination.k8s.io/v1"
# The durations of the leader election of kube-controller-manager and of client-go's other users, but for a second less
# of the lease: with its request, a take-over ends within 15 s. Another candidate waits LEASE_SECONDS after the last
# renewal; the leader itself stops RENEW_DEADLINE after it has sent the last renewal.
LEASE_SECONDS = 14
# What another holder may claim: its lease may have any number of seconds, and no election lasts for ever.
LONGEST_LEASE_SECONDS = 600.0
RENEW_DEADLINE = 10.0
RETRY_PERIOD = 2.0
WATCH_SECONDS = 300


class LeaseName(NamedTuple):
    """Namespace and name of a Lease."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class LeaderLease:
    """One Lease of the API server. Methods raise ApiError; `write` with status 409 if the lease has changed since."""

    def __init__(
        self, api: Api, name: LeaseName, wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._api = api
        self.name = name
        self._wall_clock = wall_clock
        self._collection = f"/apis/{API_VERSION}/namespaces/{name.namespace}/leases"
        self._path = f"{self._collection}/{name.name}"

    async def read(self) -> LeaseRecord | None:
        """The lease; None if there is none."""
        try:
            return _record(await self._api.request("GET", self._path))
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def changes(self, version: str) -> AsyncGenerator[LeaseRecord | None, None]:
        """The changes since that version, None for the deletion, until the API server ends the watch."""
        query = [
            ("fieldSelector", f"metadata.name={self.name.name}"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(WATCH_SECONDS)),
        ]
        async with aclosing(self._api.watch(self._collection, query)) as events:
            async for event in events:
                yield None if event["type"] == "DELETED" else _record(event["object"])

    async def write(self, holder: str, claim: LeaseClaim, acquired: bool) -> LeaseRecord:
        """Write the holder, "" to release the lease; `acquired` is whether the holder is a new one."""
        # For people only: no candidate compares these times with its own.
        now = self._wall_clock().isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "leaseTransitions": claim.transitions,
            "renewTime": now,
            **({"acquireTime": now} if acquired else {}),
        }
        if not claim.version:
            body = {"apiVersion": API_VERSION, "kind": "Lease", "metadata": {"name": self.name.name}, "spec": spec}
            return _record(await self._api.request("POST", self._collection, body))
        body = {"metadata": {"resourceVersion": claim.version}, "spec": spec}
        return _record(await self._api.request("PATCH", self._path, body))


def _record(raw: Manifest) -> LeaseRecord:
    spec = raw.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        seconds=min(float(spec.get("leaseDurationSeconds") or LEASE_SECONDS), LONGEST_LEASE_SECONDS),
        transitions=spec.get("leaseTransitions") or 0,
        version=raw["metadata"]["resourceVersion"],
    )

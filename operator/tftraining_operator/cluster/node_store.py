"""A cache of the cluster's nodes, which keeps only the few facts about each that the planner needs.

A reflector feeds the cache, which may lag: a node that it does not have may be a new one. Before a pass acts on a lost
node, it reads the node by name (`look`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.child_store import version
from tftraining_operator.model.node import CONTROL_PLANE, ZONE, Node, Nodes, parse_node, steady_since

PATH = "/api/v1/nodes"
# Parallel reads of one look.
READS = 16


class _Known(NamedTuple):
    version: int
    node: Node


class NodeStore:
    """All nodes by name, with those of their conditions that are `listed`. `clock` returns the time, with a time
    zone."""

    def __init__(self, api: Api, listed: Collection[str] = ()) -> None:
        self._api = api
        self._listed_conditions = listed
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._known: dict[str, _Known] = {}
        self._listed = False
        # Computed from all nodes, so cached instead of computed for each job.
        self._steady_since: dict[str, datetime | None] = {}
        self._outdated = True

    def of(self, names: Collection[str]) -> Nodes | None:
        """These nodes; None until the nodes are listed."""
        if not self._listed:
            return None
        if self._outdated:
            self._steady_since = steady_since([known.node for known in self._known.values()])
            self._outdated = False
        return Nodes({name: self._find(name) for name in names}, self._steady_since)

    async def look(self, names: Iterable[str]) -> None:
        """Read those of these nodes from the API server that are not ready as far as the cache knows, or have a listed
        condition. ApiError if one cannot be read."""
        found = {name: self._find(name) for name in names} if self._listed else {}
        suspects = [name for name, node in found.items() if node.conditions or not node.is_ready]
        limit = asyncio.Semaphore(READS)
        for error in await asyncio.gather(*(self._read(name, limit) for name in suspects), return_exceptions=True):
            if error is not None:
                raise error

    async def _read(self, name: str, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                self.upsert(self.lean(await self._api.request("GET", f"{PATH}/{name}")))
            except ApiError as error:
                if error.status != 404:
                    raise
                self._forget(name)

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The node without its images, addresses and capacity, which are most of its size."""
        meta, status = raw["metadata"], raw.get("status") or {}
        labels = meta.get("labels") or {}
        kept = {name: meta[name] for name in ("name", "resourceVersion", "creationTimestamp") if name in meta}
        return {
            "metadata": {**kept, "labels": {name: labels[name] for name in (ZONE, CONTROL_PLANE) if name in labels}},
            "spec": {"taints": (raw.get("spec") or {}).get("taints")},
            "status": {"conditions": status.get("conditions")},
        }

    def upsert(self, raw: Manifest) -> set[str]:
        """Take in a new or changed node; returns its name if the change matters to its pods (heartbeats do not)."""
        name = raw["metadata"]["name"]
        old, new = self._known.get(name), _Known(version(raw), parse_node(raw, self._listed_conditions))
        if old is not None and old.version >= new.version:
            return set()
        if not new.node.is_ready:
            noticed = old.node.noticed_at if old is not None else None
            new = new._replace(node=msgspec.structs.replace(new.node, noticed_at=noticed or self.clock()))
        self._known[name] = new
        news = old is None or old.node != new.node
        self._outdated |= news
        return {name} if news else set()

    def discard(self, raw: Manifest) -> set[str]:
        """Drop a node that is gone; returns its name if that is new."""
        name = raw["metadata"]["name"]
        return {name} if self._forget(name) else set()

    def replace(self, namespace: str, raws: Iterable[Manifest], listed_at: int) -> set[str]:
        """Take in a whole list: cached nodes missing from it are gone, unless newer. Nodes have no namespace."""
        self._listed = True
        raws = list(raws)
        present = {raw["metadata"]["name"] for raw in raws}
        changed = {name for raw in raws for name in self.upsert(raw)}
        absent = {name for name, known in self._known.items() if name not in present and known.version <= listed_at}
        return changed | {name for name in absent if self._forget(name)}

    def _find(self, name: str) -> Node:
        known = self._known.get(name)
        return Node(name, gone=True) if known is None else known.node

    def _forget(self, name: str) -> bool:
        self._outdated = True
        return self._known.pop(name, None) is not None

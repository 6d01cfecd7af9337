"""A cache of the cluster's nodes, which keeps only the few facts about each that the planner needs.

A reflector feeds the cache. A node that a pod names and the cache does not have is requested by name: the watch of
nodes may lag behind that of pods, and a new node must not be taken for one that is gone.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import NamedTuple

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.child_store import REMEMBERED, version
from tftraining_operator.model.node import Node, Nodes, any_ready_since, parse_node

logger = logging.getLogger(__name__)
PATH = "/api/v1/nodes"
PAUSE = 1.0


class _Known(NamedTuple):
    version: int
    node: Node


class NodeStore:
    """All nodes by name. Calls `changed` with each node that was requested by name, whether it exists or not."""

    def __init__(self, api: Api, changed: Callable[[str], None]) -> None:
        self._api = api
        self._changed = changed
        self._known: dict[str, _Known] = {}
        self._gone: OrderedDict[str, Node] = OrderedDict()
        self._requested: set[str] = set()
        self._requests: asyncio.Queue[str] = asyncio.Queue()
        self._listed = False
        # Computed from all nodes, so cached instead of computed for each job.
        self._any_ready_since: datetime | None = None
        self._outdated = True

    def of(self, names: Collection[str]) -> Nodes | None:
        """The known ones among these nodes; None until the nodes are listed.

        Unknown nodes are requested; `changed` is called with each answer.
        """
        if not self._listed:
            return None
        found = {name: node for name in names if (node := self._find(name)) is not None}
        if self._outdated:
            self._any_ready_since = any_ready_since(known.node for known in self._known.values())
            self._outdated = False
        return Nodes(found, self._any_ready_since)

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The node without its images, addresses and capacity, which are most of its size."""
        meta, status = raw["metadata"], raw.get("status") or {}
        return {
            "metadata": {name: meta[name] for name in ("name", "resourceVersion", "creationTimestamp") if name in meta},
            "spec": {"taints": (raw.get("spec") or {}).get("taints")},
            "status": {"conditions": status.get("conditions")},
        }

    def upsert(self, raw: Manifest) -> set[str]:
        """Take in a new or changed node; returns its name if the change matters to its pods (heartbeats do not)."""
        name = raw["metadata"]["name"]
        old, new = self._known.get(name), _Known(version(raw), parse_node(raw))
        if old is not None and old.version >= new.version:
            return set()
        self._known[name] = new
        was_gone = self._gone.pop(name, None) is not None
        news = was_gone or old is None or old.node != new.node
        self._outdated |= news
        return {name} if news else set()

    def discard(self, raw: Manifest) -> set[str]:
        """Mark a node as gone; returns its name if that is new."""
        name = raw["metadata"]["name"]
        return {name} if self._known.pop(name, None) is not None and self._mark_gone(name) else set()

    def replace(self, namespace: str, raws: Iterable[Manifest], listed_at: int) -> set[str]:
        """Take in a whole list: cached nodes missing from it are gone, unless newer. Nodes have no namespace."""
        self._listed = True
        raws = list(raws)
        present = {raw["metadata"]["name"] for raw in raws}
        changed = {name for raw in raws for name in self.upsert(raw)}
        for name, known in list(self._known.items()):
            if name not in present and known.version <= listed_at:
                del self._known[name]
                self._mark_gone(name)
                changed.add(name)
        return changed

    async def run(self) -> None:
        """Request the unknown nodes by name, until cancelled."""
        while True:
            name = await self._requests.get()
            try:
                self.upsert(await self._api.request("GET", f"{PATH}/{name}"))
            except Exception as error:  # of the request, or of the reading of its answer
                if isinstance(error, ApiError) and error.status == 404:
                    self._mark_gone(name)
                else:
                    logger.warning("cannot check node %s: %s; retrying", name, error)
                    await asyncio.sleep(PAUSE)
            self._requested.discard(name)
            self._changed(name)

    def _find(self, name: str) -> Node | None:
        known = self._known.get(name)
        if known is not None:
            return known.node
        if name not in self._gone and name not in self._requested:
            self._requested.add(name)
            self._requests.put_nowait(name)
        return self._gone.get(name)

    def _mark_gone(self, name: str) -> bool:
        """Record that the node is gone, unless the watch has brought it meanwhile."""
        if name in self._known:
            return False
        self._outdated = True
        self._gone[name] = Node(name, gone=True)
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        return True

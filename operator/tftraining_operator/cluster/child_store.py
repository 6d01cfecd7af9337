"""A cache of one kind of child, by job, fed by the reflector and by the answers to the operator's own writes.

The answers keep a pass from repeating a write before the watch has reported it. Each object is parsed once, on arrival,
and kept in parsed form only: the raw objects of 5,000 pods would take some 100 MiB.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from tftraining_api.model.names import LABEL_JOB, Key
from tftraining_api.model.spec import Manifest
from tftraining_operator.model.observed import Child, parse_child, writes
from tftraining_operator.model.storage_place import StoragePlace, place_of_pod

REMEMBERED = 4096


class ChildStore:
    """Children by job and name. Old versions never replace newer ones, nor restore deleted objects. `forgotten` is
    called with the UID of each object that is cached no longer."""

    def __init__(self) -> None:
        self._jobs: defaultdict[Key, dict[str, Child]] = defaultdict(dict)
        # By namespace and name: labels may change, and a deletion event has only the new ones.
        self._keys: dict[tuple[str, str], Key] = {}
        # Namespace and name of the pods on each node.
        self._nodes: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        # Namespace and name of the pods that write, by volume and path; and by the directories above.
        self._at: defaultdict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        self._below: defaultdict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.forgotten: Callable[[str], None] = lambda uid: None

    def of(self, key: Key) -> list[Child]:
        """The objects that carry the job's name as a label."""
        return list(self._jobs[key].values()) if key in self._jobs else []

    def job_of(self, namespace: str, name: str, uid: str) -> Key | None:
        """The job of the object with that name and UID, if it is cached."""
        key, child = self._find({"namespace": namespace, "name": name})
        return key if child is not None and child.uid == uid else None

    def writers(self, place: StoragePlace) -> list[tuple[Key, Child]]:
        """The pods of jobs that write exactly this directory, with their jobs' keys."""
        named = self._at.get((place.volume, place.path), ())
        return [self._child(each) for each in named if each[0] == place.namespace]

    def writers_near(self, place: StoragePlace) -> Iterator[tuple[Key, Child]]:
        """The pods of jobs that write this directory in another namespace, or one above or below it in any."""
        here = (place.volume, place.path)
        yield from (self._child(each) for each in self._at.get(here, ()) if each[0] != place.namespace)
        for above in place.ancestors:
            yield from map(self._child, self._at.get((place.volume, above), ()))
        yield from map(self._child, self._below.get(here, ()))

    def _indexes(
        self, place: StoragePlace
    ) -> Iterator[tuple[dict[tuple[str, str], set[tuple[str, str]]], tuple[str, str]]]:
        """Where the pods that write this place are found: each index, and the key in it."""
        yield self._at, (place.volume, place.path)
        yield from ((self._below, (place.volume, each)) for each in place.ancestors)

    def _child(self, place: tuple[str, str]) -> tuple[Key, Child]:
        key = self._keys[place]
        return key, self._jobs[key][place[1]]

    def on_node(self, name: str) -> set[Key]:
        """The jobs that have a pod on the node of that name."""
        return {self._keys[place] for place in self._nodes.get(name, ())}

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The object without unused fields; the TF_CONFIGs alone grow with the square of the gang."""
        raw["metadata"].pop("managedFields", None)
        kept = {"nodeName": (raw.get("spec") or {}).get("nodeName"), "place": _place(raw)}
        return {**raw, "spec": {name: value for name, value in kept.items() if value}}

    def upsert(self, raw: Manifest) -> set[Key]:
        """Take in a new or changed object. Returns the key of its job, and of its job by the labels before; nothing for
        a version that is already known."""
        key, meta = job_of(raw), raw["metadata"]
        before, old = self._find(meta)
        newest = max(self._deleted.get(meta["uid"], -1), old.version if old else -1)
        if newest >= version(raw):
            return set()
        child, place = self._parse(raw, old), (meta["namespace"], meta["name"])
        if before is not None:
            self._drop(before, meta["name"])
        if old is not None and old.uid != child.uid:
            self.forgotten(old.uid)
        self._jobs[key][child.name] = child
        self._keys[place] = key
        if child.node:
            self._nodes[child.node].add(place)
        if child.place is not None and writes(child):
            for index, where in self._indexes(child.place):
                index[where].add(place)
        return {key, before or key}

    def _parse(self, raw: Manifest, old: Child | None) -> Child:
        """The object, with the time at which this operator saw that its node is silent."""
        child = parse_child(raw)
        if child.pod is None or child.pod.node_silent_since is None:
            return child
        before = old.pod.silence_noticed_at if old is not None and old.uid == child.uid and old.pod else None
        pod = msgspec.structs.replace(child.pod, silence_noticed_at=before or self.clock())
        return msgspec.structs.replace(child, pod=pod)

    def discard(self, raw: Manifest) -> set[Key]:
        """Drop an object that was deleted or has lost its label; returns the key of its job if it was cached."""
        meta = raw["metadata"]
        return self._forget(meta["namespace"], meta["name"], meta["uid"], version(raw))

    def _forget(self, namespace: str, name: str, uid: str, deleted_at: int) -> set[Key]:
        # With the version: an object that has only lost its label may get the label back, with a newer version.
        self._deleted[uid] = deleted_at
        if len(self._deleted) > REMEMBERED:
            self._deleted.popitem(last=False)
        key, known = self._find({"namespace": namespace, "name": name})
        if key is None or known is None or known.uid != uid:
            return set()
        self._drop(key, name)
        self.forgotten(uid)
        return {key}

    def _find(self, meta: Manifest) -> tuple[Key | None, Child | None]:
        """The cached object of that name, and the job it is cached under, whatever its labels say now."""
        key = self._keys.get((meta["namespace"], meta["name"]))
        return key, self._jobs[key][meta["name"]] if key is not None else None

    def _drop(self, key: Key, name: str) -> None:
        place = (key.namespace, name)
        del self._keys[place]
        child = self._jobs[key].pop(name)
        if child.node:
            self._nodes[child.node].discard(place)
            if not self._nodes[child.node]:
                del self._nodes[child.node]
        if child.place is not None:
            for index, where in self._indexes(child.place):
                index[where].discard(place)
                if not index[where]:
                    del index[where]
        if not self._jobs[key]:
            del self._jobs[key]

    def replace(self, namespace: str, raws: Iterable[Manifest], listed_at: int) -> set[Key]:
        """Take in a whole list: cached objects missing from it are deleted, unless newer than the list.

        Returns the keys of the jobs that the changes concern. An empty `namespace` means all.
        """
        changed: set[Key] = set()
        present = set()
        for raw in raws:
            meta = raw["metadata"]
            present.add(meta["uid"])
            # Skip the objects taken in when their page came: this loop over all objects does not yield.
            known = self._find(meta)[1]
            if known is None or known.version < version(raw):
                changed |= self.upsert(raw)
        return changed | self._forget_absent(self._all(namespace), present, listed_at)

    def replace_job(self, key: Key, raws: Iterable[Manifest], listed_at: int) -> None:
        """Take in the list of one job's objects, as `replace` does."""
        present = set()
        for raw in raws:
            present.add(raw["metadata"]["uid"])
            self.upsert(raw)
        self._forget_absent([(key, child) for child in self.of(key)], present, listed_at)

    def _forget_absent(self, cached: Iterable[tuple[Key, Child]], present: Collection[str], listed_at: int) -> set[Key]:
        """Drop the cached objects that a list does not have, unless they are newer; a watch that lags behind the list
        does not bring them back."""
        changed: set[Key] = set()
        for key, child in cached:
            if child.uid not in present and child.version <= listed_at:
                changed |= self._forget(key.namespace, child.name, child.uid, listed_at)
        return changed

    def _all(self, namespace: str) -> list[tuple[Key, Child]]:
        return [
            (key, child)
            for key, objects in self._jobs.items()
            if namespace in ("", key.namespace)
            for child in objects.values()
        ]


def _place(raw: Manifest) -> StoragePlace | None:
    """The storage that a pod writes; None also for an object that cannot be read, which parse_child tells."""
    try:
        return place_of_pod(raw)
    except Exception:
        return None


def job_of(raw: Manifest) -> Key:
    """The job that the object's label names."""
    meta = raw["metadata"]
    return Key(meta["namespace"], meta.get("labels", {}).get(LABEL_JOB, ""))


def version(raw: Manifest) -> int:
    """The object's resourceVersion as a number: the API server raises it with every write (KEP-5504)."""
    return int(raw["metadata"]["resourceVersion"])

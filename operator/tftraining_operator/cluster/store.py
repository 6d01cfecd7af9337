"""What is known of one kind of child, by job: fed by the reflector, and by the answers to the operator's own writes.

The answers keep a pass from acting twice before the watch has told of the first time.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable

from tftraining_operator.model.names import LABEL_JOB, Key
from tftraining_operator.model.spec import Manifest

REMEMBERED = 4096


class Store:
    """Objects by job and name. Older versions never replace newer ones, and what was deleted does not come back."""

    def __init__(self) -> None:
        self._jobs: defaultdict[Key, dict[str, Manifest]] = defaultdict(dict)
        self._deleted: OrderedDict[str, int] = OrderedDict()

    def of(self, key: Key) -> list[Manifest]:
        """The objects that carry the job's name as a label."""
        return list(self._jobs[key].values()) if key in self._jobs else []

    def on_node(self, name: str) -> set[Key]:
        """The jobs that have a pod on the node of that name."""
        return {
            key for key, pods in self._jobs.items() if any(raw["spec"].get("nodeName") == name for raw in pods.values())
        }

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The object without what no pass asks for: TF_CONFIG alone grows with the square of the gang."""
        raw["metadata"].pop("managedFields", None)
        node = (raw.get("spec") or {}).get("nodeName")
        return {**raw, "spec": {"nodeName": node} if node else {}}

    def upsert(self, raw: Manifest) -> Key | None:
        """Take in a new or changed object; the key of its job if that was news."""
        key, meta = job_of(raw), raw["metadata"]
        if self._deleted.get(meta["uid"], -1) >= version(raw):
            return None
        old = self._jobs[key].get(meta["name"])
        if old is not None and version(old) >= version(raw):
            return None
        self._jobs[key][meta["name"]] = self.lean(raw)
        return key

    def discard(self, raw: Manifest) -> Key | None:
        """Forget an object that was deleted, or has lost its label; the key of its job if it was known."""
        key, meta = job_of(raw), raw["metadata"]
        # By version: what only lost its label may get it back.
        self._deleted[meta["uid"]] = version(raw)
        if len(self._deleted) > REMEMBERED:
            self._deleted.popitem(last=False)
        known = self._jobs[key].get(meta["name"]) if key in self._jobs else None
        if known is None or known["metadata"]["uid"] != meta["uid"]:
            return None
        del self._jobs[key][meta["name"]]
        if not self._jobs[key]:
            del self._jobs[key]
        return key

    def replace(self, namespace: str, raws: Iterable[Manifest], listed_at: int) -> set[Key]:
        """Take in a whole list: what is not in it has been deleted meanwhile, unless it is newer than the list.

        Returns the keys of the jobs that it changes something for. An empty `namespace` stands for all.
        """
        changed, present = set(), set()
        for raw in raws:
            present.add(raw["metadata"]["uid"])
            changed.add(self.upsert(raw))
        for raw in self._all(namespace):
            if raw["metadata"]["uid"] not in present and version(raw) <= listed_at:
                changed.add(self.discard(raw))
        return {key for key in changed if key is not None}

    def _all(self, namespace: str) -> list[Manifest]:
        return [
            raw for key, objects in self._jobs.items() if namespace in ("", key.namespace) for raw in objects.values()
        ]


def job_of(raw: Manifest) -> Key:
    """The job whose name the object carries."""
    meta = raw["metadata"]
    return Key(meta["namespace"], meta.get("labels", {}).get(LABEL_JOB, ""))


def version(raw: Manifest) -> int:
    """The object's resourceVersion as a number: the API server raises it with every write (KEP-5504)."""
    return int(raw["metadata"]["resourceVersion"])

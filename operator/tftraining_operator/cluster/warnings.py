"""What kubelets have last said of the pods of jobs that they cannot start. A reflector feeds it with their events.

Only those of pods that are known to be a job's are kept, a few words each. It never decides whether they still hold.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tftraining_operator.cluster.store import REMEMBERED, version
from tftraining_operator.model.names import Key
from tftraining_operator.model.spec import Manifest
from tftraining_operator.model.warning import Warned, parse_warning

# The API server selects: what a cluster has most of is left out there.
FIELDS = "involvedObject.kind=Pod,type=Warning,reason!=Unhealthy,reason!=BackOff,reason!=FailedScheduling"


class _Known(NamedTuple):
    version: int
    warned: Warned


class Warnings:
    """The last warning about each pod, by the pod's UID. `job_of` knows whose the pod of a namespace and a name is."""

    def __init__(self, job_of: Callable[[str, str], Key | None]) -> None:
        self._job_of = job_of
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def of(self, uid: str) -> Warned | None:
        """The last one about that pod."""
        known = self._known.get(uid)
        return known.warned if known is not None else None

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The event without what nobody asks for."""
        return {name: raw[name] for name in ("metadata", "involvedObject", "reason", "message") if name in raw}

    def upsert(self, raw: Manifest) -> set[Key]:
        """Take in a new or repeated event; the key of the job that it is news for."""
        about, warned = raw.get("involvedObject") or {}, parse_warning(raw)
        key = self._job_of(about.get("namespace", ""), about.get("name", ""))
        uid = about.get("uid", "")
        old = self._known.get(uid)
        if warned is None or key is None or (old is not None and old.version >= version(raw)):
            return set()
        self._known[uid] = _Known(version(raw), warned)
        self._known.move_to_end(uid)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return {key} if old is None or old.warned != warned else set()

    def discard(self, _: Manifest) -> set[Key]:
        """An event that is gone was an hour old: what it said has long come true in the pod's status, or passed."""
        return set()

    def replace(self, _: str, raws: Iterable[Manifest], __: int) -> set[Key]:
        """Take in what is listed."""
        return {key for raw in sorted(raws, key=version) for key in self.upsert(raw)}

"""A cache of kubelets' last warnings about pods that they cannot start. A reflector feeds it with the kubelets' events.

Only warnings about cached pods of jobs are kept, a few words each. Never decides whether a warning still holds.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tftraining_api.model.names import Key
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.child_store import version
from tftraining_operator.model.kubelet_warning import KubeletWarning, parse_kubelet_warning

# Selected by the API server: the most frequent events of a cluster are not sent.
FIELDS = "involvedObject.kind=Pod,type=Warning,reason!=Unhealthy,reason!=BackOff,reason!=FailedScheduling"


class _Known(NamedTuple):
    version: int
    warned: KubeletWarning


class KubeletWarnings:
    """The last warning about each pod, by the pod's UID. `job_of` returns the job of the pod with that namespace, name
    and UID, if it is cached. Anybody may write an event about a pod of his namespace, with any UID in it."""

    def __init__(self, job_of: Callable[[str, str, str], Key | None]) -> None:
        self._job_of = job_of
        self._known: dict[str, _Known] = {}

    def of(self, uid: str) -> KubeletWarning | None:
        """The last warning about the pod."""
        known = self._known.get(uid)
        return known.warned if known is not None else None

    @staticmethod
    def lean(raw: Manifest) -> Manifest:
        """The event without unused fields."""
        return {name: raw[name] for name in ("metadata", "involvedObject", "reason", "message") if name in raw}

    def upsert(self, raw: Manifest) -> set[Key]:
        """Take in a new or repeated event; returns the key of the job if the warning is new."""
        about, warned = raw.get("involvedObject") or {}, parse_kubelet_warning(raw)
        uid = about.get("uid", "")
        # An event may be in its own namespace only, whatever it says of the pod's.
        key = self._job_of(raw["metadata"]["namespace"], about.get("name", ""), uid)
        old = self._known.get(uid)
        if warned is None or key is None or (old is not None and old.version >= version(raw)):
            return set()
        self._known[uid] = _Known(version(raw), warned)
        return {key} if old is None or old.warned != warned else set()

    def forget(self, uid: str) -> None:
        """Forget the warning about a pod that is gone."""
        self._known.pop(uid, None)

    def discard(self, _: Manifest) -> set[Key]:
        """Do nothing: an expired event is an hour old, and its cause is in the pod's status or over by now."""
        return set()

    def replace(self, _: str, raws: Iterable[Manifest], __: int) -> set[Key]:
        """Take in the listed events."""
        return {key for raw in sorted(raws, key=version) for key in self.upsert(raw)}

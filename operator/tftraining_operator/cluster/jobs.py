"""A cache of the jobs, fed by the watch of the custom resource and by the answers to the operator's status writes.

A large spec is kept as compressed JSON, and decoded for each pass: the objects of Python take up to seven times its
size. What no pass needs is not kept: managedFields, and kubectl's copy of the manifest as it was applied.
"""

import logging
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tftraining_api.kube.api import Api, ApiError, encoded
from tftraining_api.model.job import patched_conditions, replaced_status, unset_condition
from tftraining_api.model.names import GROUP, PLURAL, VERSION, Key
from tftraining_api.model.spec import Manifest
from tftraining_api.model.status import Condition, Status
from tftraining_operator.cluster.child_store import version
from tftraining_operator.model.storage_place import StoragePlace, place_of_job

logger = logging.getLogger(__name__)
# Bytes of JSON. A smaller spec is not worth the time of each pass.
LARGE_SPEC = 2**15
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Jobs:
    """Raw TFTrainingJobs by key."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._jobs: dict[Key, Manifest] = {}
        self._places: defaultdict[StoragePlace, set[Key]] = defaultdict(set)
        self._place_of: dict[Key, StoragePlace] = {}

    def get(self, key: Key) -> Manifest | None:
        """The cached job; None if it is unknown or deleted."""
        raw = self._jobs.get(key)
        spec = raw.get("spec") if raw is not None else None
        return {**raw, "spec": msgspec.json.decode(zlib.decompress(spec))} if raw and isinstance(spec, bytes) else raw

    def head(self, key: Key) -> Manifest | None:
        """The cached job, for a look at its metadata and status only: its spec may be packed."""
        return self._jobs.get(key)

    def all(self) -> list[Manifest]:
        """The heads of all jobs, for the metrics."""
        return list(self._jobs.values())

    def keys(self) -> list[Key]:
        """The keys of all jobs."""
        return list(self._jobs)

    def writing(self, place: StoragePlace) -> set[Key]:
        """The jobs whose storage is that place."""
        return self._places.get(place, set())

    def _put(self, key: Key, raw: Manifest | None) -> None:
        """Replace the cached job, or drop it."""
        before, after = self._place_of.pop(key, None), place_of_job(key, raw)
        if before is not None and before != after:
            self._places[before].discard(key)
            if not self._places[before]:
                del self._places[before]
        if after is not None:
            self._places[after].add(key)
            self._place_of[key] = after
        if raw is not None:
            self._jobs[key] = _packed(_lean(raw), self._jobs.get(key))
        else:
            self._jobs.pop(key, None)

    def update(self, raw: Any, deleted: bool, changed: Callable[[Key], None]) -> None:
        """Take in an object from a watch or list; ignored if not newer than the answer to the operator's last write."""
        raw = dict(raw)
        key = _key(raw)
        old = self._jobs.get(key)
        if deleted:
            if old is not None and old["metadata"]["uid"] == raw["metadata"]["uid"]:
                self.forget(key)
        # Watch events of an earlier job of the same name may come late: kopf keeps the order only within one object.
        elif old is None or version(old) < version(raw):
            self._put(key, raw)
        else:
            return
        changed(key)

    def forget(self, key: Key) -> None:
        """Drop a deleted job."""
        self._put(key, None)

    async def write_status(self, key: Key, raw: Manifest, status: Status) -> Manifest:
        """Replace the job's status, but keep fields that only another version of the operator knows; returns the job in
        the answer. ApiError 409 if the job has changed since `raw`, 404 if it is gone."""
        body = {**raw, "status": replaced_status(raw.get("status"), status)}
        return self._keep(key, await self._api.request("PUT", f"{_path(key)}/status", body))

    async def patch_condition(self, key: Key, raw: Manifest, condition: Condition) -> Manifest:
        """Set one condition and keep the rest of the job's status; answer and ApiError as of `write_status`."""
        return await self._patch_status(key, raw, patched_conditions(raw.get("status"), condition))

    async def remove_condition(self, key: Key, raw: Manifest, kind: str) -> None:
        """Remove one condition and keep the rest of the job's status; ApiError as in `write_status`."""
        await self._patch_status(key, raw, unset_condition(raw.get("status"), kind))

    async def _patch_status(self, key: Key, raw: Manifest, status: Manifest) -> Manifest:
        preconditions = {name: raw["metadata"][name] for name in ("uid", "resourceVersion")}
        body = {"metadata": preconditions, "status": status}
        return self._keep(key, await self._api.request("PATCH", f"{_path(key)}/status", body))

    async def delete(self, key: Key, raw: Manifest) -> None:
        """Delete the job and the objects it owns; ApiError 409 if it has changed since `raw`, 404 if it is gone."""
        preconditions = {name: raw["metadata"][name] for name in ("uid", "resourceVersion")}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        logger.info("%s: deleting the job: spec.runPolicy.ttlSecondsAfterFinished is over", key)
        await self._api.request("DELETE", _path(key), {**options, "preconditions": preconditions})

    async def refresh(self, key: Key) -> None:
        """Read the job from the API server, as the watch may lag; drop it if it is gone."""
        try:
            raw = await self._api.request("GET", _path(key))
            if (known := self._jobs.get(key)) is not None and version(known) < version(raw):
                self._keep(key, raw)
        except ApiError as error:
            if error.status != 404:
                raise
            logger.info("%s: the job no longer exists, but its watch event is missing", key)
            self.forget(key)

    def _keep(self, key: Key, raw: Manifest) -> Manifest:
        """The answer, cached unless the watch has already brought a newer version or the deletion. One of the same
        version counts: after a change of the definition the API server reads more of the same object, or less."""
        known = self._jobs.get(key)
        if known is not None and version(known) <= version(raw):
            self._put(key, raw)
        return raw

    async def audit(self, namespaces: Iterable[str], changed: Callable[[Key], None]) -> None:
        """Compare the cache with a list from the API server: kopf does not report jobs that were deleted while its
        watch was broken, nor any change while each watch ends at once. An empty namespace means all; an error in one
        namespace does not affect the others."""
        for namespace in namespaces:
            try:
                await self._audit(namespace, changed)
            except Exception as error:
                where = namespace or "all namespaces"
                logger.warning("cannot list the jobs in %s: %s", where, error)

    async def _audit(self, namespace: str, changed: Callable[[Key], None]) -> None:
        path = f"/apis/{GROUP}/{VERSION}" + (f"/namespaces/{namespace}" if namespace else "")
        raws, listed_at = await self._api.list(f"{path}/{PLURAL}", [])
        present = {raw["metadata"]["uid"] for raw in raws}
        for raw in raws:
            known = self.get(_key(raw))
            if known is None or version(known) < version(raw):
                self.update(raw, deleted=False, changed=changed)
        for raw in self.all():
            gone = namespace in ("", _key(raw).namespace) and raw["metadata"]["uid"] not in present
            if gone and version(raw) <= listed_at:
                self.update(raw, deleted=True, changed=changed)


def _key(raw: Manifest) -> Key:
    return Key(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _path(key: Key) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{key.namespace}/{PLURAL}/{key.name}"


def _lean(raw: Manifest) -> Manifest:
    meta = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    if isinstance(meta.get("annotations"), dict):
        meta["annotations"] = {name: value for name, value in meta["annotations"].items() if name != APPLIED}
    return {**raw, "metadata": meta}


def _packed(raw: Manifest, known: Manifest | None) -> Manifest:
    """The job with its spec packed if that is large. `known` is the job as it was: its spec is used again if it is the
    same, as it is after a write of the status."""
    spec, meta = (known or {}).get("spec"), (known or raw)["metadata"]
    same = all(meta.get(name) == raw["metadata"].get(name) for name in ("uid", "generation"))
    if isinstance(spec, bytes) and same:
        return {**raw, "spec": spec}
    try:
        text = encoded(raw.get("spec"))
    except RecursionError:
        # Nested deeper than this encoder goes.
        return raw
    return raw if len(text) < LARGE_SPEC else {**raw, "spec": zlib.compress(text, level=1)}

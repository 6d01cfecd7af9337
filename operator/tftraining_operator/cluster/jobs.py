"""The jobs as the watch of the custom resource and our own status writes last showed them."""

from collections.abc import Callable
from typing import Any

from tftraining_operator.cluster.api import Api
from tftraining_operator.cluster.store import version
from tftraining_operator.model.job import dump_status
from tftraining_operator.model.names import GROUP, PLURAL, VERSION, Key
from tftraining_operator.model.spec import Manifest
from tftraining_operator.model.status import Status


class Jobs:
    """Raw TFTrainingJobs by key."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._jobs: dict[Key, Manifest] = {}

    def get(self, key: Key) -> Manifest | None:
        """The job as it was last seen."""
        return self._jobs.get(key)

    def all(self) -> list[Manifest]:
        """All jobs, for the metrics."""
        return list(self._jobs.values())

    def take(self, raw: Any, deleted: bool, changed: Callable[[Key], None]) -> None:
        """Take in what the watch tells; a version older than our own last write is no news."""
        raw = dict(raw)
        key = Key(raw["metadata"]["namespace"], raw["metadata"]["name"])
        old = self._jobs.get(key)
        if deleted:
            if old is not None and old["metadata"]["uid"] == raw["metadata"]["uid"]:
                self.forget(key)
        elif old is None or old["metadata"]["uid"] != raw["metadata"]["uid"] or version(old) < version(raw):
            raw["metadata"] = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
            self._jobs[key] = raw
        changed(key)

    def forget(self, key: Key) -> None:
        """The job is gone."""
        self._jobs.pop(key, None)

    async def write_status(self, key: Key, raw: Manifest, status: Status) -> None:
        """Replace the status of the job as it was seen; ApiError 409 if it has changed since, 404 if it is gone."""
        body = {**raw, "status": dump_status(status)}
        self._jobs[key] = _lean(await self._api.request("PUT", f"{_path(key)}/status", body))

    async def refresh(self, key: Key) -> None:
        """Read the job anew, when the watch is known to be behind. ApiError 404 if it is gone."""
        self._jobs[key] = _lean(await self._api.request("GET", _path(key)))


def _path(key: Key) -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{key.namespace}/{PLURAL}/{key.name}"


def _lean(raw: Manifest) -> Manifest:
    raw["metadata"].pop("managedFields", None)
    return raw

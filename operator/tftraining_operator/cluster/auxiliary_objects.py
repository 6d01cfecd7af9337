"""Creates and deletes a job's NetworkPolicy and PodGroup. Their names follow from the job's, so no cache is needed.

Changes and deletions name the object's UID: a request that arrives late, from an operator that leads no longer, does
nothing to a newer object of the name. They do not name the resourceVersion, which the scheduler of a PodGroup changes.

A kind that the cluster does not serve, such as PodGroup without its scheduler, is refused with a message that says so.
"""

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.job import Job
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.errors import WriteRefused

PLURALS = {"NetworkPolicy": "networkpolicies", "PodGroup": "podgroups"}


async def ensure(api: Api, job: Job, manifest: Manifest) -> None:
    """Create the object, or update the spec of the existing one. Raises WriteRefused."""
    child, path = _child(manifest), _path(job, manifest)
    try:
        await _create_or_patch(api, path, manifest)
    except ApiError as error:
        message = _not_served(manifest) if error.status == 404 and not error.reason else error.message
        raise WriteRefused(child, error.status, message, retry_after=error.retry_after) from error


async def remove(api: Api, job: Job, manifest: Manifest) -> None:
    """Delete the object if it exists. Raises WriteRefused."""
    path = f"{_path(job, manifest)}/{manifest['metadata']['name']}"
    try:
        await api.request("DELETE", path, {"preconditions": {"uid": await _uid(api, path)}})
    except ApiError as error:
        if not error.gone:
            raise WriteRefused.to("DELETE", _child(manifest), error) from error


async def _create_or_patch(api: Api, path: str, manifest: Manifest) -> None:
    given = {name: value for name, value in manifest["spec"].items() if value is not None}
    try:
        await api.request("POST", path, {**manifest, "spec": given}, [("fieldValidation", "Strict")])
    except ApiError as error:
        if not error.exists:
            raise
        path = f"{path}/{manifest['metadata']['name']}"
        await api.request("PATCH", path, {"metadata": {"uid": await _uid(api, path)}, "spec": manifest["spec"]})


async def _uid(api: Api, path: str) -> str:
    """The object's UID, from the answer to a patch that changes nothing: the operator may not read these objects."""
    uid: str = (await api.request("PATCH", path, {}))["metadata"]["uid"]
    return uid


def _child(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"


def _path(job: Job, manifest: Manifest) -> str:
    return f"/apis/{manifest['apiVersion']}/namespaces/{job.key.namespace}/{PLURALS[manifest['kind']]}"


def _not_served(manifest: Manifest) -> str:
    what = f"{manifest['kind']} of {manifest['apiVersion']}"
    return f"the cluster has no {what}: install its scheduler, or change spec.runPolicy.scheduling.podGroup"

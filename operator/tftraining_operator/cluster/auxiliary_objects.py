"""Creates and deletes a job's NetworkPolicy and PodGroup. Their names follow from the job's, so no cache is needed.

Changes and deletions name the object's UID: a request that arrives late, from an operator that leads no longer, does
nothing to a newer object of the name. They do not name the resourceVersion, which the scheduler of a PodGroup changes.

A kind that the cluster does not serve, such as PodGroup without its scheduler, is refused with a message that says so.
"""

from tftraining_api.kube.api import Api, ApiError
from tftraining_api.model.job import Job
from tftraining_api.model.names import NATIVE_GANG
from tftraining_api.model.spec import Manifest
from tftraining_operator.cluster.errors import WriteRefused

# Kubernetes keeps the PodGroup of its own scheduler until the last pod of it has ended.
BEING_DELETED = "is being deleted; it is created again when it is gone"
UNKNOWN_KIND = "the server could not find the requested resource"
PLURALS = {"NetworkPolicy": "networkpolicies", "PodGroup": "podgroups"}


async def ensure(api: Api, job: Job, manifest: Manifest) -> None:
    """Create the object, or update the spec of the existing one. Raises WriteRefused."""
    child, path = _child(manifest), _path(job, manifest)
    try:
        if not await _create_or_patch(api, path, manifest):
            raise WriteRefused(child, 409, BEING_DELETED)
    except ApiError as error:
        message = _not_served(manifest) if _is_unknown_kind(error) else error.message
        raise WriteRefused(child, error.status, message, retry_after=error.retry_after) from error


async def remove(api: Api, job: Job, manifest: Manifest) -> None:
    """Delete the object if it exists. Raises WriteRefused."""
    path = f"{_path(job, manifest)}/{manifest['metadata']['name']}"
    try:
        await api.request("DELETE", path, {"preconditions": {"uid": (await _metadata(api, path))["uid"]}})
    except ApiError as error:
        if not error.gone:
            raise WriteRefused.to("DELETE", _child(manifest), error) from error


async def _create_or_patch(api: Api, path: str, manifest: Manifest) -> bool:
    """Whether it is there now, and stays."""
    given = {name: value for name, value in manifest["spec"].items() if value is not None}
    try:
        await api.request("POST", path, {**manifest, "spec": given}, [("fieldValidation", "Strict")])
    except ApiError as error:
        if not error.exists:
            raise
        path = f"{path}/{manifest['metadata']['name']}"
        existing = await _metadata(api, path)
        if existing.get("deletionTimestamp"):
            return False
        await api.request("PATCH", path, {"metadata": {"uid": existing["uid"]}, "spec": manifest["spec"]})
    return True


async def _metadata(api: Api, path: str) -> Manifest:
    """The object's metadata, from the answer to a patch that changes nothing: the operator may not read the object."""
    metadata: Manifest = (await api.request("PATCH", path, {}))["metadata"]
    return metadata


def _child(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"


def _path(job: Job, manifest: Manifest) -> str:
    return f"/apis/{manifest['apiVersion']}/namespaces/{job.key.namespace}/{PLURALS[manifest['kind']]}"


def _is_unknown_kind(error: ApiError) -> bool:
    """Whether the server knows no such kind. It gives a reason if it knows another version of the group."""
    return error.status == 404 and (not error.reason or error.message == UNKNOWN_KIND)


def _not_served(manifest: Manifest) -> str:
    what = f"the cluster has no {manifest['kind']} of {manifest['apiVersion']}"
    if manifest["apiVersion"] == NATIVE_GANG:
        gate = "Kubernetes 1.37 or later serves it with the feature gate GenericWorkload"
        return f"{what}: {gate}; turn that on, or remove spec.runPolicy.scheduling.gang"
    return f"{what}: install its scheduler, or change spec.runPolicy.scheduling.podGroup"

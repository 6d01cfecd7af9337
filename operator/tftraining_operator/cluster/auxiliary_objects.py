"""Makes and removes what stands beside the pods of a job. Their names are the job's own, so nothing needs to be read.

Asked for things that the cluster does not know, such as the PodGroup of a scheduler that is not installed, it says so.
"""

from tftraining_operator.cluster.api import Api, ApiError
from tftraining_operator.cluster.refused import Refused
from tftraining_operator.model.job import Job
from tftraining_operator.model.spec import Manifest

PLURALS = {"NetworkPolicy": "networkpolicies", "PodGroup": "podgroups"}


async def ensure(api: Api, job: Job, manifest: Manifest) -> None:
    """Create the object, or bring the spec of the one that is there up to date. Raises Refused."""
    child, path = _child(manifest), _path(job, manifest)
    try:
        await _create_or_patch(api, path, manifest)
    except ApiError as error:
        message = _not_served(manifest) if error.status == 404 and not error.reason else error.message
        raise Refused(child, error.status, message) from error


async def remove(api: Api, job: Job, manifest: Manifest) -> None:
    """Delete the object, if it is there. Raises Refused."""
    try:
        await api.request("DELETE", f"{_path(job, manifest)}/{manifest['metadata']['name']}")
    except ApiError as error:
        if not error.gone:
            raise Refused.to("DELETE", _child(manifest), error) from error


async def _create_or_patch(api: Api, path: str, manifest: Manifest) -> None:
    given = {name: value for name, value in manifest["spec"].items() if value is not None}
    try:
        await api.request("POST", path, {**manifest, "spec": given}, [("fieldValidation", "Strict")])
    except ApiError as error:
        if not error.exists:
            raise
        await api.request("PATCH", f"{path}/{manifest['metadata']['name']}", {"spec": manifest["spec"]})


def _child(manifest: Manifest) -> str:
    return f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"


def _path(job: Job, manifest: Manifest) -> str:
    return f"/apis/{manifest['apiVersion']}/namespaces/{job.key.namespace}/{PLURALS[manifest['kind']]}"


def _not_served(manifest: Manifest) -> str:
    what = f"{manifest['kind']} of {manifest['apiVersion']}"
    return f"the cluster knows no {what}: install its scheduler, or change spec.runPolicy.scheduling.podGroup"

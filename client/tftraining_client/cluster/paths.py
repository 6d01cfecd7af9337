"""The paths of the API server. A name is one segment of a path, whatever it contains: it leads nowhere else. Pure."""

from urllib.parse import quote

from tftraining_api.model.names import GROUP, PLURAL, VERSION
from tftraining_client.errors import UserError


def segment(name: str) -> str:
    """The name as one segment of a path. UserError for one that would be none, and for those that mean a directory."""
    if name in ("", ".", ".."):
        raise UserError(f"{name!r} is no name of an object of Kubernetes")
    return quote(name, safe="")


def collection(base: str, namespace: str, plural: str) -> str:
    """The objects of a kind in a namespace, in all if that is empty. `base` is /api/v1 or /apis/GROUP/VERSION."""
    return f"{base}/{f'namespaces/{segment(namespace)}/' if namespace else ''}{plural}"


def jobs_path(namespace: str) -> str:
    """The TFTrainingJobs."""
    return collection(f"/apis/{GROUP}/{VERSION}", namespace, PLURAL)


def core_path(namespace: str, plural: str) -> str:
    """Objects of core/v1, such as pods."""
    return collection("/api/v1", namespace, plural)


def object_path(objects: str, name: str, subresource: str = "") -> str:
    """One object of a collection."""
    return f"{objects}/{segment(name)}" + (f"/{subresource}" if subresource else "")

"""The program in a manifest: spec.code, and the ConfigMap with the archive or its place in the storage. Pure."""

import base64
import re
from collections.abc import Mapping
from typing import Any

from tftraining_api.manifests.code import KEY
from tftraining_api.model.names import LABEL_JOB
from tftraining_client.code.package import REMEDY, Package, file_list, mebibytes
from tftraining_client.errors import UserError

Manifest = dict[str, Any]
LIMIT = 900 << 10  # bytes of the archive: a ConfigMap has at most 1 MiB
DIRECTORY = ".tftraining-code"  # in the job's directory
OF_ONE_POD = ("emptyDir", "ephemeral")
# kubectl apply keeps the object in an annotation of at most 256 KiB; base64 takes a third more than the archive.
ANNOTATION_LIMIT = 180 << 10
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# A host with a port, and a path: what looks so and has another "@" has a password with a "/".
_HTTPS = re.compile(r"https://([^/@:\s\[\]]+|\[[0-9A-Fa-f:.]+\])(:\d+)?/[^@\s]+")


def with_package(job: Mapping[str, Any], package: Package) -> tuple[Manifest, Manifest]:
    """The job with the package as its program, and the ConfigMap of the package."""
    name = config_map_name(_name(job), package)
    code = {"configMap": {"name": name}, "digest": package.digest}
    return _with_code(job, code), config_map(job, name, package)


def is_large(package: Package) -> bool:
    """Whether a ConfigMap cannot hold the archive."""
    return len(package.data) > LIMIT


def with_upload(job: Mapping[str, Any], package: Package) -> Manifest:
    """The job with the archive in its storage as its program. UserError if the job has no storage of its own.

    The name of the archive has that of the job, so that jobs that share a directory do not share an archive, and the
    digest, so that another program never takes the place of one that a job uses.
    """
    storage = (job.get("spec") or {}).get("storage") or {}
    volume = storage.get("volume") or {}
    if not volume or set(volume) & set(OF_ONE_POD):
        why = "which each pod has for itself" if volume else "which the job does not have"
        raise UserError(
            f"the code has {mebibytes(len(package.data))} as an archive, a ConfigMap at most {LIMIT >> 10} KiB: a "
            f"larger one goes into a volume that the pods share (spec.storage), {why}; the largest files: "
            f"{file_list(package.largest)}: {REMEDY}, or use --git URL@SHA, or an image with the program"
        )
    name = _name(job)
    path = f"{storage.get('directory') or name}/{DIRECTORY}/{name}.{package.digest.removeprefix('sha256:')}.tar.gz"
    return _with_code(job, {"storage": {"path": path}, "digest": package.digest})


def config_map_name(job: str, package: Package) -> str:
    """The name of the ConfigMap: another package of the same job has another name."""
    return f"{job}-code-{package.digest.removeprefix('sha256:')[:12]}"


def config_map(job: Mapping[str, Any], name: str, package: Package) -> Manifest:
    """The ConfigMap of the package."""
    namespace = (job.get("metadata") or {}).get("namespace")
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": {LABEL_JOB: _name(job)}}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "binaryData": {KEY: base64.b64encode(package.data).decode()},
    }


def renamed(job: Mapping[str, Any], archive: Manifest, name: str) -> tuple[Manifest, Manifest]:
    """The job and the ConfigMap of its package, with another name for the ConfigMap."""
    code = {**job["spec"]["code"], "configMap": {"name": name}}
    return _with_code(job, code), {**archive, "metadata": {**archive["metadata"], "name": name}}


def with_git(job: Mapping[str, Any], address: str, secret: str | None = None) -> Manifest:
    """The job with a commit as its program. `address` is URL@SHA; `secret` names the Secret of a private repository."""
    url, revision = parse_git(address)
    source = {"url": url, "revision": revision, **({"secretName": secret} if secret else {})}
    return _with_code(job, {"git": source})


def parse_git(address: str) -> tuple[str, str]:
    """The URL and the commit of URL@SHA; UserError for anything but the full SHA of a commit."""
    url, at, revision = address.rpartition("@")
    if not at or "/" in revision:
        raise UserError(f"--git {_shown(address)}: must be URL@SHA; `git rev-parse HEAD` prints the SHA of the commit")
    if not _SHA.fullmatch(revision):
        raise UserError(
            f"--git {_shown(address)}: its end is not the full SHA of a commit: a branch or a tag may change while "
            "the job runs; `git rev-parse HEAD` prints it"
        )
    if not _HTTPS.fullmatch(url):
        raise UserError(
            f"--git {_shown(address)}: must be an https URL without a name or a password; a private repository "
            "needs --git-secret NAME, a Secret of the type kubernetes.io/basic-auth"
        )
    return url, revision


def needs_server_side_apply(archive: Manifest) -> bool:
    """Whether the ConfigMap is too large for the annotation of a plain `kubectl apply`."""
    return len(base64.b64decode(archive["binaryData"][KEY])) > ANNOTATION_LIMIT


def _shown(address: str) -> str:
    """The address, but for what may be a name, a password or a token: of a password any character may be part."""
    scheme, slashes, rest = address.partition("://")
    before, at, _ = (rest if slashes else scheme).rpartition("@")
    # Only a host with a path is certainly neither.
    harmless = not at or ("/" in before and not set(":@") & set(before))
    return address if harmless else f"{scheme if slashes else ''}{slashes}…"


def _with_code(job: Mapping[str, Any], code: Manifest) -> Manifest:
    spec = job.get("spec")
    if not isinstance(spec, Mapping):
        raise UserError("the manifest has no spec")
    return {**job, "spec": {**spec, "code": code}}


def _name(job: Mapping[str, Any]) -> str:
    name = (job.get("metadata") or {}).get("name")
    if not isinstance(name, str) or not name:
        raise UserError("the manifest has no metadata.name: the ConfigMap of the code is named after the job")
    return name

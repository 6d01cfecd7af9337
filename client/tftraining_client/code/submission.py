"""The program in a manifest: spec.code, and the ConfigMap with the archive. Pure."""

import base64
import re
from collections.abc import Mapping
from typing import Any

from tftraining_api.manifests.code import KEY
from tftraining_api.model.names import LABEL_JOB
from tftraining_client.code.package import REMEDY, Package, named
from tftraining_client.errors import UserError

Manifest = dict[str, Any]
LIMIT = 900 << 10  # bytes of the archive: a ConfigMap has at most 1 MiB
# kubectl apply keeps the object in an annotation of at most 256 KiB; base64 takes a third more than the archive.
ANNOTATION_LIMIT = 180 << 10
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_HTTPS = re.compile(r"https://[^/@\s]+/\S+")


def with_package(job: Mapping[str, Any], package: Package, limit: int | None = LIMIT) -> tuple[Manifest, Manifest]:
    """The job with the package as its program, and the ConfigMap of the package. UserError if it is too large."""
    if limit is not None and len(package.data) > limit:
        raise UserError(
            f"the code has {len(package.data) / 2**20:.1f} MiB as an archive, a ConfigMap at most {limit >> 10} KiB; "
            f"the largest files: {named(package.largest)}: {REMEDY}, or use --git URL@SHA, or an image with the program"
        )
    name = config_map_name(_name(job), package)
    code = {"configMap": {"name": name}, "digest": package.digest}
    return _with_code(job, code), config_map(job, name, package)


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
        raise UserError(f"--git {address}: must be URL@SHA; `git rev-parse HEAD` prints the SHA of the commit")
    if not _SHA.fullmatch(revision):
        raise UserError(
            f"--git {address}: {revision!r} is not the full SHA of a commit: a branch or a tag may change while the "
            "job runs; `git rev-parse HEAD` prints it"
        )
    if not _HTTPS.fullmatch(url):
        raise UserError(
            f"--git {_without_password(url)}: must be an https URL without a name or a password; a private repository "
            "needs --git-secret NAME, a Secret of the type kubernetes.io/basic-auth"
        )
    return url, revision


def needs_server_side_apply(archive: Manifest) -> bool:
    """Whether the ConfigMap is too large for the annotation of a plain `kubectl apply`."""
    return len(base64.b64decode(archive["binaryData"][KEY])) > ANNOTATION_LIMIT


def _without_password(url: str) -> str:
    return re.sub(r"//[^/]*@", "//…@", url)


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

"""Kubeconfig files as kubectl reads them: merged, with paths relative to the file that names them.

Each name must lead to an entry: a user that is not there would be an anonymous one, and a field that is not honoured a
request by somebody else.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tftraining_client.errors import UserError

Json = dict[str, Any]
KINDS = {"clusters": "cluster", "contexts": "context", "users": "user"}
# What the entry of a user may say beside its credentials: the header of a request.
IMPERSONATED = {"as": "Impersonate-User", "as-uid": "Impersonate-Uid", "as-groups": "Impersonate-Group"}


@dataclass(frozen=True)
class KubeEntry:
    """A cluster, a context or a user, and the directory of its file."""

    fields: Json
    directory: Path

    def path(self, name: str) -> str | None:
        """The path at a field."""
        given = self.fields.get(name)
        return os.path.normpath(self.directory / Path(given).expanduser()) if given else None

    def data(self, name: str) -> bytes | None:
        """The bytes at `name`-data, otherwise in the file at `name`."""
        if encoded := self.fields.get(f"{name}-data"):
            return base64.b64decode(encoded, validate=True)
        path = self.path(name)
        return Path(path).read_bytes() if path else None


@dataclass(frozen=True)
class KubeContext:
    """A context with its cluster and its user, which is empty for an anonymous one."""

    name: str
    namespace: str
    cluster: KubeEntry
    user: KubeEntry

    @property
    def server(self) -> str:
        """The address of the API server. As for kubectl, one without a scheme is HTTPS where TLS is spoken of."""
        server = str(self.cluster.fields.get("server") or "").rstrip("/")
        if not server:
            raise ValueError(f"the cluster of context {self.name} has no server")
        spoken = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
        secure = any(self.cluster.fields.get(each) for each in spoken)
        return server if "://" in server else f"{'https' if secure else 'http'}://{server}"

    def impersonating(self, given: Mapping[str, Any]) -> "KubeContext":
        """The context with these fields of its user before the file's own."""
        return replace(self, user=replace(self.user, fields={**self.user.fields, **given})) if given else self

    @property
    def impersonation(self) -> list[tuple[str, str]]:
        """The headers of a request in the name of somebody else."""
        return impersonation(self.user.fields, f"the user of context {self.name}")


def impersonation(fields: Mapping[str, Any], whose: str) -> list[tuple[str, str]]:
    """The headers that the fields of a user mean. ValueError for what nobody is impersonated with."""
    headers = [(header, each) for name, header in IMPERSONATED.items() for each in _texts(fields.get(name))]
    for name, values in (fields.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{_escaped(str(name))}", each) for each in _texts(values)]
    if headers and not fields.get("as"):
        raise ValueError(f"{whose} has as-groups, as-uid or as-user-extra without as")
    return headers


def read_context(files: Sequence[str], wanted: str | None) -> KubeContext:
    """The context, by default the current one; the first file that has an entry counts.

    UserError for a context that is not there; ValueError, KeyError, TypeError or AttributeError for a file of another
    form, OSError and yaml.YAMLError for one that cannot be read.
    """
    found, current = read_entries(files)
    name = wanted or current
    if name not in found["contexts"]:
        raise UserError(_no_context(name, sorted(found["contexts"])))
    context = found["contexts"][name].fields
    user = str(context.get("user") or "")
    if user and user not in found["users"]:
        raise UserError(f"the kubeconfig has no user {user}, which context {name} names")
    cluster = str(context.get("cluster") or "")
    if cluster not in found["clusters"]:
        raise UserError(f"the kubeconfig has no cluster {cluster or 'for it'}, which context {name} names")
    no_user = KubeEntry({}, Path())
    namespace = str(context.get("namespace") or "default")
    return KubeContext(name, namespace, found["clusters"][cluster], found["users"].get(user, no_user))


def read_entries(files: Sequence[str]) -> tuple[dict[str, dict[str, KubeEntry]], str]:
    """The entries of each kind by their names, and the current context; the first file that has one counts."""
    found: dict[str, dict[str, KubeEntry]] = {kind: {} for kind in KINDS}
    current = ""
    for file in files:
        document = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
        current = current or str(document.get("current-context") or "")
        for kind, field in KINDS.items():
            for each in document.get(kind) or ():
                found[kind].setdefault(str(each["name"]), KubeEntry(dict(each.get(field) or {}), Path(file).parent))
    return found, current


def _no_context(wanted: str, known: list[str]) -> str:
    have = f"it has {', '.join(known)}" if known else "it has none"
    if not wanted:
        return f"the kubeconfig has no current context; choose one with --context: {have}"
    return f"the kubeconfig has no context {wanted}: {have}"


def _texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return [str(value)] if value else []


def _escaped(name: str) -> str:
    """The name in a header, with %xx for what no header's name may contain, as client-go writes it."""
    return "".join(
        each
        if (each.isalnum() and each.isascii()) or each in "!#$&'*+-.^_`|~"
        else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in name
    )

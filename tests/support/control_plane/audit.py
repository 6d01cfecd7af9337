"""An API server that writes down every request of a service account, and the permissions that they took.

A permission is (group, resource or resource/subresource, verb), as a rule of RBAC has it.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.deprecated_apis import deprecated_apis

Permission = tuple[str, str, str]
DECISION, DEPRECATED = "authorization.k8s.io/decision", "k8s.io/deprecated"


class AuditedControlPlane(ControlPlane):
    """A control plane whose log has the audit events between its own lines."""

    flags: ClassVar[tuple[str, ...]] = (
        f"--audit-policy-file={Path(__file__).with_name('audit-policy.yaml')}",
        "--audit-log-path=-",
        "--audit-log-mode=blocking",
    )

    def __enter__(self) -> Self:
        """Start, with no deprecated API asked for."""
        self._deprecated: set[str] = set()
        return super().__enter__()

    def restart_apiserver(self, down_seconds: float = 0.0) -> None:
        """The same, and remember what the API server forgets."""
        self._deprecated = self.deprecated_by_anybody()
        super().restart_apiserver(down_seconds)

    def deprecated_by_anybody(self) -> set[str]:
        """The APIs that Kubernetes is going to remove and that somebody has asked for since the start."""
        return self._deprecated | deprecated_apis(self.kubectl("get", "--raw", "/metrics"))

    def audited(self) -> int:
        """The length of the log so far."""
        return self._log.stat().st_size

    def requests_of(self, account: str, decision: str, since: int = 0) -> set[Permission]:
        """The permissions that the account's requests took, of those with that decision: `allow` or `forbid`. `since`
        is an earlier length of the log."""
        return self._annotated(account, DECISION, decision, since)

    def deprecated(self, account: str, since: int = 0) -> set[Permission]:
        """The same of its requests for an API that Kubernetes is going to remove."""
        return self._annotated(account, DEPRECATED, "true", since)

    def _annotated(self, account: str, annotation: str, value: str, since: int) -> set[Permission]:
        return {
            _permission(event["objectRef"], event["verb"])
            for event in audit_events(self._log, since)
            if event["user"]["username"] == account
            and event.get("annotations", {}).get(annotation) == value
            and "resource" in event.get("objectRef", {})
        }

    @property
    def _log(self) -> Path:
        return self.directory / "kube-apiserver.log"


def audit_events(log: Path, since: int = 0) -> Iterator[dict[str, Any]]:
    """The audit events of an API server's log from this position on. The server may be writing the last line still."""
    with log.open(errors="replace") as lines:
        lines.seek(since)
        for line in lines:
            if line.startswith('{"kind":"Event","apiVersion":"audit.k8s.io/') and line.endswith("\n"):
                yield json.loads(line)


def granted(roles: Iterable[dict[str, Any]]) -> set[Permission]:
    """The permissions that the rules of these roles give."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _permission(target: dict[str, str], verb: str) -> Permission:
    subresource = target.get("subresource", "")
    resource = f"{target['resource']}/{subresource}" if subresource else target["resource"]
    return (target.get("apiGroup", ""), resource, verb)

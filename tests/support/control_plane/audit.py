"""An API server that writes down every request, and the permissions that the requests of an account took.

A permission is (group, resource or resource/subresource, verb), as a rule of RBAC has it.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from tests.support.control_plane.apiserver import ControlPlane

Permission = tuple[str, str, str]
DECISION = "authorization.k8s.io/decision"


class AuditedControlPlane(ControlPlane):
    """A control plane whose log has the audit events between its own lines."""

    flags: ClassVar[tuple[str, ...]] = (
        f"--audit-policy-file={Path(__file__).with_name('audit-policy.yaml')}",
        "--audit-log-path=-",
        "--audit-log-mode=blocking",
    )

    def requests_of(self, account: str, decision: str) -> set[Permission]:
        """The permissions that the account's requests took, of those with that decision: `allow` or `forbid`."""
        return {
            _permission(event["objectRef"], event["verb"])
            for event in self._audit_events()
            if event["user"]["username"] == account
            and event.get("annotations", {}).get(DECISION) == decision
            and "resource" in event.get("objectRef", {})
        }

    def _audit_events(self) -> Iterator[dict[str, Any]]:
        with (self.directory / "kube-apiserver.log").open(errors="replace") as log:
            for line in log:
                if line.startswith('{"kind":"Event","apiVersion":"audit.k8s.io/'):
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

"""kubectl on one cluster.

It must never use the person's own kubeconfig: the cluster is always named.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import binaries
from .shell import run


@dataclass(frozen=True)
class Kube:
    """A cluster, by its kubeconfig."""

    kubeconfig: Path

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl and return what it prints; LabError with its complaint when it fails."""
        program = binaries.ensure("kubectl") / "kubectl"
        return run([program, "--kubeconfig", self.kubeconfig, *words], stdin=stdin)

    def get(self, *words: str) -> Any:
        """Return the object, or the list, that `kubectl get` finds."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change these objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

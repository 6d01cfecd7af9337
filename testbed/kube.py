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
    """A cluster, by its kubeconfig. `cache` is where kubectl keeps what it learns of it, instead of in ~/.kube."""

    kubeconfig: Path
    cache: Path | None = None

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl and return what it prints; LabError with its complaint when it fails."""
        return run(self.command(*words), stdin=stdin)

    def command(self, *words: str) -> list[str | Path]:
        """The command line of kubectl with these words, for who runs it in a way of their own. A warning of the API
        server is an error."""
        options = ["--warnings-as-errors", *([f"--cache-dir={self.cache}"] if self.cache else [])]
        return [binaries.ensure("kubectl") / "kubectl", "--kubeconfig", self.kubeconfig, *options, *words]

    def get(self, *words: str) -> Any:
        """Return the object, or the list, that `kubectl get` finds."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change these objects."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

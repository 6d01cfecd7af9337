"""What a person does next in a cluster that `up` leaves running: commands to paste, from the checkout.

It must never run one of them.
"""

import shlex
from pathlib import Path

from .pod_images import REPOSITORY

STORAGE = REPOSITORY / "examples" / "storage" / "test-cluster.yaml"
EXAMPLE = REPOSITORY / "examples" / "multi-worker-digits.yaml"


def export(programs: Path, kubeconfig: Path) -> str:
    """The command that puts the directory of kubectl and helm on the PATH, and names the cluster."""
    return f'export PATH={shlex.quote(str(programs))}:"$PATH" KUBECONFIG={shlex.quote(str(kubeconfig))}'


def commands(with_operator: bool) -> list[str]:
    """The commands that run a first training, in a cluster that has the operator and the claim already or has not."""
    job = _apply(EXAMPLE) if with_operator else _apply(STORAGE, EXAMPLE)
    return [*([] if with_operator else [INSTALL]), job, "kubectl get tftj digits --watch"]


INSTALL = "helm install tftraining charts/tftraining-operator --namespace tftraining-system --create-namespace --wait"


def _apply(*files: Path) -> str:
    return " ".join(["kubectl apply", *(f"-f {path.relative_to(REPOSITORY)}" for path in files)])

"""The operator in a cluster, installed as a person would: by Helm, from the chart of this repository."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import binaries
from .kube import Kube
from .pod_images import REPOSITORY
from .shell import lock, run, step, use, used

CHART = REPOSITORY / "charts" / "tftraining-operator"
NAMESPACE = "tftraining-system"
NAME = "tftraining"
# The faults of nodes are for the training: the lab's own operator is kept on the control plane.
OFF_THE_WORKERS = ("nodeSelector.node-role\\.kubernetes\\.io/control-plane=", "tolerations[0].operator=Exists")


def _helm(kube: Kube, *words: str | Path) -> str:
    program = binaries.ensure("helm") / "helm"
    return run([program, "--kubeconfig", kube.kubeconfig, "--namespace", NAMESPACE, *words])


def install(kube: Kube, image: str, *settings: str) -> str:
    """Install or upgrade the operator with this image and wait until it is ready; return its namespace.

    `settings` are values of the chart as Helm's --set takes them. LabError carries Helm's message when it fails.
    """
    repository, _, tag = image.rpartition(":")
    values = [f"image.repository={repository}", f"image.tag={tag}", *settings]
    flags = [word for value in values for word in ("--set", value)]
    with step("installing the operator"):
        _helm(kube, "upgrade", "--install", NAME, CHART, "--create-namespace", "--wait", "--timeout", "120s", *flags)
    return NAMESPACE


@contextmanager
def session(kube: Kube, image: str, *settings: str) -> Iterator[str]:
    """Give the operator's namespace for as long as the block runs; it is uninstalled by its last user."""
    ours = "operator-by" + str(kube.kubeconfig).replace("/", "-")
    with use(ours):
        with lock(ours):
            namespace = install(kube, image, *settings)
        yield namespace
    with lock(ours):
        if not used(ours):
            uninstall(kube)


def uninstall(kube: Kube) -> None:
    """Remove the operator; the custom resource and its jobs stay, as the chart promises."""
    _helm(kube, "uninstall", NAME, "--wait")

"""The operator in a cluster, installed as a person would: by Helm, from the chart of this repository."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from . import binaries
from .kube import Kube
from .pod_images import REPOSITORY
from .shell import lock, run, step, use, used

CHART = REPOSITORY / "charts" / "tftraining-operator"
NAMESPACE = "tftraining-system"
NAME = "tftraining"
PODS = "app.kubernetes.io/name=tftraining-operator"
WAIT = ("--wait", "--timeout", "120s")
KEPT = "tftraining.dev/kept=true"  # upgrades keep the labels of a release
# The faults of nodes are for the training: the lab's own operator is kept on the control plane.
OFF_THE_WORKERS = ("nodeSelector.node-role\\.kubernetes\\.io/control-plane=", "tolerations[0].operator=Exists")


def helm(kube: Kube, *words: str | Path, program: str = "helm") -> str:
    """Run Helm in the operator's namespace and return its output; LabError with its message when it fails.

    `program` is helm, which is Helm 3, or helm4.
    """
    return run([binaries.ensure(program) / program, "--kubeconfig", kube.kubeconfig, "--namespace", NAMESPACE, *words])


def install(kube: Kube, image: str, *settings: str) -> str:
    """Install or upgrade the operator with this image and wait until it is ready; return its namespace.

    `settings` are values of the chart as Helm's --set takes them. LabError carries Helm's message when it fails.
    """
    return _install(kube, image, settings)


def keep(kube: Kube, image: str, *settings: str) -> str:
    """The same, and no `session` or `tidy` uninstalls it afterwards: a label of the release says so."""
    with lock(_user(kube)):
        return _install(kube, image, settings, f"--labels={KEPT}")


def _install(kube: Kube, image: str, settings: Sequence[str], *options: str) -> str:
    repository, _, tag = image.rpartition(":")
    # A tag can consist of digits alone, which --set takes for a number.
    names = ["--set-string", f"image.repository={repository}", "--set-string", f"image.tag={tag}"]
    flags = [*options, *names, *(word for value in settings for word in ("--set", value))]
    with step("installing the operator"):
        helm(kube, "upgrade", "--install", NAME, CHART, "--create-namespace", *WAIT, *flags)
    return NAMESPACE


@contextmanager
def session(kube: Kube, image: str, *settings: str) -> Iterator[str]:
    """Give the operator's namespace for as long as the block runs; its last user tidies up."""
    ours = _user(kube)
    with use(ours):
        with lock(ours):
            namespace = install(kube, image, *settings)
        yield namespace
    with lock(ours):
        if not used(ours):
            tidy(kube)


def _user(kube: Kube) -> str:
    return "operator-by" + str(kube.kubeconfig).replace("/", "-")


def tidy(kube: Kube) -> None:
    """Uninstall the operator, unless it is there to stay."""
    if NAME not in helm(kube, "list", "--all", "--short", "--selector", KEPT).split():
        uninstall(kube)


def uninstall(kube: Kube) -> None:
    """Remove the operator; the custom resource and its jobs stay, as the chart promises."""
    helm(kube, "uninstall", NAME, "--wait")

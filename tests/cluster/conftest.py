"""Fixtures of the cluster tier: a real cluster for the session, our operator in it, a namespace and storage a test.

Without options this is the lab's own cluster: the one that `make cluster-up` left up, or one for this session.
Where the lab is impossible the tests are skipped with the reason; under CI=true they fail instead.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testbed import cluster as lab
from testbed import release
from testbed.cluster import Cluster
from testbed.kube import Kube
from testbed.shell import Impossible
from tests.support.cluster.training import SICK, local_storage
from tests.support.deprecated_apis import ASKED_ON_PURPOSE, deprecated_apis, deprecations


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name a given cluster."""
    group = parser.getgroup("cluster", "the cluster under test")
    group.addoption("--kubeconfig", help="test in this cluster instead of the lab's own")
    group.addoption("--operator-image", help="with --kubeconfig: the operator image, which that cluster can pull")
    group.addoption("--trainer-image", help="with --kubeconfig: the trainer image, which that cluster can pull")


def _given(config: pytest.Config) -> Cluster | None:
    """Return the cluster that the options name, if they name one."""
    options = [config.getoption(name, None) for name in ("--kubeconfig", "--operator-image", "--trainer-image")]
    if not any(options):
        return None
    if not all(options):
        raise pytest.UsageError("--kubeconfig, --operator-image and --trainer-image belong together: give all three")
    kubeconfig, *images = (str(option) for option in options)
    return Cluster(Kube(Path(kubeconfig)), images)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Give the cluster, which has the current images already; one that `make cluster-up` started is left up."""
    if given := _given(pytestconfig):
        yield given
        return
    with ExitStack() as stack:
        try:
            ours = stack.enter_context(lab.session())
        except Impossible as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no cluster: {error}")
        yield ours


@pytest.fixture(scope="session")
def operator(cluster: Cluster) -> Iterator[str]:
    """Install the operator from the chart and give the namespace it runs in; it is uninstalled by its last user."""
    settings = (*(release.OFF_THE_WORKERS if cluster.nodes else ()), f"nodeConditions.types={{{SICK}}}")
    with release.session(cluster.kube, cluster.images[0], *settings) as namespace:
        yield namespace
        log = cluster.kube.kubectl(
            "logs", f"--selector={release.PODS}", "--tail=-1", "--prefix", "--namespace", namespace
        )
        assert deprecations(log.splitlines()) == []


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Give a namespace of this test's own, under the restricted Pod Security Standard; it is deleted at the end.

    By then nobody may have asked for an API that Kubernetes is going to remove, unless the cluster has other users.
    """
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:30].strip("-")
    name = f"{words}-{secrets.token_hex(2)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield name
    # Its end takes about 10 s, and the next test needs nothing of it.
    cluster.kube.kubectl("delete", "namespace", name, "--wait=false")
    if cluster.nodes:
        assert deprecated_apis(cluster.kube.kubectl("get", "--raw", "/metrics")) <= {ASKED_ON_PURPOSE}


@pytest.fixture
def directory(cluster: Cluster, namespace: str) -> Iterator[Path]:
    """Give the directory of a `local` PersistentVolume that is bound to the claim `training` of the namespace."""
    if cluster.shared is None:
        pytest.skip("only the lab's own nodes share a directory")
    volume, claim = local_storage(namespace)
    directory = cluster.shared / volume["metadata"]["name"]
    directory.mkdir(mode=0o755)
    cluster.kube.apply(volume, claim)
    yield directory
    cluster.kube.kubectl("delete", "persistentvolume", volume["metadata"]["name"], "--wait=false")

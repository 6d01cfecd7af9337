"""Fixtures of the control-plane tier: one API server with the custom resource for the session, one namespace a test.

Where the server cannot be had the tests are skipped with the reason; under CI=true they fail instead.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.audit import AuditedControlPlane
from tests.support.control_plane.fixtures import namespace, operator, shared_operator
from tests.support.control_plane.installation import install_crd
from tests.support.control_plane.jobs import NewJob, TrainingJob
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.deprecated_apis import ASKED_ON_PURPOSE
from tests.support.needed import skip_unless_in_ci

__all__ = ["namespace", "operator", "shared_operator"]


@pytest.fixture(scope="session")
def control_plane() -> Iterator[AuditedControlPlane]:
    """Give a running API server that knows TFTrainingJob."""
    with ExitStack() as stack:
        try:
            plane = stack.enter_context(AuditedControlPlane())
        except LabError as error:
            skip_unless_in_ci(error, "no control plane: ")
        install_crd(plane)
        Node(plane, "node-1").create()
        yield plane
        assert plane.deprecated_by_anybody() <= {ASKED_ON_PURPOSE}, "Kubernetes is going to remove these"


@pytest.fixture
def new_job(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> NewJob:
    """Give a function that applies a job (two workers, unless changed) in the test's namespace."""

    def create(name: str = "job", /, **changes: object) -> TrainingJob:
        job = TrainingJob(control_plane, namespace, name)
        job.create({path.replace("__", "."): value for path, value in changes.items()})
        return job

    return create


@pytest.fixture
def node(control_plane: ControlPlane, namespace: str) -> Iterator[Node]:
    """Give a second node of this test's own; it is gone when the test is over."""
    node = Node(control_plane, f"node-of-{namespace}")
    node.create()
    yield node
    if node.name in control_plane.kubectl("get", "nodes", "--output=name"):
        node.delete()


@pytest.fixture
def garbage_collection(control_plane: ControlPlane) -> Iterator[None]:
    """Let what a deleted object owns be deleted too, as on a real cluster. In all other tests it stays, whatever ran
    before them."""
    control_plane.start_controllers()
    yield
    control_plane.stop_controllers()

"""Fixtures of the control-plane tier: one API server with the custom resource for the session, one namespace a test.

Where the server cannot be had the tests are skipped with the reason; under CI=true they fail instead.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.lab.shell import LabError
from tests.control_plane.apiserver import ControlPlane
from tests.control_plane.installation import install_crd, operator_kubeconfig
from tests.control_plane.jobs import NewJob, TrainingJob
from tests.control_plane.nodes import Node
from tests.control_plane.operator_process import OperatorProcess

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Give a running API server that knows TFTrainingJob."""
    with ExitStack() as stack:
        try:
            plane = stack.enter_context(ControlPlane())
        except LabError as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no control plane: {str(error).splitlines()[0]}")
        install_crd(plane)
        Node(plane, "node-1").create()
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Give a namespace of this test's own; it goes away with the server, its jobs with the test."""
    name = f"test-{next(_numbers)}"
    control_plane.create_namespace(name)
    yield name
    control_plane.request("DELETE", f"/apis/tftraining.dev/v1/namespaces/{name}/tftrainingjobs")


@pytest.fixture(scope="session")
def _operator(control_plane: ControlPlane) -> Iterator[OperatorProcess]:
    with OperatorProcess(operator_kubeconfig(control_plane), control_plane.directory) as operator:
        yield operator


@pytest.fixture
def operator(_operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """Give the operator that all tests share, running; what it said is shown when the test fails."""
    if not _operator.running:
        _operator.start()
    before = len(_operator.log_text())
    yield _operator
    said = _operator.log_text()[before:]
    print(said)
    assert "Traceback" not in said, "the operator's log shows a traceback"


@pytest.fixture
def new_job(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> NewJob:
    """Give a function that applies a job (two workers, unless changed) in the test's namespace."""

    def create(name: str = "job", /, **changes: object) -> TrainingJob:
        job = TrainingJob(control_plane, namespace, name)
        job.create({path.replace("__", "."): value for path, value in changes.items()})
        return job

    return create


@pytest.fixture
def garbage_collection(control_plane: ControlPlane) -> None:
    """Let what a deleted object owns be deleted too, as on a real cluster."""
    control_plane.start_controllers()

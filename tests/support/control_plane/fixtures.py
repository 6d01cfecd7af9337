"""Fixtures that every tier with a real API server has: a namespace a test, and the operator that all tests share.

They take the fixture `control_plane` of the tier whose conftest imports them.
"""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.operator_process import OperatorProcess

_numbers = itertools.count(1)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Give a namespace of this test's own; it goes away with the server, its jobs with the test."""
    name = f"test-{next(_numbers)}"
    control_plane.create_namespace(name)
    yield name
    control_plane.request("DELETE", f"/apis/tftraining.dev/v1/namespaces/{name}/tftrainingjobs")


@pytest.fixture(scope="session")
def shared_operator(control_plane: ControlPlane) -> Iterator[OperatorProcess]:
    """Give the operator of the session; a test may have killed it."""
    with OperatorProcess(operator_kubeconfig(control_plane), control_plane.directory) as operator:
        yield operator


@pytest.fixture
def operator(shared_operator: OperatorProcess) -> Iterator[OperatorProcess]:
    """Give the operator that all tests share, running; what it said is shown when the test fails."""
    if not shared_operator.running:
        shared_operator.start()
    before = len(shared_operator.log_text())
    yield shared_operator
    said = shared_operator.log_text()[before:]
    print(said)
    assert "Traceback" not in said, "the operator's log shows a traceback"

"""Fixtures that every tier with a real API server has: a namespace a test, and the operator that all tests share.

They take the fixture `control_plane` of the tier whose conftest imports them. A test of the operator fails if a request
of the operator was forbidden: the roles of the chart suffice for all that the tests of the tier make it do.
"""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.audit import AuditedControlPlane
from tests.support.control_plane.installation import OPERATOR_ACCOUNT, operator_kubeconfig
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.deprecated_apis import deprecations

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
def operator(
    shared_operator: OperatorProcess, control_plane: AuditedControlPlane, request: pytest.FixtureRequest
) -> Iterator[OperatorProcess]:
    """Give the operator that all tests share, running; what it said is shown when the test fails."""
    if not shared_operator.running:
        shared_operator.start()
    before, audited = len(shared_operator.log_text()), control_plane.audited()
    yield shared_operator
    said = shared_operator.log_text()[before:]
    print(said)
    assert "Traceback" not in said, "the operator's log shows a traceback"
    assert deprecations(said.splitlines()) == []
    assert control_plane.deprecated(OPERATOR_ACCOUNT, audited) == set(), "Kubernetes is going to remove these"
    if "takes_permissions" not in request.keywords:
        # An API server that has just started forbids what it allows a moment later, when it has read the roles.
        allowed = control_plane.requests_of(OPERATOR_ACCOUNT, "allow", audited)
        assert control_plane.requests_of(OPERATOR_ACCOUNT, "forbid", audited) - allowed == set()

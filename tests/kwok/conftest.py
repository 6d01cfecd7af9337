"""Fixtures of the simulated tier: one simulation for the session, a namespace and three nodes a test."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import ClassVar

import pytest

from testbed.binaries import NATIVE_GANGS
from testbed.shell import LabError
from tests.support.control_plane.audit import AuditedControlPlane
from tests.support.control_plane.fixtures import namespace, operator, shared_operator
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.deprecated_apis import ASKED_ON_PURPOSE
from tests.support.kwok import coscheduling, kueue
from tests.support.kwok.jobs import NewJob, SimulatedJob
from tests.support.kwok.nodes import Node
from tests.support.kwok.simulation import Simulation
from tests.support.needed import skip_unless_in_ci

collect_ignore = [] if NATIVE_GANGS else ["test_native_gangs.py"]
__all__ = ["namespace", "operator", "shared_operator"]


class AuditedSimulation(AuditedControlPlane, Simulation):
    """A simulation whose API server writes down the requests of the operator."""

    flags: ClassVar[tuple[str, ...]] = AuditedControlPlane.flags + Simulation.flags


@pytest.fixture(scope="session")
def control_plane() -> Iterator[AuditedSimulation]:
    """Give a running simulation."""
    with ExitStack() as stack:
        try:
            plane = stack.enter_context(AuditedSimulation())
        except LabError as error:
            skip_unless_in_ci(error, "no simulation: ")
        yield plane
        assert plane.deprecated_by_anybody() <= {ASKED_ON_PURPOSE}, "Kubernetes is going to remove these"


@pytest.fixture(scope="session")
def with_kueue(control_plane: Simulation) -> None:
    """Kueue looks after queues, and sees every new pod, from now on."""
    kueue.install(control_plane)


@pytest.fixture(scope="session")
def with_coscheduling(control_plane: Simulation) -> None:
    """The scheduler of scheduler-plugins looks after the pods that name it, from now on."""
    coscheduling.install(control_plane)


@pytest.fixture
def nodes(control_plane: Simulation, namespace: str) -> Iterator[list[Node]]:
    """Give three nodes of this test's own, in a zone that has the namespace's name."""
    found = [Node(control_plane, f"{namespace}-{letter}", namespace) for letter in "abc"]
    for node in found:
        node.create()
    for node in found:
        node.wait_until_usable()
    yield found
    for node in found:
        node.delete()


@pytest.fixture
def new_job(
    control_plane: Simulation, operator: OperatorProcess, namespace: str, nodes: list[Node]
) -> Iterator[NewJob]:
    """Give a function that applies a job (two workers, unless changed) in the test's namespace, on its nodes."""
    made: list[SimulatedJob] = []

    def create(name: str = "job", /, **changes: object) -> SimulatedJob:
        made.append(SimulatedJob(control_plane, namespace, name, nodes))
        made[-1].create({path.replace("__", "."): value for path, value in changes.items()})
        return made[-1]

    yield create
    for job in made:  # before its nodes go
        if not job.is_gone():
            job.delete()

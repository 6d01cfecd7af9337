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
from tests.control_plane.installation import install_crd

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
        yield plane


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """Give a namespace of this test's own; it goes away with the server."""
    name = f"test-{next(_numbers)}"
    control_plane.create_namespace(name)
    return name


@pytest.fixture
def garbage_collection(control_plane: ControlPlane) -> None:
    """Let what a deleted object owns be deleted too, as on a real cluster."""
    control_plane.start_controllers()

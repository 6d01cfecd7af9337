"""Programs of this machine that a test needs: brought along where that can be done."""

import os
from typing import NoReturn

import pytest

from testbed import packages
from testbed.shell import Impossible, LabError
from tests.support.control_plane.server_process import NotServing


def need_or_skip(*programs: str) -> None:
    """See to it that these programs are installed; where that cannot be done the test is skipped, under CI it fails."""
    try:
        packages.need(*programs)
    except Impossible as error:
        skip_unless_in_ci(error, "")


def skip_unless_in_ci(error: LabError, what: str) -> NoReturn:
    """Skip the test for want of what could not be had. A server that was had and does not serve is a failure."""
    if os.environ.get("CI") == "true" or isinstance(error, NotServing):
        raise error
    pytest.skip(f"{what}{str(error).splitlines()[0]}")

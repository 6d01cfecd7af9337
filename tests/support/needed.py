"""Programs of this machine that a test needs: brought along where that can be done."""

import os

import pytest

from testbed import packages
from testbed.shell import Impossible


def need_or_skip(*programs: str) -> None:
    """See to it that these programs are installed; where that cannot be done the test is skipped, under CI it fails."""
    try:
        packages.need(*programs)
    except Impossible as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))

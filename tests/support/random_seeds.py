"""Seeds for simulations under random faults: a few of them in every run, all of them in `make test-faults`."""

from typing import Any

import pytest


def seeds(always: int, in_all: int) -> list[Any]:
    """Parameters `0` to `in_all - 1`, of which only the first `always` are not marked `slow_fault`."""
    return [*range(always), *(pytest.param(seed, marks=pytest.mark.slow_fault) for seed in range(always, in_all))]

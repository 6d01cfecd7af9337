"""Sums over all members of a gang, by which their programs agree. Must never import TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

MOST = 26  # numbers

Sums = Callable[[list[float]], list[float]]


def sums_over(strategy: Any, workers: int) -> Sums:
    """A function that returns the sums of up to MOST numbers over all members: all of them must call it."""

    def sums(numbers: list[float]) -> list[float]:
        if workers == 1:
            return numbers
        constant = sys.modules["tensorflow"].constant
        padded = numbers + [0.0] * (MOST - len(numbers))  # always of one shape, or it is traced again
        values = strategy.experimental_distribute_values_from_function(lambda _: constant(padded))
        replicas = int(strategy.num_replicas_in_sync) // workers
        return [float(each) / replicas for each in strategy.reduce("SUM", values, axis=None).numpy()]

    return sums

"""Sums over all members of a gang, by which their programs agree. Must never import TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

MOST = 26  # numbers

Sums = Callable[[list[float]], list[float]]


def sums_over(strategy: Any, workers: int) -> Sums:
    """A function that returns the sums of up to MOST numbers over all members: all of them must call it."""
    reduced: Any = None

    def sums(numbers: list[float]) -> list[float]:
        nonlocal reduced
        if workers == 1:
            return numbers
        tensorflow = sys.modules["tensorflow"]
        # Not an eager `reduce`: TensorFlow gives it threads with semaphores in /dev/shm, and fails if that is full. A
        # member that fails where the others go on makes the next collective of all of them fail.
        reduced = reduced or tensorflow.function(lambda values: strategy.reduce("SUM", values, axis=None))
        padded = numbers + [0.0] * (MOST - len(numbers))  # always of one shape, or it is traced again
        values = strategy.experimental_distribute_values_from_function(lambda _: tensorflow.constant(padded))
        replicas = int(strategy.num_replicas_in_sync) // workers
        return [float(each) / replicas for each in reduced(values).numpy()]

    return sums

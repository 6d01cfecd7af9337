"""How many members a gang has, and sums over them, by which their programs agree. Must never import TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..surface import Part, Surface

MOST = 26  # numbers

_STRATEGIES = "tensorflow.python.distribute"
SURFACE = Surface(
    "no backups in memory",
    (
        Part(f"{_STRATEGIES}.distribute_lib", "StrategyBase", uses="_should_use_with_coordinator"),
        Part(f"{_STRATEGIES}.distribute_lib", "StrategyExtendedV1._in_multi_worker_mode", "self"),
        Part(
            f"{_STRATEGIES}.collective_all_reduce_strategy",
            "CollectiveAllReduceExtended",
            uses="_num_workers _id_in_cluster",
        ),
    ),
)


def members_of(strategy: Any) -> int:
    """How many members train together under this strategy."""
    extended = strategy.extended
    with_coordinator = getattr(strategy, "_should_use_with_coordinator", False)
    return int(extended._num_workers) if not with_coordinator and extended._in_multi_worker_mode() else 1


def writes_under(strategy: Any) -> bool:
    """Whether this member is the one that writes to the storage."""
    return members_of(strategy) == 1 or bool(strategy.extended.should_checkpoint)


Sums = Callable[[list[float]], list[float]]
Totals = Callable[[list[Any]], list[Any]]


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


def totals_over(strategy: Any, workers: int) -> Totals:
    """A function that returns the sums of arrays over all members: all of them must call it, with equal shapes."""
    reduced: Any = None

    def totals(arrays: list[Any]) -> list[Any]:
        nonlocal reduced
        if workers == 1 or not arrays:
            return arrays
        tensorflow, numpy = sys.modules["tensorflow"], sys.modules["numpy"]
        reduced = reduced or tensorflow.function(lambda values: strategy.reduce("SUM", values, axis=None))
        flat = numpy.concatenate([numpy.asarray(each, "float64").ravel() for each in arrays])
        replicas = int(strategy.num_replicas_in_sync) // workers
        values = strategy.experimental_distribute_values_from_function(lambda _: tensorflow.constant(flat))
        found, split, begin = reduced(values).numpy() / replicas, [], 0
        for each in map(numpy.asarray, arrays):
            split.append(found[begin : begin + each.size].reshape(each.shape).astype(each.dtype))
            begin += each.size
        return split

    return totals

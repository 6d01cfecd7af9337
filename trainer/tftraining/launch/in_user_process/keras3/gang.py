"""The gang that a strategy of TensorFlow trains with."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any


def has_several_workers(strategy: Any) -> bool:
    """Whether this is a MultiWorkerMirroredStrategy with several workers."""
    if strategy is None or getattr(strategy, "_should_use_with_coordinator", False):
        return False
    extended = strategy.extended
    return bool(extended._in_multi_worker_mode()) and int(extended._num_workers) > 1


_gather: weakref.WeakKeyDictionary[Any, Callable[[Any], Any]] = weakref.WeakKeyDictionary()


def saves_together(model: Any) -> bool:
    """Whether a save of the model reads a variable by a collective, so that all members must save: a variable of which
    each replica has a part."""
    held = [*model.weights, *getattr(model.optimizer, "variables", ())]
    return any(getattr(getattr(each.value, "synchronization", None), "name", "") == "ON_READ" for each in held)


def gathered(strategy: Any, numbers: list[int]) -> list[list[int]]:
    """The numbers of each replica of all members: all of them must call it, with as many numbers."""
    tensorflow = sys.modules["tensorflow"]
    row = [numbers]
    values = strategy.experimental_distribute_values_from_function(lambda _: tensorflow.constant(row, "int64"))
    if (gather := _gather.get(strategy)) is None:  # not eager: see member_sums.py
        itself = weakref.proxy(strategy)
        gather = _gather[strategy] = tensorflow.function(lambda each: itself.gather(each, axis=0), autograph=False)
    return [list(map(int, each)) for each in gather(values).numpy()]

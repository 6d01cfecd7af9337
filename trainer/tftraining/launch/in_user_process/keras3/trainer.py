"""The trainer of Keras 3: how it builds a model, reduces the results of a step, and takes steps (causes 1, 2 and 7)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ..surface import Part
from .gang import has_several_workers

MODULE = "keras.src.backend.tensorflow.trainer"
PARTS = (
    Part(MODULE, "TensorFlowTrainer", uses="run_eagerly jit_compile steps_per_execution reset_metrics"),
    Part(MODULE, "TensorFlowTrainer._maybe_symbolic_build", "self iterator data_batch", "_symbolic_build"),
    Part(MODULE, "TensorFlowTrainer._make_function", "self step_function", "reduce_per_replica get_next_as_optional"),
    Part(MODULE, "TensorFlowTrainer.make_train_function", "self force", "train_function _make_function"),
    Part(MODULE, "TensorFlowTrainer.make_test_function", "self force", "test_function _make_function"),
    Part(MODULE, "TFEpochIterator", uses="_distributed_dataset experimental_distribute_dataset"),
    Part(MODULE, "reduce_per_replica", "values strategy reduction"),
)


def patch(module: Any, begin: Callable[[Any], None]) -> None:
    """Extend the trainer. `begin` is called with the strategy at each use with several workers."""
    trainer = module.TensorFlowTrainer
    build, make, reduce = trainer._maybe_symbolic_build, trainer._make_function, module.reduce_per_replica

    @functools.wraps(build)
    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if not has_several_workers(strategy):
            build(self, iterator, data_batch)
            return
        begin(strategy)
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch if iterator is None else _replica_batch(module.tree, iterator))

    @functools.wraps(reduce)
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction == "concat" or not has_several_workers(strategy):
            return reduce(values, strategy, reduction)
        operation = "SUM" if reduction == "sum" else "MEAN"  # of scalars, which have no axis 0
        return module.tree.map_structure(lambda value: strategy.reduce(operation, value, axis=None), values)

    @functools.wraps(make)
    def _make_function(self: Any, step_function: Any) -> Any:
        if not has_several_workers(self._distribute_strategy):
            return make(self, step_function)
        return _Steps(self, step_function, module.reduce_per_replica).take

    trainer._maybe_symbolic_build, trainer._make_function = _maybe_symbolic_build, _make_function
    module.reduce_per_replica = reduce_per_replica


def _replica_batch(tree: Any, iterator: Any) -> Any:
    """What a replica gets of a batch: its specs, so no batch is taken. Keras reduces a batch by MEAN, the whole
    structure as one tensor."""
    dataset = iterator._distributed_dataset

    def of_replica(each: Any) -> Any:
        found = getattr(each, "_value_specs", None)  # of a PerReplicaSpec
        return found[0] if found else each

    specs = tree.map_structure(of_replica, dataset.element_spec)
    if all(getattr(each, "shape", None) is not None and each.shape.rank is not None for each in tree.flatten(specs)):
        return specs
    local = iterator._distribute_strategy.experimental_local_results  # of a generator without shapes
    return tree.map_structure(lambda each: local(each)[0], next(iter(dataset)))


class _Steps:
    """Takes a batch first, then runs a step on it. Keras takes the batch within the graph of the step: where the data
    ends that graph runs in part, and counts a step (up to Keras 3.15); the graph of several steps cannot be traced."""

    def __init__(self, model: Any, step_function: Any, reduce: Callable[..., Any]) -> None:
        tensorflow, strategy = sys.modules["tensorflow"], model._distribute_strategy
        self._model, self._distributed = model, tensorflow.distribute.DistributedIterator

        @tensorflow.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def step(data: Any) -> Any:
            return reduce(strategy.run(step_function, args=(data,)), strategy, "auto")

        def compiled(function: Any, **more: Any) -> Any:
            return function if model.run_eagerly else tensorflow.function(function, reduce_retracing=True, **more)

        step = compiled(step, jit_compile=model.jit_compile)
        self._step = model._autoconvert_optionals(step) if hasattr(model, "_autoconvert_optionals") else step
        # Without autograph: at each restart the source of both would be converted to what it is.
        self._next = compiled(lambda iterator: iterator.get_next_as_optional(), autograph=False)
        self._run = compiled(lambda optional: self._step(optional.get_value()), autograph=False)

    def take(self, iterator: Any) -> Any:
        """Up to `steps_per_execution` steps; the logs of the last one. StopIteration at the end of the data."""
        logs = None
        for _, batch in zip(range(self._model.steps_per_execution), self._batches(iterator)):
            logs = batch()
        if logs is None:
            raise StopIteration
        return logs

    def _batches(self, iterator: Any) -> Any:
        if not isinstance(iterator, self._distributed):  # that of train_on_batch
            yield from (functools.partial(self._step, data) for data in iterator)
            return
        while (optional := self._next(iterator)).has_value():
            yield functools.partial(self._run, optional)

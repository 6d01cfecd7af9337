"""The moving statistics of Keras 3, such as those of BatchNormalization: each worker has its own (causes 3 and 6)."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..surface import Part
from .gang import has_several_workers

MODULE = "keras.src.layers.normalization.batch_normalization"
PARTS = (
    Part(MODULE, "BatchNormalization", uses="moving_mean moving_variance synchronized _moments"),
    Part(MODULE, "BatchNormalization._moments", "self inputs mask"),
    Part("keras.src.layers.layer", "Layer", uses="_flatten_layers _non_trainable_variables trainable"),
    Part("keras.src.backend.common.variables", "Variable.__init__", uses="_synchronization"),  # from Keras 3.10 on
    Part("keras.src.backend.tensorflow.core", "Variable._initialize", uses="aggregation synchronization _value"),
)
_averages: weakref.WeakKeyDictionary[Any, tuple[tuple[int, ...], Callable[[], Any]]] = weakref.WeakKeyDictionary()


def patch(module: Any) -> None:
    """Extend `_moments`: a worker whose share of a batch is empty has none, and keeps the statistics as they are."""
    cls = module.BatchNormalization
    moments = cls._moments

    @functools.wraps(moments)
    def _moments(self: Any, inputs: Any, mask: Any) -> Any:
        mean, variance = moments(self, inputs, mask)
        tensorflow = sys.modules["tensorflow"]
        alone = not has_several_workers(tensorflow.distribute.get_strategy())
        if alone or self.synchronized or not isinstance(inputs, tensorflow.Tensor):
            return mean, variance
        empty, kept = tensorflow.equal(tensorflow.size(inputs), 0), (self.moving_mean, self.moving_variance)
        return tuple(
            tensorflow.where(empty, tensorflow.cast(old, new.dtype), new) for old, new in zip(kept, (mean, variance))
        )

    cls._moments = _moments


def average(model: Any) -> None:
    """Give every replica of all members the average of the model's moving statistics: all of them must call it."""
    variables = list({id(each): each for each in _statistics(model)}.values())
    strategy = getattr(variables[0], "distribute_strategy", None) if variables else None
    if not has_several_workers(strategy):
        return
    names = tuple(map(id, variables))
    known, function = _averages.get(model, ((), None))
    if function is None or known != names:
        function = _averaging(strategy, variables)
        _averages[model] = names, function
    function()


def _statistics(model: Any) -> Iterator[Any]:
    """The variables that each replica assigns by itself. Keras 2 has TensorFlow average its own."""
    none = sys.modules["tensorflow"].VariableAggregation.NONE
    for layer in model._flatten_layers():
        if getattr(layer, "trainable", False):
            for variable in getattr(layer, "_non_trainable_variables", ()):
                value: Any = getattr(variable, "value", None)
                if getattr(value, "aggregation", None) == none and value.dtype.is_floating:
                    yield value


def _averaging(strategy: Any, variables: list[Any]) -> Callable[[], Any]:
    tensorflow = sys.modules["tensorflow"]

    def in_replica() -> None:
        # In double precision the average of equal values is that value.
        values = [tensorflow.cast(each.read_value(), tensorflow.float64) for each in variables]
        means = tensorflow.distribute.get_replica_context().all_reduce("MEAN", values)
        for variable, mean in zip(variables, means):
            variable.assign(tensorflow.cast(mean, variable.dtype))

    return tensorflow.function(lambda: strategy.run(in_replica))  # type: ignore[no-any-return]

"""Which variables a model of Keras has, for its copies. Must never import Keras or TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from .variable_values import is_on_read, is_sum, plain, seeds_of, tracked_by, variables_of

_OF_MAKERS = ("apply_gradients", "update_state")  # a method of optimizers, and one of metrics


def metrics_of(model: Any) -> list[Any]:
    """The variables of its metrics."""
    return plain(each for metric in model.metrics for each in metric.variables)


def keras_metrics(model: Any) -> set[int]:
    """The identities of the variables of Keras' own metrics, which Keras creates late, and resets."""
    package = type(model.optimizer).__module__.partition(".")[0]
    own = [each for each in model.metrics if type(each).__module__.partition(".")[0] == package]
    return {id(each) for each in plain(each for metric in own for each in metric.variables)}


def early(model: Any) -> list[Any]:
    """The variables of model and optimizer, each once: the same at the begin of each such `fit`."""
    metrics = {id(each) for each in metrics_of(model)}
    optimizer = model.optimizer
    own = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    # The learning rate is none of the optimizer's `variables` in tf_keras, but tracked.
    found = [*model.variables, *own, *variables_of(optimizer), *_beside(model)]
    return [each for each in plain(found) if id(each) not in metrics]


def all_of(model: Any) -> list[Any]:
    """Every variable once: these, and whatever else BackupAndRestore saves."""
    return plain([*early(model), *variables_of(model), *metrics_of(model)])


def made_by_program(model: Any) -> list[Any]:
    """All variables that the model tracks, without those that optimizers and metrics create by themselves."""
    tracked = sys.modules["tensorflow"].train.TrackableView(model).descendants()
    # Of the class: an attribute of a variable of a strategy may be read from its value, by a collective.
    makers = [each for each in tracked[1:] if any(hasattr(type(each), name) for name in _OF_MAKERS)]
    own = {id(variable) for maker in makers for variable in tracked_by(maker)[0]}
    return [each for each in tracked_by(model)[0] if id(each) not in own]


def differing(layers: Iterable[Any]) -> list[Any]:
    """The variables of Keras 3's layers that members may have with other values: moving statistics. Frozen weights are
    equal, and large."""
    found = plain(each for layer in layers for each in layer._non_trainable_variables)
    return [each for each in found if _can_gather(each)]


def averages(variables: Iterable[Any]) -> list[Any]:
    """Those of which TensorFlow itself keeps a value for each replica: the moving statistics of tf_keras."""
    return [each for each in variables if is_on_read(each) and _can_gather(each) and not each.dtype.is_complex]


def _can_gather(variable: Any) -> bool:
    """Whether a sum in double precision keeps each member's value, and no total over the members is restored."""
    exact = not variable.dtype.is_bool and variable.dtype.name not in ("int64", "uint64")
    return exact and not is_sum(variable)


def _beside(model: Any) -> list[Any]:
    """The counter of steps of tf_keras, or Keras 3's seeds."""
    return [model._train_counter] if hasattr(model, "_train_counter") else seeds_of(model)


def build_optimizer(model: Any) -> None:
    """Create the optimizer's variables, as BackupAndRestore does, and those of a legacy optimizer as its first step
    does: a callback that reads the learning rate would create them in another order."""
    optimizer = model.optimizer
    built = getattr(optimizer, "_built", getattr(optimizer, "built", False))
    if callable(getattr(optimizer, "build", None)) and not built:
        optimizer.build(model.trainable_variables)
    elif callable(create := getattr(optimizer, "_create_all_weights", None)):
        create(model.trainable_variables)

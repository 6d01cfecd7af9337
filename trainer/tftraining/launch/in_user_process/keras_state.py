"""The state of a model of tf_keras that trains: its variables, as this process holds them.

Each value is read and written locally, replica by replica, without a collective. Mirrored variables are equal in all
members; ON_READ variables (the moving averages of BatchNorm) differ, and each replica gets its own back. Must never
import TensorFlow or NumPy: the program has imported them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from .memory_copier import Unsupported

ALIGNMENT = 64


class State:
    """The variables of `model` and its optimizer, and the model's counter of steps. Unsupported if that is not all."""

    def __init__(self, model: Any) -> None:
        self._tf = sys.modules["tensorflow"]
        self._strategy = model.distribute_strategy
        self._model = model
        self._variables = self._collect()
        self._parts = [part for each in self._variables for part in self._strategy.experimental_local_results(each)]
        self._types = [part.dtype.as_numpy_dtype for part in self._parts]
        self._places, self.size = self._layout()

    def signature(self) -> str:
        """A digest of name, dtype, shape and number of local replicas of each variable, in order."""
        told = [
            [each.name, each.dtype.name, each.shape.as_list(), len(self._strategy.experimental_local_results(each))]
            for each in self._variables
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def grown(self) -> bool:
        """Whether the model has other variables than at the start."""
        return [id(each) for each in self._collect()] != [id(each) for each in self._variables]

    def views(self, buffer: Any, start: int) -> list[Any]:
        """An array for each value in this buffer, from byte `start` on."""
        frombuffer = sys.modules["numpy"].frombuffer
        return [
            frombuffer(buffer, kind, count, start + place).reshape(shape)
            for kind, (place, count, shape) in zip(self._types, self._places)
        ]

    def copy_to(self, views: list[Any]) -> None:
        """Copy all values: the part of a backup that the training waits for."""
        read, copy = self._tf.raw_ops.ReadVariableOp, sys.modules["numpy"].copyto
        for part, view in zip(self._parts, views):
            tensor = read(resource=part.handle, dtype=part.dtype)
            # _numpy() shares the memory of the variable, where numpy() would copy it once more.
            copy(view, tensor._numpy() if hasattr(tensor, "_numpy") else tensor.numpy(), casting="no")

    def restore_from(self, views: list[Any]) -> None:
        """Assign all values. Each is copied first: TensorFlow would use the memory of the buffer for the variable."""
        assign, array = self._tf.raw_ops.AssignVariableOp, sys.modules["numpy"].array
        for part, view in zip(self._parts, views):
            assign(resource=part.handle, value=array(view))

    def _collect(self) -> list[Any]:
        """Every variable once. Metrics are left out: Keras resets them at the begin of an epoch."""
        found = self._tf.train.TrackableView(self._model).descendants()
        if strange := next((each for each in found if not self._is_variable(each) and _keeps_state(each)), None):
            raise Unsupported(f"{type(strange).__name__} has state that is no variable")
        metrics = {id(each) for metric in self._model.metrics for each in metric.variables}
        optimizer = self._model.optimizer.variables
        more = [
            *self._model.variables,
            *(optimizer() if callable(optimizer) else optimizer),
            self._model._train_counter,
        ]
        variables = {id(each): each for each in [*filter(self._is_variable, found), *more] if id(each) not in metrics}
        if strange := next((each for each in variables.values() if each.dtype.name in ("string", "variant")), None):
            raise Unsupported(f"the variable {strange.name} has the type {strange.dtype.name}")
        return list(variables.values())

    def _is_variable(self, each: Any) -> bool:
        return isinstance(each, self._tf.Variable)

    def _layout(self) -> tuple[list[tuple[int, int, list[int]]], int]:
        """Byte offset, number of elements and shape of each value; the size of all together."""
        places, end = [], 0
        for part, kind in zip(self._parts, self._types):
            shape = part.shape.as_list()
            count = 1
            for length in shape:
                count *= length
            places.append((end, count, shape))
            end += -(-count * sys.modules["numpy"].dtype(kind).itemsize // ALIGNMENT) * ALIGNMENT
        return places, end


def _keeps_state(each: Any) -> bool:
    """Whether an object brings state of its own into a checkpoint: a lookup table, an iterator."""
    kind = type(each)
    if any(cls.__module__.endswith("trackable.base_delegate") for cls in kind.__mro__):
        return _keeps_state(each._trackable)  # of the optimizer that mixed precision wraps
    base = next((cls for cls in kind.__mro__ if cls.__module__.endswith("trackable.base")), None)
    if base is None:
        return False
    methods = ("_serialize_to_tensors", "_gather_saveables_for_checkpoint")
    return any(getattr(kind, name, None) is not getattr(base, name, None) for name in methods)

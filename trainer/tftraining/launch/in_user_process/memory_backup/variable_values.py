"""The values of variables as this process holds them: their signature, the copy into a buffer and back.

Each value is read and written locally, replica by replica, without a collective. Mirrored variables are equal in all
members; ON_READ variables (the moving averages of BatchNorm) differ, and each replica gets its own back. Must never
import TensorFlow or NumPy: the program has imported them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .copier import Unsupported

ALIGNMENT = 64


class VariableValues:
    """The values of `variables`, a list without repetitions. Unsupported if one has a type without raw bytes."""

    def __init__(self, variables: Sequence[Any], local: Callable[[Any], Sequence[Any]]) -> None:
        """`local` returns a variable's parts in this process: `experimental_local_results` of the strategy."""
        if strange := next((each for each in variables if each.dtype.name in ("string", "variant")), None):
            raise Unsupported(f"the variable {strange.name} has the type {strange.dtype.name}")
        self._tf = sys.modules["tensorflow"]
        self._variables = variables
        self._local = local
        self._parts = [part for each in variables for part in local(each)]
        self._types = [part.dtype.as_numpy_dtype for part in self._parts]
        self._places, self.size = self._layout()

    def signature(self) -> str:
        """A digest of name, dtype, shape and number of local replicas of each variable, in order."""
        told = [[each.name, each.dtype.name, each.shape.as_list(), len(self._local(each))] for each in self._variables]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

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


def variables_of(root: Any) -> list[Any]:
    """The variables that `root` tracks, each once. Unsupported if an object has state that is no variable."""
    tensorflow = sys.modules["tensorflow"]
    found = tensorflow.train.TrackableView(root).descendants()
    variables = {id(each): each for each in found if isinstance(each, tensorflow.Variable)}
    if strange := next((each for each in found if id(each) not in variables and _keeps_state(each)), None):
        raise Unsupported(f"{type(strange).__name__} has state that is no variable")
    return list(variables.values())


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

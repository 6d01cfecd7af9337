"""The values of variables as this process holds them: their signature, the copy into a buffer and back.

Each value is read and written locally, replica by replica, without a collective. Mirrored variables are equal in all
members; ON_READ variables (the moving averages of BatchNorm, the sums of metrics) differ, and each replica gets its own
back. A sum over all members needs more where a member has the copy of another one: then each replica gets its part of
the total, as with a checkpoint. Must never import TensorFlow or NumPy: the program has imported them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from ..surface import Part, Surface

ALIGNMENT = 64
SMALL = 1024  # bytes of a value: a learning rate, a counter
OWN, TOTALS, FETCHED = "own", "totals", "fetched"  # how a member gets the sums of ON_READ variables back
_BASE, _DELEGATE = "tensorflow.python.trackable.base", "tensorflow.python.trackable.base_delegate"
_SAVES = ("_serialize_to_tensors", "_gather_saveables_for_checkpoint")
SURFACE = Surface(
    "no backups in memory",
    (
        *(Part(_BASE, f"Trackable.{each}") for each in _SAVES),
        Part(_DELEGATE, "DelegatingTrackableMixin", uses="_trackable"),
    ),
)
# A variable of Keras 3 holds one of TensorFlow. A layer has more of them than a checkpoint tracks: the seeds of
# Dropout, and those that the layer keeps in a dictionary.
VARIABLES, LAYERS = "keras.src.backend.tensorflow.core", "keras.src.layers.layer"
_GLOBAL = "keras.src.backend.common.global_state"
KERAS_3 = Surface(
    "no backups in memory",
    (
        Part(VARIABLES, "Variable", uses="_value"),
        Part(LAYERS, "Layer.variables", uses="_seed_generators _trainable_variables"),
    ),
)


class Unsupported(Exception):
    """The state cannot be copied; the message says why."""


class VariableValues:
    """The values of `variables`, a list without repetitions. Unsupported if one has strings or variants for values."""

    def __init__(self, variables: Sequence[Any], strategy: Any) -> None:
        """`strategy`: the one whose replicas hold the variables; None without one."""
        strange = next((each for each in variables if each.dtype.name in ("string", "variant")), None)
        if strange is not None:
            raise Unsupported(f"the variable {strange.name} has the type {strange.dtype.name}")
        self._tf = sys.modules["tensorflow"]
        self._variables = variables
        self._local: Callable[[Any], Sequence[Any]] = (
            (lambda each: (each,)) if strategy is None else strategy.experimental_local_results
        )
        self._parts = [part for each in variables for part in self._local(each)]
        self._types = [part.dtype.as_numpy_dtype for part in self._parts]
        self._sums = [each for each in variables if is_sum(each)] if strategy is not None else []
        self._replicas = 1 if strategy is None else int(strategy.num_replicas_in_sync)
        self._places, self.size = self._layout([*self._parts, *self._sums])

    def signature(self) -> str:
        """A digest of name, dtype, shape and number of local replicas of each variable, in order."""
        told = [[each.name, each.dtype.name, each.shape.as_list(), len(self._local(each))] for each in self._variables]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def views(self, buffer: Any, start: int) -> list[Any]:
        """An array for each value in this buffer, from byte `start` on; then one for each sum over the members."""
        frombuffer = sys.modules["numpy"].frombuffer
        kinds = [*self._types, *(each.dtype.as_numpy_dtype for each in self._sums)]
        return [
            frombuffer(buffer, kind, count, start + place).reshape(shape)
            for kind, (place, count, shape) in zip(kinds, self._places)
        ]

    def copy_to(self, views: list[Any]) -> None:
        """Copy all values: the part of a backup that the training waits for."""
        read, copy = self._tf.raw_ops.ReadVariableOp, sys.modules["numpy"].copyto
        for part, view in zip(self._parts, views):
            tensor = read(resource=part.handle, dtype=part.dtype)
            # _numpy() shares the memory of the variable, where numpy() would copy it once more.
            copy(view, tensor._numpy() if hasattr(tensor, "_numpy") else tensor.numpy(), casting="no")

    def replicated(self, views: list[Any], apart: Collection[int]) -> list[tuple[str, list[Any]]]:
        """The name and the copied arrays of each variable that is equal in all replicas: those of the strategy
        that are not ON_READ, and whose id() is not in `apart`."""
        found, place = [], 0
        for each in self._variables:
            arrays = views[place : (place := place + len(self._local(each)))]
            if not (is_on_read(each) or id(each) in apart or getattr(each, "distribute_strategy", None) is None):
                found.append((each.name, arrays))
        return found

    def restore_from(self, views: list[Any], sums: str = OWN, *, but_large: bool = False) -> None:
        """Assign all values. Each is copied first: TensorFlow would use the memory of the buffer for the variable.

        `sums`: OWN restores the sums of this member, TOTALS gives each replica its part of the sums over all members,
        FETCHED begins them at 0, since the copy has those of another member. `but_large`: leave out the large values.
        """
        assign, array = self._tf.raw_ops.AssignVariableOp, sys.modules["numpy"].array
        summed = {} if sums == OWN else self._shares(views, sums)
        for part, view in zip(self._parts, views):
            if not (but_large and view.nbytes > SMALL):
                assign(resource=part.handle, value=summed[id(part)] if id(part) in summed else array(view))

    def _shares(self, views: list[Any], sums: str) -> dict[int, Any]:
        """By the id() of each replica's part of a sum, the value that it gets."""
        totals = views[len(self._parts) :]
        return {
            id(part): (total / self._replicas).astype(total.dtype) if sums == TOTALS else total * 0
            for each, total in zip(self._sums, totals)
            for part in self._local(each)
        }

    @property
    def has_sums(self) -> bool:
        """Whether a checkpoint would save a sum over the members."""
        return bool(self._sums)

    def local_sums(self) -> list[Any]:
        """For each sum over the members, the part of this member."""
        return [sum(part.numpy() for part in self._local(each)) for each in self._sums]

    def set_totals(self, views: list[Any], totals: Iterable[Any]) -> None:
        """Copy the sums over all members into the buffer. Takes one total for each sum, and leaves the rest of an
        iterator to its other readers."""
        for view, total in zip(views[len(self._parts) :], totals):
            view[...] = total

    def is_finite(self) -> bool:
        """Whether all values are finite numbers."""
        finite = sys.modules["numpy"].isfinite
        floating = (part for part in self._parts if part.dtype.is_floating)
        return all(bool(finite(part.numpy().astype("float64")).all()) for part in floating)

    def _layout(self, values: Sequence[Any]) -> tuple[list[tuple[int, int, list[int]]], int]:
        """Byte offset, number of elements and shape of each value; the size of all together."""
        places, end = [], 0
        for each in values:
            shape = each.shape.as_list()
            count = 1
            for length in shape:
                count *= length
            places.append((end, count, shape))
            width = sys.modules["numpy"].dtype(each.dtype.as_numpy_dtype).itemsize
            end += -(-count * width // ALIGNMENT) * ALIGNMENT
        return places, end


def way_of_sums(own: bool, all_own: bool, *, has_totals: bool) -> str:
    """How a member gets the sums back. `own`: the restored copy is the member's own; `all_own`: that holds for all."""
    if all_own or (own and not has_totals):
        return OWN
    return TOTALS if has_totals else FETCHED


def is_sum(variable: Any) -> bool:
    """Whether a checkpoint saves the sum of the replicas' values."""
    return is_on_read(variable) and getattr(getattr(variable, "aggregation", None), "name", "") == "SUM"


def is_on_read(variable: Any) -> bool:
    """Whether each replica has a value of its own."""
    return getattr(getattr(variable, "synchronization", None), "name", "") == "ON_READ"


def variables_of(root: Any) -> list[Any]:
    """The variables that `root` tracks, each once, with all those of Keras 3's layers. Unsupported if an object has
    state that is no variable."""
    variables, others = tracked_by(root)
    if any(each is None for each in others):
        raise Unsupported("a variable of Keras has no value yet: build the model and the optimizer before")
    if others:
        raise Unsupported(f"{type(others[0]).__name__} has state that is no variable")
    return variables


def tracked_by(root: Any) -> tuple[list[Any], list[Any]]:
    """The variables that `root` tracks, and what else has state; None for a variable of Keras without a value."""
    tensorflow = sys.modules["tensorflow"]
    if missing := SURFACE.missing():
        raise Unsupported(f"this TensorFlow is not known: {missing}")
    found = tensorflow.train.TrackableView(root).descendants()
    of_keras_3 = any(is_of(VARIABLES, "Variable", each) or is_of(LAYERS, "Layer", each) for each in found)
    if of_keras_3 and (missing := KERAS_3.missing()):
        raise Unsupported(f"this Keras is not known: {missing}")
    held = [each for tracked in found for each in _held_by(tracked)]
    variables = {id(each): each for each in held if isinstance(each, tensorflow.Variable)}
    others = [each for each in held if id(each) not in variables and (each is None or _keeps_state(each))]
    return list(variables.values()), others


def _held_by(tracked: Any) -> Iterator[Any]:
    """What an object has in place of those of Keras 3: TensorFlow's variables."""
    if is_of(LAYERS, "Layer", tracked):
        yield from map(_plain, tracked.variables)
    yield _plain(tracked)


def plain(variables: Iterable[Any]) -> list[Any]:
    """TensorFlow's variables in place of those of Keras 3, each once."""
    return list({id(each): each for each in map(_plain, variables)}.values())


def seeds_of(model: Any) -> list[Any]:
    """The states of the random number generators of a model of Keras 3; empty for one of tf_keras."""
    if not is_of(LAYERS, "Layer", model):
        return []
    weights = {id(each) for each in plain(model.weights)}
    state = getattr(sys.modules.get(_GLOBAL), "get_global_attribute", None)
    generator = state("global_seed_generator") if state is not None else None  # where the program gives no seed
    own = [each for each in plain(model.variables) if id(each) not in weights]
    return own if generator is None else plain([*own, generator.state])


def _plain(each: Any) -> Any:
    return each._value if is_of(VARIABLES, "Variable", each) else each


def is_of(module: str, name: str, each: Any) -> bool:
    """Whether `each` is an instance of the class `name` of a module, which the program may not have imported."""
    cls = getattr(sys.modules.get(module), name, None)
    return isinstance(cls, type) and isinstance(each, cls)


def _keeps_state(each: Any) -> bool:
    """Whether an object brings state of its own into a checkpoint: a lookup table, an iterator."""
    if isinstance(each, sys.modules[_DELEGATE].DelegatingTrackableMixin):
        return _keeps_state(each._trackable)  # of the optimizer that mixed precision wraps
    base = sys.modules[_BASE].Trackable
    return isinstance(each, base) and any(getattr(type(each), name) is not getattr(base, name) for name in _SAVES)

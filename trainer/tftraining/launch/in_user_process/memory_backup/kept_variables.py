"""The variables of a model of Keras 3 as a file of NumPy's arrays: the end of a `fit`, and what lies beside a backup.

Keras' own file restores the weights and `model.optimizer` alone. Here are all variables that a copy in memory has: also
those of other optimizers and of metrics, seeds, and variables of TensorFlow. An optimizer creates its variables at its
first step, so the file also says which weights it trains. Must never import Keras, TensorFlow or NumPy.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import IO, Any
from zipfile import ZipFile

from ..surface import Part
from .member_sums import members_of, totals_over
from .model_variables import build_optimizer, early, keras_metrics
from .variable_values import KERAS_3, Unsupported, is_of, is_sum, plain, tracked_by

_TRAINS = "weights of optimizer "
_EARLY = "early "
_KERAS = "metric of Keras "  # Keras creates these late, and resets them
_NO_NUMBERS = ("string", "variant")
_BASE = "keras.src.optimizers.base_optimizer"
PARTS = (Part(_BASE, "BaseOptimizer", uses="built _trainable_variables _variables"), *KERAS_3.parts)


class KeptVariables:
    """The present values; of sums over the replicas the totals, for which all members must call it. `beside`: without
    those that Keras' file restores."""

    def __init__(self, model: Any, *, beside: bool = False) -> None:
        self._model = model
        with model.distribute_strategy.scope():
            build_optimizer(model)
        self._variables = _named(model, beside)
        self._local = model.distribute_strategy.experimental_local_results
        sums = {name: each for name, each in self._variables.items() if is_sum(each)}
        totals = totals_over(model.distribute_strategy, members_of(model.distribute_strategy))
        own = [sum(part.numpy() for part in self._local(each)) for each in sums.values()]
        self._totals = dict(zip(sums, totals(own)))

    def write(self, file: IO[bytes]) -> None:
        """Write them, one by one: all at once may take much memory."""
        write_array = sys.modules["numpy"].lib.format.write_array
        with ZipFile(file, "w") as archive:
            for name, array in self._arrays():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    write_array(entry, array, allow_pickle=False)

    def __bool__(self) -> bool:
        return bool(self._variables)

    def _arrays(self) -> Iterator[tuple[str, Any]]:
        numpy = sys.modules["numpy"]
        for number, places in _trained(self._model).items():
            yield f"{_TRAINS}{number}", numpy.asarray(places, "int64")
        for name, each in self._variables.items():
            if name in self._totals:
                yield name, numpy.asarray(self._totals[name])
                continue
            parts = [part.numpy() for part in self._local(each)]
            alike = all(part.tobytes() == parts[0].tobytes() for part in parts[1:])
            yield name, numpy.asarray(parts[0]) if alike else numpy.stack(parts)


def restore(model: Any, file: IO[bytes] | str, *, beside: bool = False) -> None:
    """Restore the variables, and say which ones begin anew: those that callbacks or a step create. LookupError for the
    file of another model, of which some are restored."""
    with sys.modules["numpy"].load(file, allow_pickle=False) as stored:
        _build(model, stored)
        named = _named(model, beside)
        left = {name for name in {*stored.files} ^ {*named} if not name.startswith((_TRAINS, _KERAS))}
        for name in {*named} & {*stored.files}:
            if not _assign(model.distribute_strategy, named[name], stored[name]):
                left.add(name)
    if any(name.startswith(_EARLY) for name in left):
        raise LookupError("the file is of another model")
    if left:
        sys.stderr.write(f"tftraining: begins anew, because the training creates it: {', '.join(sorted(left))}\n")


def _assign(strategy: Any, variable: Any, value: Any) -> bool:
    """Assign the value, one for all replicas or one for each; whether it is one of this variable."""
    kind, shape = variable.dtype.as_numpy_dtype, variable.shape.as_list()
    parts = strategy.experimental_local_results(variable)
    if value.dtype.kind == "V":  # a type that is not NumPy's own
        value = value.view(kind)
    if value.ndim > len(shape) and len(value) != len(parts):  # another number of replicas
        value = value[0]
    if [*value.shape] not in (shape, [len(parts), *shape]) or value.dtype != kind:
        return False
    if is_sum(variable):
        value = (value / strategy.num_replicas_in_sync).astype(kind)
    values = list(value) if value.ndim > len(shape) else [value] * len(parts)
    for place, part in enumerate(parts):
        sys.modules["tensorflow"].raw_ops.AssignVariableOp(resource=part.handle, value=values[place])
    return True


def lacking(model: Any) -> str:
    """What of a model has state that is no variable of numbers, which no such file has; "" if nothing does."""
    variables, others = tracked_by(model)
    strange = [type(each).__name__ for each in others]
    return ", ".join([*strange, *(each.name for each in variables if each.dtype.name in _NO_NUMBERS)])


def _named(model: Any, beside: bool) -> dict[str, Any]:
    """The variables by names that do not depend on when they were created."""
    left_out = plain([*model.weights, *getattr(model.optimizer, "variables", ())]) if beside else []
    known, found, count = {id(each) for each in left_out}, {}, Counter[str]()
    for name, each in _in_order(model):
        if id(each) not in known and each.dtype.name not in _NO_NUMBERS and not (beside and name.startswith(_KERAS)):
            known.add(id(each))
            found[f"{name} {count[name]}"] = each
        count[name] += 1
    return found


def _in_order(model: Any) -> Iterator[tuple[str, Any]]:
    own = keras_metrics(model)
    yield from ((_EARLY, each) for each in early(model))
    for place, optimizer in _optimizers(model):
        yield from ((f"optimizer {place}", each) for each in plain(optimizer.variables))
    for metric in model.metrics:
        for each in plain(metric.variables):
            yield f"{_KERAS if id(each) in own else 'metric '}{metric.name}", each
    yield from ((str(each.name).replace("/", " "), each) for each in tracked_by(model)[0])


def _optimizers(model: Any) -> Iterator[tuple[int, Any]]:
    """All optimizers by their place in what the model tracks, but its own one."""
    tensorflow = sys.modules["tensorflow"]
    own = {id(model.optimizer), id(getattr(model.optimizer, "inner_optimizer", None))}
    found = [
        each for each in tensorflow.train.TrackableView(model).descendants() if is_of(_BASE, "BaseOptimizer", each)
    ]
    return ((place, each) for place, each in enumerate(found) if id(each) not in own)


def _trained(model: Any) -> dict[int, list[int]]:
    """The weights that each of the other optimizers trains, by their places in the model."""
    places = {id(each): place for place, each in enumerate(plain(model.weights))}
    found = {place: plain(each._trainable_variables) for place, each in _optimizers(model) if each.built}
    strange = next((each for trained in found.values() for each in trained if id(each) not in places), None)
    if strange is not None:
        raise Unsupported(f"an optimizer trains {strange.name}, which is no weight of the model")
    return {place: [places[id(each)] for each in trained] for place, trained in found.items()}


def _build(model: Any, stored: Any) -> None:
    """Create the variables of all optimizers."""
    with model.distribute_strategy.scope():
        build_optimizer(model)
        for place, optimizer in _optimizers(model):
            name = f"{_TRAINS}{place}"
            if name in stored and not optimizer.built:
                optimizer.build([model.weights[each] for each in stored[name]])

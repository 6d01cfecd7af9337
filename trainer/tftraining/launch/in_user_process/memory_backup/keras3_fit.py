"""A `fit` of Keras 3 with TensorFlow: its EpochIterator, which skips to a position; its backups in the storage.

Keras 3 has no DataHandler, and no counter of steps. Its generator of steps takes no data, so the steps before the
position are passed over; its iterator skips them. An epoch may make two iterators, the second of which is never used.
The EpochIterator of one `fit` is extended, never its class. Must never import Keras or TensorFlow.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from ..surface import Part, Surface
from . import kept_variables
from .input_position import Position
from .kept_variables import KeptVariables

_TRAINER, _EPOCHS = "keras.src.backend.tensorflow.trainer", "keras.src.trainers.epoch_iterator"
_BACKUP, _FUNCTIONS = "keras.src.callbacks.backup_and_restore", "tensorflow.python.eager.polymorphic_function"
SURFACE = Surface(
    "no backups in memory",
    (
        Part("keras.src.callbacks.callback_list", "CallbackList", uses="callbacks _history params _async_train"),
        Part(_EPOCHS, "EpochIterator.__iter__", "self", "_enumerate_iterator _epoch_iterator"),
        Part(
            _EPOCHS,
            "EpochIterator._enumerate_iterator",
            "self",
            "_get_iterator _current_iterator _num_batches _steps_seen steps_per_epoch steps_per_execution",
        ),
        Part(_EPOCHS, "EpochIterator.catch_stop_iteration", "self", "_current_iterator"),
        Part(_TRAINER, "TFEpochIterator._get_iterator", "self", "_distributed_dataset"),
        Part(_TRAINER, "TensorFlowTrainer._make_function", "self step_function", "steps_per_execution run_eagerly"),
        Part(_TRAINER, "TensorFlowTrainer.fit", uses="_initial_epoch train_function reset_metrics stop_training"),
        Part(_BACKUP, "BackupAndRestore._load_model", "self", "_weights_path _initial_epoch load_weights"),
        Part(_BACKUP, "BackupAndRestore._save_model", "self", "_weights_path save_weights"),
        *kept_variables.PARTS,
        Part("keras.src.layers.layer", "Layer", uses="_flatten_layers _non_trainable_variables"),
        Part(f"{_FUNCTIONS}.polymorphic_function", "Function._list_all_concrete_functions"),
    ),
)
STEP_FUNCTION = "multi_step_on_iterator"  # what Keras calls its function of a step, within its train function
_WEIGHTS = "_weights_path"  # of BackupAndRestore
_ENDLESS = -1  # the cardinality of a dataset


def fit_of(callbacks: Any, frame: Any) -> Keras3Fit | None:
    """The `fit` with these callbacks, which runs in `frame` or has called it; None if there is none."""
    code = _code(sys.modules[_TRAINER].TensorFlowTrainer.fit)
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is callbacks.model:
            epochs, initial = frame.f_locals.get("epoch_iterator"), frame.f_locals.get("initial_epoch")
            return None if epochs is None else Keras3Fit(callbacks, epochs, int(initial or 0))
        frame = frame.f_back
    return None


def _code(function: Any) -> Any:
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return function.__code__


class Keras3Fit:
    """A `fit` with these callbacks whose input is in this EpochIterator."""

    looks_alone = True  # to build the model; the patches of a gang take its shapes
    ends_early = False  # an input without more ends an epoch, and not the training

    def __init__(self, callbacks: Any, epochs: Any, initial_epoch: int) -> None:
        self._model = model = callbacks.model
        # Only `fit` itself holds its input: an iterator that lives on ends with the interpreter, where its destructor
        # would wait for ever for a thread that reads a generator of the program.
        self._epochs: Any = weakref.proxy(epochs)
        self._backup = next((each for each in callbacks.callbacks if hasattr(each, _WEIGHTS)), None)
        self._told_initial_epoch = initial_epoch
        self._initial_epoch_before = model._initial_epoch
        self._position: Position | None = None
        self._begins: tuple[int, int] | None = None  # the epoch and batch of a resumed training
        self._made = 0  # iterators of the input in this process
        self._iterator: Callable[[], Any] | None = None  # a weak reference, too
        self._ready: Iterator[Any] | None = None  # the steps of an epoch that has not begun yet
        self._enumerate = type(epochs)._enumerate_iterator

    @property
    def dataset(self) -> Any:
        """The input, which may be set."""
        return self._epochs._distributed_dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self._epochs._distributed_dataset = dataset

    @property
    def _batches(self) -> int | None:
        """The batches that the input has; None if that is unknown, or it has no end."""
        count: int | None = self._epochs.data_adapter.num_batches
        return count

    @property
    def several(self) -> bool:
        """Whether there may be more than one iterator."""
        return self._epochs.steps_per_epoch is None or self._batches is not None

    @property
    def anew(self) -> bool:
        """Whether each epoch has an iterator of its own."""
        steps = self._epochs.steps_per_epoch
        return steps is None or (self._batches is not None and self._batches <= steps)

    @property
    def increment(self) -> int:
        """The steps that one call of the train function makes."""
        return int(self._epochs.steps_per_execution)

    @property
    def inferred(self) -> Any:
        """The steps in an epoch that Keras has counted itself."""
        return self._epochs._num_batches

    @property
    def initial_epoch(self) -> int:
        """What the program passes to `fit`, or Keras has restored."""
        return int(self._model._initial_epoch or self._told_initial_epoch)

    @property
    def may_be_short(self) -> bool:
        """Whether an epoch may have another number of steps than Keras has told: the input may end in its middle, and
        Keras makes all steps of a call of the train function."""
        steps = self._epochs.steps_per_epoch
        if steps is None:
            return self._batches is None
        return bool(steps % self.increment) or not (_is_endless(self.dataset) or self._batches == steps)

    def counted(self) -> None:
        """Keras 3 counts no steps."""

    def last_of(self, first: int, told: int) -> int:
        """The last batch of a call of the train function: up to Keras 3.11 it tells the first one."""
        behind = first + self.increment
        return (behind if self._batches is None else min(behind, max(first + 1, self._batches))) - 1

    # The input.

    def follow(self, position: Position) -> None:
        """Follow Keras in its input, from the position on."""
        self._position = position
        get, epochs = self._epochs.__class__._get_iterator, self._epochs

        def counted() -> Any:
            self._made += 1
            return get(epochs)

        self._epochs._get_iterator = counted
        self._epochs._enumerate_iterator = self._begin_epoch

    def begin_at(self, epoch: int, batch: int, inferred: Any) -> None:
        """Let Keras begin at this batch, before it asks where to begin."""
        self._model._initial_epoch = epoch
        self._begins = epoch, batch
        if self._epochs._num_batches is None:  # the first epoch of the undisturbed training has counted them
            self._epochs._num_batches = inferred

    def _begin_epoch(self) -> Iterator[Any]:
        """In place of the EpochIterator's own method: what Keras makes next."""
        self._model._initial_epoch = self._initial_epoch_before  # Keras has asked, and would ask in the next `fit`
        ready, self._ready = self._ready, None
        return self._steps() if ready is None else ready

    def _steps(self) -> Iterator[Any]:
        """The steps of the next epoch, the first of which is that of the position."""
        position, steps = self._position, self._enumerate(self._epochs)
        assert position is not None
        begins, self._begins = self._begins, None
        if self._iterator is None:
            present = self._first_step(position, steps, begins[1] if begins is not None else 0)
        else:
            present = next(steps, None)
        if present is not None and self._iterator is not None and present[-1] is not self._iterator():
            position.drawn, position.made = 0, self._made
        while present is not None:
            self._iterator = weakref.ref(present[-1])
            with position.watched():
                yield present
            present = next(steps, None)

    def _first_step(self, position: Position, steps: Iterator[Any], batch: int) -> Any:
        """The first step of this process; the iterator begins behind what was drawn of it."""
        with position.first(1):
            present = next(steps, None)
        self._made = position.made
        self._epochs._steps_seen += position.drawn - batch  # of an iterator that has had epochs before
        while present is not None and present[0] < batch:
            present = next(steps, None)
        return present

    def next_position(self) -> dict[str, int]:
        """The position at which the next epoch begins."""
        assert self._position is not None
        present = self._epochs._current_iterator
        if self._epochs.steps_per_epoch is None or present is None:
            return {"drawn": 0, "made": self._made + 1}
        drawn = self._iterator is not None and present is self._iterator()
        return self._position.now() if drawn else {"drawn": 0, "made": self._made}

    def iterators_of(self, epochs: int) -> int:
        """How many iterators so many epochs make, and a `fit` that trains nothing does not."""
        batches, steps = self._batches, self._epochs.steps_per_epoch
        if steps is None:
            return epochs * (1 if batches is None else 2)
        return 1 if batches is None else 1 + epochs * steps // batches

    # The step.

    def can_trace(self) -> bool:
        """Whether the step can be traced before the first one is made."""
        return STEP_FUNCTION in _functions(self._model.train_function)

    def traced(self) -> list[Any]:
        """The functions of a step as they are traced for the present iterator."""
        functions = _functions(self._model.train_function)
        if self._iterator is None:
            steps = self._steps()
            first = next(steps, None)
            self._ready = chain([first] if first is not None else [], steps)
        if (step := functions.get(STEP_FUNCTION)) is not None:
            return [step.get_concrete_function(self._iterator() if self._iterator is not None else None)]
        return [each for function in functions.values() for each in function._list_all_concrete_functions()]

    # The backups of BackupAndRestore.

    def restores(self, saved: Any) -> None:
        """Keras is about to restore."""

    def latest(self) -> str:
        """The newest backup in the storage; "" without one."""
        path = str(getattr(self._backup, _WEIGHTS)) if self._backup is not None else ""
        return path if path and sys.modules["tensorflow"].io.gfile.exists(path) else ""

    def step_of(self, backup: str, head: Mapping[str, Any]) -> int:
        """The step of this backup, beside which `head` is stored."""
        return int(head["step"])

    def number_of(self, backup: str) -> int:
        """Always 0: each backup replaces the one before."""
        return 0

    def go_on_behind(self, number: int) -> None:
        """Nothing to do: each backup replaces the one before."""

    def restore_again(self) -> None:
        """Restore the newest backup once more."""
        self._model.load_weights(self.latest())

    def beside(self) -> KeptVariables | None:
        """What Keras' file of weights does not restore."""
        return KeptVariables(self._model, beside=True)

    def save(self, own: Callable[[], None], keep: Callable[[str], None] | None) -> None:
        """Save the backup first, then `keep`, which names the file of the backup."""
        own()
        if keep is not None and (latest := self.latest()):
            keep(latest)

    def end(self) -> None:
        """Let go of the model, whose next `fit` begins as Keras lets it."""
        if self._position is not None:
            self._model._initial_epoch = self._initial_epoch_before


def _is_endless(dataset: Any) -> bool:
    cardinality = getattr(dataset, "cardinality", None)  # a number, if the dataset is distributed
    found = cardinality() if callable(cardinality) else cardinality
    return found is not None and int(found) == _ENDLESS


def _functions(function: Any, depth: int = 2) -> dict[str, Any]:
    """The functions of TensorFlow that a function has in its closure or its object, by the names that it gives them."""
    found: dict[str, Any] = {}
    for name, value in _named(function):
        if hasattr(value, "_list_all_concrete_functions"):
            found.setdefault(name, value)
        elif depth and hasattr(value, "__closure__"):
            found = {**_functions(value, depth - 1), **found}
    return found


def _named(function: Any) -> Iterator[tuple[str, Any]]:
    yield from vars(getattr(function, "__self__", object)).items()
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(function, "__closure__", None) or ()):
        with suppress(ValueError):  # it is empty
            yield name, cell.cell_contents

"""A `fit` of tf_keras: its DataHandler, which skips to a position; its counter of steps; its backups in the storage.

fit_hook.py makes it, fit.py uses it. Must never import Keras or TensorFlow.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import stored_state
from .input_position import Position

STEP_IN_CHECKPOINT = "train_counter/.ATTRIBUTES/VARIABLE_VALUE"


class LegacyFit:
    """A `fit` of this model whose input is in this DataHandler."""

    may_be_short = False
    looks_alone = False

    def __init__(self, model: Any, handler: Any) -> None:
        self._model = model
        self.handler = handler
        self._position: Position | None = None
        self._iterator: Callable[[], Any] = lambda: None  # a weak reference: see keras3_fit.py
        self._saved: Any = None  # Keras' WorkerTrainingState

    @property
    def dataset(self) -> Any:
        """The input, which may be set."""
        return self.handler._dataset

    @dataset.setter
    def dataset(self, dataset: Any) -> None:
        self.handler._dataset = dataset

    @property
    def anew(self) -> bool:
        """Whether each epoch has an iterator of its own."""
        return bool(self.handler._adapter.should_recreate_iterator())

    several = anew

    @property
    def increment(self) -> int:
        """The steps that one call of the train function makes."""
        return int(self.handler.step_increment) + 1

    @property
    def initial_epoch(self) -> int:
        """What the program passes to `fit`."""
        return int(self.handler._initial_epoch)

    @property
    def inferred(self) -> Any:
        """The steps in an epoch that Keras has counted itself."""
        return self.handler._inferred_steps

    @property
    def ends_early(self) -> bool:
        """Whether the input has no more."""
        return bool(self.handler._insufficient_data)

    def counted(self) -> int:
        """The steps of this `fit` so far."""
        return int(self._model._train_counter.numpy())

    def last_of(self, first: int, told: int) -> int:
        """The last batch of a call of the train function."""
        return told

    # The input.

    def follow(self, position: Position) -> None:
        """Follow Keras in its input, from the position on."""
        self._position = position

    def begin_at(self, epoch: int, batch: int, inferred: Any) -> None:
        """Let Keras begin at this batch, before it asks where to begin."""
        self.handler._initial_epoch, self.handler._initial_step = epoch, batch
        if self.handler._inferred_steps is None:  # the first epoch of the undisturbed training has counted them
            self.handler._inferred_steps = inferred

    def epochs(self, original: Callable[[Any], Iterator[tuple[int, Any]]]) -> Iterator[tuple[int, Any]]:
        """Keras' epochs and iterators; the first iterator begins at the position."""
        position, found = self._position, original(self.handler)
        assert position is not None
        steps = self.handler._inferred_steps
        with position.first(2 if self.anew else 1):  # the first of two is never used
            present = next(found, None)
        if position.drawn:
            self.handler._inferred_steps = steps  # Keras has counted those of the skipped dataset
        while present is not None:
            iterator = present[1]
            self._iterator = weakref.ref(iterator)
            with position.watched():
                yield present
            present = next(found, None)
            if present is not None and present[1] is not iterator:
                position.drawn, position.made = 0, position.made + 1

    def next_position(self) -> dict[str, int]:
        """The position at which the next epoch begins."""
        assert self._position is not None
        return {"drawn": 0, "made": self._position.made + 1} if self.anew else self._position.now()

    def iterators_of(self, epochs: int) -> int:
        """How many iterators so many epochs make, and a `fit` that trains nothing does not."""
        return epochs

    def can_trace(self) -> bool:
        """Whether the step can be traced before the first one is made."""
        return not self._model.run_eagerly

    def traced(self) -> list[Any]:
        """The function of a step as it is traced for the present iterator."""
        trace = getattr(self._model.train_function, "get_concrete_function", None)
        return [trace(self._iterator())] if trace is not None else []

    # The backups of BackupAndRestore.

    def restores(self, saved: Any) -> None:
        """`saved`: Keras' WorkerTrainingState."""
        self._saved = saved

    def latest(self) -> str:
        """The newest backup in the storage; "" without one."""
        return str(getattr(getattr(self._saved, "read_checkpoint_manager", None), "latest_checkpoint", None) or "")

    def step_of(self, backup: str, head: Mapping[str, Any]) -> int:
        """The step of this backup."""
        return int(sys.modules["tensorflow"].train.load_checkpoint(backup).get_tensor(STEP_IN_CHECKPOINT))

    def number_of(self, backup: str) -> int:
        """How many backups were saved up to this one."""
        number = re.search(r"-(\d+)$", backup)
        return int(number[1]) if number else 0

    def go_on_behind(self, number: int) -> None:
        """Count on from that number: otherwise the next backup would overwrite the newest one, which is the only
        one."""
        if number and self._saved is not None:
            self._saved.read_checkpoint_manager.checkpoint.save_counter.assign(number)

    def restore_again(self) -> None:
        """Restore the newest backup once more."""
        self._saved.read_checkpoint_manager.checkpoint.restore(self.latest()).expect_partial()

    def beside(self) -> None:
        """A checkpoint has all variables."""

    def save(self, own: Callable[[], None], keep: Callable[[str], None] | None) -> None:
        """What is kept comes first, so that a program which is killed in between leaves no backup without it."""
        next_backup = self._next_backup()
        if keep is not None:
            keep(next_backup)
        own()
        latest = str(getattr(self._saved.write_checkpoint_manager, "latest_checkpoint", None) or "")
        if keep is not None and latest:
            if latest != next_backup:
                keep(latest)
            stored_state.prune(latest)

    def _next_backup(self) -> str:
        manager = self._saved.write_checkpoint_manager
        return f"{manager._prefix}-{int(manager.checkpoint.save_counter.numpy()) + 1}"

    def end(self) -> None:
        """Keras leaves nothing behind."""

"""What fit.py must know of a `fit`, where tf_keras (legacy_fit.py) and Keras 3 (keras3_fit.py) differ.

Both keep to what Keras does: they only set where it begins, and look. fit.py has what is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .input_position import Input, Position
from .kept_variables import KeptVariables


class KerasFit(Input, Protocol):
    """One `fit` of one Keras: its input, its counter of steps, its train function, and its backups in the storage."""

    looks_alone: bool
    """Whether a gang of one worker makes one iterator more than other gangs, to look at a batch."""

    @property
    def increment(self) -> int:
        """The steps that one call of the train function makes."""

    @property
    def initial_epoch(self) -> int:
        """What the program passes to `fit`."""

    @property
    def inferred(self) -> Any:
        """The steps in an epoch that Keras has counted itself, for the head of a copy."""

    @property
    def ends_early(self) -> bool:
        """Whether the input has no more, so that `fit` ends."""

    @property
    def may_be_short(self) -> bool:
        """Whether an epoch may have another number of steps than Keras has told."""

    def counted(self) -> int | None:
        """The steps of this `fit` so far, as the model counts them; None if it counts none."""

    def last_of(self, first: int, told: int) -> int:
        """The last batch of a call of the train function, which Keras has `told` behind the begin of batch `first`."""

    # The input.

    def follow(self, position: Position) -> None:
        """Follow Keras in its input, from the position on."""

    def begin_at(self, epoch: int, batch: int, inferred: Any) -> None:
        """Let Keras begin at this batch, before it asks where to begin."""

    def next_position(self) -> dict[str, int]:
        """The position at which the next epoch begins, when the present one has ended."""

    def iterators_of(self, epochs: int) -> int:
        """How many iterators so many epochs make, and a `fit` that trains nothing does not."""

    def can_trace(self) -> bool:
        """Whether the step can be traced before the first one is made."""

    def traced(self) -> list[Any]:
        """The functions of a step as they are traced for the present iterator; none if it runs eagerly. No step is
        run."""

    # The backups of BackupAndRestore.

    def restores(self, saved: Any) -> None:
        """Keras is about to restore: `saved` is what its callback keeps for it, None without one."""

    def latest(self) -> str:
        """The newest backup in the storage; "" without one."""

    def step_of(self, backup: str, head: Mapping[str, Any]) -> int:
        """The step of this backup, beside which `head` is stored."""

    def number_of(self, backup: str) -> int:
        """How many backups were saved up to this one."""

    def go_on_behind(self, number: int) -> None:
        """Let the next backup not overwrite the newest one, which has this number."""

    def restore_again(self) -> None:
        """Restore the newest backup once more."""

    def beside(self) -> KeptVariables | None:
        """The present variables that a backup does not restore: a collective. None if it restores all."""

    def save(self, own: Callable[[], None], keep: Callable[[str], None] | None) -> None:
        """Save a backup by Keras' `own` method, and `keep` beside it what a copy has beside the variables."""

    def end(self) -> None:
        """Let go of the model, whose next `fit` begins as Keras lets it."""

"""The state of a custom training loop: the variables of its tf.train.Checkpoint. Must never import TensorFlow."""

from __future__ import annotations

from typing import Any

from .member_sums import Totals
from .variable_values import ALIGNMENT, VariableValues, variables_of, way_of_sums


class CheckpointState(VariableValues):
    """The variables that `checkpoint` tracks, with the strategy that made one of them, if any did.

    Unsupported if the checkpoint has state that is no variable.
    """

    def __init__(self, checkpoint: Any) -> None:
        self._checkpoint = checkpoint
        # TensorFlow creates the counter of a tf.train.Checkpoint at the first save, perhaps before the first copy.
        getattr(checkpoint, "save_counter", None)
        variables = variables_of(checkpoint)
        found = (getattr(each, "distribute_strategy", None) for each in variables)
        self.strategy = next((each for each in found if each is not None), None)
        super().__init__(variables, self.strategy)
        self.size += ALIGNMENT

        self._totals: list[Any] | None = None

    def complete(self) -> None:
        """Nothing of a checkpoint is created late."""

    def gather(self, totals: Totals) -> None:
        """Learn the sums of metrics over all members: a collective."""
        self._totals = totals(self.local_sums())

    def views(self, buffer: Any, start: int) -> list[Any]:
        """The values in this buffer, and whether the copy has sums over all members."""
        return [*super().views(buffer, start + ALIGNMENT), memoryview(buffer)[start : start + ALIGNMENT]]

    def copy_to(self, views: list[Any]) -> None:
        """Copy all values into the buffer."""
        totals, self._totals = self._totals, None
        super().copy_to(views)
        self.set_totals(views[:-1], totals or ())
        views[-1][0] = int(totals is not None)

    def restore_from(self, views: list[Any], own: bool, all_own: bool) -> None:  # type: ignore[override]
        """Restore all values."""
        super().restore_from(views[:-1], way_of_sums(own, all_own, has_totals=bool(views[-1][0])))

    def grown(self) -> bool:
        """Whether the checkpoint tracks other variables than at the start."""
        return [id(each) for each in variables_of(self._checkpoint)] != [id(each) for each in self._variables]

"""The state of a custom training loop: the variables of its tf.train.Checkpoint. Must never import TensorFlow."""

from __future__ import annotations

from typing import Any

from .variable_values import VariableValues, variables_of


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
        super().__init__(variables, _itself if self.strategy is None else self.strategy.experimental_local_results)

    def grown(self) -> bool:
        """Whether the checkpoint tracks other variables than at the start."""
        return [id(each) for each in variables_of(self._checkpoint)] != [id(each) for each in self._variables]


def _itself(variable: Any) -> tuple[Any, ...]:
    return (variable,)

"""The state of a model of tf_keras that trains: which variables belong to it.

Must never import TensorFlow: the program has imported it.
"""

from __future__ import annotations

from typing import Any

from .variable_values import VariableValues, variables_of


class State(VariableValues):
    """The variables of `model` and its optimizer, and the model's counter of steps. Unsupported if that is not all."""

    def __init__(self, model: Any) -> None:
        self._model = model
        super().__init__(self._collect(), model.distribute_strategy.experimental_local_results)

    def grown(self) -> bool:
        """Whether the model has other variables than at the start."""
        return [id(each) for each in self._collect()] != [id(each) for each in self._variables]

    def _collect(self) -> list[Any]:
        """Every variable once. Metrics are left out: Keras resets them at the begin of an epoch."""
        metrics = {id(each) for metric in self._model.metrics for each in metric.variables}
        optimizer = self._model.optimizer.variables
        more = [
            *self._model.variables,
            *(optimizer() if callable(optimizer) else optimizer),
            self._model._train_counter,
        ]
        variables = {id(each): each for each in [*variables_of(self._model), *more] if id(each) not in metrics}
        return list(variables.values())

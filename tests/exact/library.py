"""The Keras of the program's cell, and what differs between tf_keras and Keras 3 in a program."""

import importlib
import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from tests.exact.cells import Cell

CELL = Cell.from_json(Path(os.environ["EXACT_CELL"]).read_text(encoding="utf-8"))
keras: Any = importlib.import_module(CELL.lib)


def plain(variable: Any) -> Any:
    """TensorFlow's variable: one of Keras 3 has it as its value."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def counter(layer: Any, name: str, shape: tuple[int, ...]) -> Any:
    """A variable of this layer whose replicas count for themselves."""
    if CELL.lib == "keras":
        told = {"synchronization": "on_read", "aggregation": "sum"}
        return keras.Variable("zeros", shape=shape, dtype="float32", trainable=False, name=name, **told)
    where = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
    return layer.add_weight(name=name, shape=shape, dtype=tf.float32, initializer="zeros", trainable=False, **where)

"""An input that notes, batch by batch, what the program reports while it is made."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def noting(report: Callable[[], dict[str, Any]], batches: int) -> tuple[tf.data.Dataset, list[tuple[int, int]]]:
    """A dataset of a generator, which has no position of its own, with batches of shapes (8, 8) and (8, 1); and a list
    with the number of each batch that it has made, and `skipping` of the report at that moment."""
    told: list[tuple[int, int]] = []

    def generate() -> Iterator[Any]:
        for number in range(batches):
            told.append((number, report().get("skipping", 0)))
            yield np.full((8, 8), number, "float32"), np.zeros((8, 1), "float32")

    spec = tf.TensorSpec((8, 8), tf.float32), tf.TensorSpec((8, 1), tf.float32)
    return tf.data.Dataset.from_generator(generate, output_signature=spec), told

"""Custom training loops on all devices of a strategy, in three styles with the same result.

`dataset` loops over the data, `iterator` takes a fixed number of steps from an iterator, and `epoch` does a whole epoch
inside one tf.function, with the fewest returns to Python. This module must never print or save: the program does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import tensorflow as tf

from tftraining.lib.train_step import TrainStep, metrics_of_test

Watch = Callable[[Iterable[Any]], Iterable[Any]]
# Batches for all replicas together, or a function that returns the batches of each replica of this worker.
Batches: TypeAlias = tf.data.Dataset | Callable[[tf.distribute.InputContext], tf.data.Dataset]


class Training:
    """A model under a strategy, with loops that train it for an epoch."""

    def __init__(self, strategy: tf.distribute.Strategy, train_step: TrainStep) -> None:
        self.strategy = strategy
        self.train_step = train_step
        with strategy.scope():
            train_step.optimizer.build(train_step.model.trainable_variables)
        self._train_step = tf.function(lambda batch: self._everywhere(train_step.train, batch))
        self._test_step = tf.function(lambda batch: self._everywhere(train_step.test, batch))
        self._epoch = tf.function(self._whole_epoch)

    def _everywhere(self, step: Callable[..., tf.Tensor], batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        parts = self.strategy.run(step, batch)
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)

    def _whole_epoch(self, batches: tf.distribute.DistributedIterator, steps: tf.Tensor) -> tf.Tensor:
        tallies = tf.zeros(3)
        for _ in tf.range(steps):
            tallies += self._everywhere(self.train_step.train, next(batches))
        return tallies

    def distributed(self, batches: Batches) -> tf.distribute.DistributedDataset:
        """The batches of each replica."""
        if callable(batches):
            return self.strategy.distribute_datasets_from_function(batches)
        return self.strategy.experimental_distribute_dataset(batches)

    def train(self, style: str, batches: Batches, steps: int, watch: Watch = iter) -> tf.Tensor:
        """Train on `steps` batches; the sum of the steps' tallies. `watch` wraps an iteration in Python."""
        distributed = self.distributed(batches)
        if style == "dataset":
            return sum((self._train_step(batch) for batch in watch(distributed)), tf.zeros(3))
        iterator = iter(distributed)
        if style == "iterator":
            return sum((self._train_step(next(iterator)) for _ in watch(range(steps))), tf.zeros(3))
        return self.take(iterator, steps)

    def begin(self, batches: tf.data.Dataset) -> tf.distribute.DistributedIterator:
        """An iterator for `take`."""
        return iter(self.distributed(batches))

    def take(self, iterator: tf.distribute.DistributedIterator, steps: int) -> tf.Tensor:
        """Train on the next `steps` batches inside one tf.function; the sum of the steps' tallies."""
        return self._epoch(iterator, tf.constant(steps))

    def test(self, batches: tf.distribute.DistributedDataset) -> dict[str, float]:
        """Loss and accuracy over all batches, on all devices."""
        return metrics_of_test(sum((self._test_step(batch) for batch in batches), tf.zeros(3)))

"""The training data as tf.data: batches in an order that depends only on the seed and the position in the training.

The order is computed, not drawn from a shuffle buffer: example `p` of the training is the `p`-th of a permutation that
follows from the seed and the epoch. So a training that resumes at any step gets the same examples as without the
interruption, reads none only to skip it, and sees each example once per epoch. The pipeline must never slow the
training down.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import tensorflow as tf

from tftraining.lib.data import Examples

ROUNDS = 4  # of the block cipher that makes the permutation; TensorFlow's default


@dataclass(frozen=True)
class Order:
    """The order of the examples: `batch_size` of them per step, for all replicas together."""

    batch_size: int
    seed: int
    steps_per_epoch: int | None = None  # None: an epoch is one pass over the data; its last batch may be smaller

    def steps(self, examples: int) -> int:
        """The number of steps of an epoch."""
        return self.steps_per_epoch or -(-examples // self.batch_size)

    def span(self, examples: int) -> int:
        """The number of examples of an epoch."""
        return self.steps_per_epoch * self.batch_size if self.steps_per_epoch else examples


def order_of(options: argparse.Namespace, replicas: int) -> Order:
    """The order by the common options; each of `replicas` takes --batch-size examples."""
    return Order(options.batch_size * replicas, options.seed, options.steps_per_epoch)


def as_tensors(examples: Examples) -> Examples:
    """The same examples as tensors; TensorFlow would copy arrays in every epoch."""
    return Examples(tf.constant(examples.images), tf.constant(examples.labels))


def epoch_batches(examples: Examples, order: Order, epoch: int, *, prefetch: bool = True) -> tf.data.Dataset:
    """The batches of one epoch (from 0): float32 (batch, height, width, channels) and int64 (batch,)."""
    span = order.span(len(examples))
    places = tf.data.Dataset.range(epoch * span, (epoch + 1) * span)
    return _gathered(places, examples, order, prefetch)


def endless_batches(examples: Examples, order: Order, start: int | tf.Tensor = 0) -> tf.data.Dataset:
    """Endless batches of equal size, from the example `start` (int64) of the training.

    In the iterator of a finite dataset, the workers of MultiWorkerMirroredStrategy ask each other at each step whether
    all of them have a batch. With a small network that question takes as long as the step.
    """
    places = tf.data.Dataset.range(start, tf.int64.max)
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return _gathered(places, examples, order, prefetch=True).apply(endless)


def _gathered(places: tf.data.Dataset, examples: Examples, order: Order, prefetch: bool) -> tf.data.Dataset:
    images, labels = tf.convert_to_tensor(examples.images), tf.convert_to_tensor(examples.labels)

    def gather(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        chosen = _shuffled(batch, len(examples), order.seed)
        return tf.gather(images, chosen), tf.gather(labels, chosen)

    batches = places.batch(order.batch_size).map(gather)
    return batches.prefetch(tf.data.AUTOTUNE) if prefetch else batches


def _shuffled(places: tf.Tensor, examples: int, seed: int) -> tf.Tensor:
    # The raw op, because its wrapper takes no seed per index (TensorFlow 2.21).
    epochs = tf.cast(places // examples, tf.int32)
    seeds = tf.stack([tf.fill(tf.shape(epochs), seed), epochs, tf.zeros_like(epochs)], axis=1)
    last = tf.constant(examples - 1, tf.int64)
    return tf.raw_ops.RandomIndexShuffle(index=places % examples, seed=seeds, max_index=last, rounds=ROUNDS)


def plain_batches(examples: Examples, batch_size: int) -> tf.data.Dataset:
    """All examples once, in their own order; the last batch may be smaller."""
    dataset = tf.data.Dataset.from_tensor_slices((examples.images, examples.labels))
    return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def sharded(dataset: tf.data.Dataset, policy: str) -> tf.data.Dataset:
    """The data, sharded among the workers by this AutoShardPolicy (its name in lower case)."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy.upper()]
    return dataset.with_options(options)

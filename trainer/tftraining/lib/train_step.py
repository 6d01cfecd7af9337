"""One step of a custom training loop on one replica, and the metrics of all replicas together.

The strategy sums the gradients of all replicas. So each replica computes its part of the loss of the whole batch: the
sum of its examples' losses divided by the size of the *whole* batch, plus its share of the regularization. The loop
works with tf_keras and Keras 3, under every strategy, and must never ask a model which Keras built it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# The tally of a step: the loss of its batch, the number of correct examples, the number of examples. One tensor, so
# that one reduction sums the tallies of all replicas.
LOSS, RIGHT, COUNT = range(3)

Losses = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def per_example_losses(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Cross entropy, (n,) float32, of logits (n, …, classes) of any float type and labels (n, …).

    An example with several labels, such as one for each pixel, has the mean of its losses.
    """
    return _per_example(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(logits, tf.float32)))


def _per_example(values: tf.Tensor) -> tf.Tensor:
    """The mean over all dimensions but the first."""
    dimensions = list(range(1, values.shape.rank))
    return tf.reduce_mean(values, axis=dimensions) if dimensions else values


def scaled_loss(
    losses: tf.Tensor, weight_losses: list[tf.Tensor], batch_size: int, sample_weight: tf.Tensor | None = None
) -> tf.Tensor:
    """A replica's part of the loss of a batch; `batch_size` counts the examples of all replicas. The parts add up.

    `sample_weight` (n,) weighs the losses (n,) of the examples; the sum is divided by the number of examples all the
    same, as in Keras.
    """
    loss = tf.nn.compute_average_loss(losses, sample_weight=sample_weight, global_batch_size=batch_size)
    if weight_losses:
        loss += tf.nn.scale_regularization_loss(tf.add_n(weight_losses))
    return loss


def tally(loss: tf.Tensor, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The tally of a step, float32 of shape (3,): see LOSS, RIGHT, COUNT."""
    right = _per_example(tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32))
    return tf.stack([loss, tf.reduce_sum(right), tf.cast(tf.shape(labels)[0], tf.float32)])


class TrainStep:
    """The steps of one replica: pass `train` and `test` to strategy.run.

    `losses` maps the outputs of the model and the labels to the loss of each example. `accumulate` is the number of
    parts of a replica's examples whose gradients are added up: only the activations of one part are in memory.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        batch_size: int,
        *,
        jit: bool = False,
        losses: Losses = per_example_losses,
        accumulate: int = 1,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.batch_size = batch_size
        self._losses, self._accumulate = losses, accumulate
        # XLA compiles only the gradients: applying them synchronizes the replicas, which XLA cannot do.
        self._gradients = tf.function(self._gradients_of, jit_compile=True) if jit else self._gradients_of

    def train(self, images: tf.Tensor, labels: tf.Tensor, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
        """Train one step on this replica's part of a batch; the tally of that part."""
        if self._accumulate == 1:
            tallies, gradients = self._gradients(images, labels, sample_weight, tf.constant(1))
        else:
            tallies, gradients = self._accumulated(images, labels, sample_weight)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return tallies

    def _accumulated(
        self, images: tf.Tensor, labels: tf.Tensor, sample_weight: tf.Tensor | None
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The tally and the gradients of all parts, one after the other."""
        size = tf.shape(labels)[0]
        parts = tf.maximum(1, tf.minimum(self._accumulate, size))  # BatchNormalization needs an example in each

        def add(part: tf.Tensor, tallies: tf.Tensor, sums: list[tf.Tensor]) -> tuple[Any, ...]:
            cut = slice(part * size // parts, (part + 1) * size // parts)
            weights = None if sample_weight is None else sample_weight[cut]
            told, gradients = self._gradients(images[cut], labels[cut], weights, parts)
            return part + 1, tallies + told, [one + other for one, other in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in self.model.trainable_variables]
        begin = (tf.constant(0), tf.zeros(3), zeros)
        _, tallies, gradients = tf.while_loop(lambda part, *_: part < parts, add, begin, parallel_iterations=1)
        return tallies, gradients

    def _gradients_of(
        self, images: tf.Tensor, labels: tf.Tensor, sample_weight: tf.Tensor | None, parts: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            weight_losses = [each / tf.cast(parts, each.dtype) for each in self.model.losses]
            loss = scaled_loss(self._losses(logits, labels), weight_losses, self.batch_size, sample_weight)
            goal = self._scaled_up(loss)
        gradients = tape.gradient(goal, self.model.trainable_variables)
        return tally(loss, logits, labels), self._scaled_down(gradients)

    def _scaled_up(self, loss: tf.Tensor) -> tf.Tensor:
        # Under mixed_float16, small gradients would underflow to zero: the optimizer scales the loss.
        return self.optimizer.get_scaled_loss(loss) if hasattr(self.optimizer, "get_scaled_loss") else loss

    def _scaled_down(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        scaled = hasattr(self.optimizer, "get_unscaled_gradients")
        return self.optimizer.get_unscaled_gradients(gradients) if scaled else gradients

    def test(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Measure this replica's part of a batch; the loss is a sum over its examples, without regularization."""
        logits = self.model(images, training=False)
        return tally(tf.reduce_sum(self._losses(logits, labels)), logits, labels)


def metrics_of_training(tallies: tf.Tensor, steps: int) -> dict[str, float]:
    """The mean loss and accuracy of an epoch, from the sum of its steps' tallies."""
    values = tallies.numpy()
    return {"loss": float(values[LOSS]) / steps, "accuracy": float(values[RIGHT] / values[COUNT])}


def metrics_of_test(tallies: tf.Tensor) -> dict[str, float]:
    """The loss and accuracy on test data, from the sum of the steps' tallies."""
    values = tallies.numpy()
    return {"test_loss": float(values[LOSS] / values[COUNT]), "test_accuracy": float(values[RIGHT] / values[COUNT])}


def evaluate(model: Any, batches: tf.data.Dataset, losses: Losses = per_example_losses) -> dict[str, float]:
    """Loss and accuracy over all batches, of a model built without a strategy."""
    test = tf.function(TrainStep(model, None, batch_size=1, losses=losses).test)
    return metrics_of_test(sum((test(*batch) for batch in batches), tf.zeros(3)))


def scaling_optimizer(optimizer: Any, precision: str, keras: Any) -> Any:
    """The optimizer for a custom loop in `precision`: with loss scaling under mixed_float16."""
    return keras.mixed_precision.LossScaleOptimizer(optimizer) if precision == "mixed_float16" else optimizer

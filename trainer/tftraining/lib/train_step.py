"""One step of a custom training loop on one replica, and the metrics of all replicas together.

The strategy sums the gradients of all replicas. So each replica computes its part of the loss of the whole batch: the
sum of its examples' losses divided by the size of the *whole* batch, plus its share of the regularization. The loop
works with tf_keras and Keras 3, under every strategy, and must never ask a model which Keras built it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

# The tally of a step: the loss of its batch, the number of correct examples, the number of examples. One tensor, so
# that one reduction sums the tallies of all replicas.
LOSS, RIGHT, COUNT = range(3)


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
    """The steps of one replica: pass `train` and `test` to strategy.run."""

    def __init__(self, model: Any, optimizer: Any, batch_size: int, *, jit: bool = False) -> None:
        self.model = model
        self.optimizer = optimizer
        self.batch_size = batch_size
        # XLA compiles only the gradients: applying them synchronizes the replicas, which XLA cannot do.
        self._gradients = tf.function(self._gradients_of, jit_compile=True) if jit else self._gradients_of

    def train(self, images: tf.Tensor, labels: tf.Tensor, sample_weight: tf.Tensor | None = None) -> tf.Tensor:
        """Train one step on this replica's part of a batch; the tally of that part."""
        tallies, gradients = self._gradients(images, labels, sample_weight)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return tallies

    def _gradients_of(
        self, images: tf.Tensor, labels: tf.Tensor, sample_weight: tf.Tensor | None
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = per_example_losses(logits, labels)
            loss = scaled_loss(losses, self.model.losses, self.batch_size, sample_weight)
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
        return tally(tf.reduce_sum(per_example_losses(logits, labels)), logits, labels)


def metrics_of_training(tallies: tf.Tensor, steps: int) -> dict[str, float]:
    """The mean loss and accuracy of an epoch, from the sum of its steps' tallies."""
    values = tallies.numpy()
    return {"loss": float(values[LOSS]) / steps, "accuracy": float(values[RIGHT] / values[COUNT])}


def metrics_of_test(tallies: tf.Tensor) -> dict[str, float]:
    """The loss and accuracy on test data, from the sum of the steps' tallies."""
    values = tallies.numpy()
    return {"test_loss": float(values[LOSS] / values[COUNT]), "test_accuracy": float(values[RIGHT] / values[COUNT])}


def evaluate(model: Any, batches: tf.data.Dataset) -> dict[str, float]:
    """Loss and accuracy over all batches, of a model built without a strategy."""
    test = tf.function(TrainStep(model, None, batch_size=1).test)
    return metrics_of_test(sum((test(*batch) for batch in batches), tf.zeros(3)))


def scaling_optimizer(optimizer: Any, precision: str, keras: Any) -> Any:
    """The optimizer for a custom loop in `precision`: with loss scaling under mixed_float16."""
    return keras.mixed_precision.LossScaleOptimizer(optimizer) if precision == "mixed_float16" else optimizer

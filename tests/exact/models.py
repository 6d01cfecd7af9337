"""The models of the program. Each counts the examples that it trains with, and its steps, in variables of its own.

Initial weights have seeds of their own: a cell without a seed of the whole program begins with the same weights too.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.exact.cells import Cell
from tests.exact.library import counter, keras


class Counted(keras.layers.Layer):  # type: ignore[misc]
    """The features of an example by its index; counts the examples and the steps of a training."""

    def __init__(self, examples: int) -> None:
        super().__init__(name="counted")
        self.examples = examples
        self.seen = counter(self, "seen", (examples,))
        self.count = counter(self, "count", ())

    def call(self, index: Any, training: Any = None) -> Any:
        if training:
            self.seen.assign_add(tf.reduce_sum(tf.one_hot(tf.cast(index[:, 0], tf.int32), self.examples), 0))
            self.count.assign_add(1.0)
        index = tf.cast(index, tf.float32)
        return tf.concat([tf.sin(index * 0.37 * (1 + number)) for number in range(8)], 1)


def dense(units: int, seed: int, **more: Any) -> Any:
    """A dense layer whose initial weights have a seed."""
    return keras.layers.Dense(units, kernel_initializer=keras.initializers.GlorotUniform(seed=seed), **more)


class Lasting(keras.metrics.Metric):  # type: ignore[misc]
    """A metric that keeps its value over the epochs."""

    def __init__(self) -> None:
        super().__init__(name="lasting")
        self.total = self.add_weight(name="total", shape=(), initializer="zeros")

    def update_state(self, truth: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.cast(tf.shape(truth)[0], tf.float32))

    def result(self) -> Any:
        return self.total

    def reset_state(self) -> None:
        pass


class OwnStep(keras.Sequential):  # type: ignore[misc]
    """Its own train_step, which weighs the loss by a variable of its own."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.weight() * tf.reduce_mean((self(x, training=True) - y) ** 2)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.follow(y)
        return {"loss": loss}

    def weight(self) -> Any:
        return self.annealed

    def follow(self, y: Any) -> None:
        self.annealed.assign(self.annealed * 0.999)


class WithLasting(OwnStep):
    """Weighs the loss by a metric that lasts."""

    def weight(self) -> Any:
        return self.lasting.total / 2000.0

    def follow(self, y: Any) -> None:
        self.lasting.update_state(y, y)


class Filling(OwnStep):
    """Fills a lookup table, which is no variable, and weighs the loss by its size."""

    def weight(self) -> Any:
        return 1.0 + tf.cast(self.table.size(), tf.float32) / 100.0

    def follow(self, y: Any) -> None:
        self.table.insert(self.optimizer.iterations, self.optimizer.iterations)


class Two(keras.Model):  # type: ignore[misc]
    """Two optimizers, none of them Keras' own."""

    def compile(self, body: Any, head: Any) -> None:
        super().compile()
        self.body, self.head = body, head

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
        body, head = self.trainable_variables[:2], self.trainable_variables[2:]
        self.body.apply_gradients(zip(tape.gradient(loss, body), body, strict=True))
        self.head.apply_gradients(zip(tape.gradient(loss, head), head, strict=True))
        return {"loss": loss}

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        return {"loss": tf.reduce_mean((self(x, training=False) - y) ** 2)}

    @property
    def metrics(self) -> list[Any]:
        return []  # or Keras would report its own empty one in place of the loss, once a validation has built it


def _optimizer(cell: Cell) -> Any:
    adam = keras.optimizers.legacy.Adam if cell.optimizer == "legacy" else keras.optimizers.Adam
    if cell.model == "schedule":
        return adam(keras.optimizers.schedules.PolynomialDecay(0.02, cell.epochs * cell.steps, 0.001))
    if cell.model == "ema":
        # Keras 3 overwrites within a condition, which a replica may not do (docs/keras3.md).
        overwrites = cell.lib != "keras" or not (cell.strategy or max(cell.workers, cell.scaled_to) > 1)
        return adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7 if overwrites else None)
    if cell.model == "loss-scale":
        scaling = keras.optimizers if cell.lib == "keras" else keras.mixed_precision
        return scaling.LossScaleOptimizer(adam(0.01), initial_scale=64.0, dynamic_growth_steps=5)
    return adam(0.01)


def _middle(cell: Cell) -> list[Any]:
    found = {
        "batchnorm": keras.layers.BatchNormalization,
        "dropout": lambda: keras.layers.Dropout(0.3, seed=5),
        "dropout-generator": lambda: keras.layers.Dropout(0.3, seed=5, rng_type="stateful"),
    }
    return [found[cell.model]()] if cell.model in found else []


def build(cell: Cell, number: int) -> Any:
    """The compiled model of the cell; another one for each fold."""
    counted = Counted(cell.examples)
    rest = [counted, dense(8, 11 + number, activation="relu"), *_middle(cell), dense(1, 12)]
    if cell.model == "two-optimizers":
        inputs = keras.Input((1,))
        model = Two(inputs, rest[2](rest[1](counted(inputs))))
        model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.003))
        return model
    if cell.model == "vocabulary":
        model = _with_vocabulary(rest)
        model.compile(_optimizer(cell), "mse", metrics=["mae"], steps_per_execution=cell.execution)
        return model
    kinds = {"train-step": OwnStep, "metric": WithLasting, "table": Filling}
    model = kinds.get(cell.model, keras.Sequential)([keras.Input((1,)), *rest])
    if cell.model == "train-step":
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        model.annealed = tf.Variable(1.0, trainable=False, name="annealed", aggregation=first)
    elif cell.model == "metric":
        model.lasting = Lasting()
    elif cell.model == "table":
        model.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    # Keras 3 reports all that it was given, also where the program's own step updates none of it.
    metrics = None if cell.lib == "keras" and cell.model in kinds else ["mae"]
    model.compile(_optimizer(cell), "mse", metrics=metrics, steps_per_execution=cell.execution)
    return model


def _with_vocabulary(rest: list[Any]) -> Any:
    inputs = keras.Input((1,))
    words = tf.strings.as_string(tf.reshape(tf.cast(inputs, tf.int64) % 4, [-1, 1]))
    found = keras.layers.StringLookup(vocabulary=["0", "1", "2", "3"], output_mode="one_hot")(words)
    return keras.Model(inputs, rest[2](keras.layers.Concatenate()([rest[1](rest[0](inputs)), found])))


def optimizers(model: Any) -> list[Any]:
    """All optimizers of the model."""
    return [model.body, model.head] if isinstance(model, Two) else [model.optimizer]


def optimizer_variables(model: Any) -> list[Any]:
    """The variables of all optimizers of the model."""
    found = [each.variables for each in optimizers(model)]
    return [variable for each in found for variable in (each() if callable(each) else each)]

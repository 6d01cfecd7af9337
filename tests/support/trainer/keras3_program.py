"""Trains small models in one process: `python -m ... OUT LIBRARY CASE ...`, alone or as a member of a gang.

For each case it writes `OUT.CASE.TASK.json` and `.npz`: the logs of `fit`, what `evaluate` and `predict` return, and
the weights. An input has the batches of the whole gang, so one process and a gang see the same.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Case(NamedTuple):
    """What differs from the plain program: Adam, a dataset of eight batches of 32, the last one of 26."""

    optimizer: str = "Adam"
    options: Mapping[str, Any] = MappingProxyType({"learning_rate": 0.01})
    examples: int = 250
    normalization: str = ""  # "" none, "own" or "synchronized"
    data: str = "dataset"
    steps: int | None = None  # an epoch
    steps_per_execution: int = 1
    run_eagerly: bool = False
    own_step: bool = False
    built: bool = True
    policy: str = "float32"
    then: str = ""  # after `fit`
    iterations: int = 24
    scale: float = 1.0  # of the inputs, for gradients to clip
    like: str = ""  # the case that trains the same in one process, where Keras alone counts a step too many


CASES = {
    "plain": Case(),
    "sgd": Case("SGD", {"learning_rate": 0.05}),
    "momentum": Case("SGD", {"learning_rate": 0.05, "momentum": 0.9}),
    "adamw": Case("AdamW", {"learning_rate": 0.01, "weight_decay": 0.01}),
    "ema": Case("SGD", {"learning_rate": 0.05, "use_ema": True, "ema_momentum": 0.9}),
    "uneven": Case(examples=251),
    "one-left": Case(examples=225, normalization="own"),
    "normalized": Case(normalization="own"),
    "synchronized": Case(normalization="synchronized"),
    "clipped": Case("SGD", {"learning_rate": 0.05, "global_clipnorm": 0.1}, scale=5.0),
    "clipped-each": Case("SGD", {"learning_rate": 0.05, "clipnorm": 0.05}, scale=5.0),
    "three-steps": Case(steps_per_execution=3),
    "repeated": Case(data="repeated", steps=5, iterations=15),
    "repeated-three-steps": Case(data="repeated", steps=6, steps_per_execution=3, iterations=18),
    "unknown-size": Case(data="unknown", like="plain"),
    "dictionary": Case(data="dictionary"),
    "arrays": Case(data="arrays"),
    "weighted": Case(data="weighted"),
    "classes": Case(data="classes"),
    "eager": Case(run_eagerly=True, examples=100, iterations=12),
    "own-step": Case(own_step=True),
    "unbuilt": Case(built=False),
    "again": Case(then="fit", iterations=32),
    "on-batch": Case(then="train_on_batch", iterations=25),
    "half": Case(policy="mixed_float16"),
}
EPOCHS, BATCH = 3, 32


def arrays(case: Case) -> tuple[Any, Any, Any]:
    """Inputs, classes, and a weight for each example."""
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(case.examples, 8)).astype("float32") * np.float32(case.scale)
    classes = (x @ numbers.normal(size=(8, 3))).argmax(1)
    return x, classes, numbers.uniform(0.5, 2, case.examples).astype("float32")


def inputs(case: Case) -> dict[str, Any]:
    """The arguments of `fit`."""
    x, classes, weights = arrays(case)
    if case.data == "arrays":
        return {"x": x, "y": classes, "batch_size": BATCH, "shuffle": False}
    parts = (x, classes, weights) if case.data == "weighted" else (x, classes)
    data = tf.data.Dataset.from_tensor_slices(({"in": x}, classes) if case.data == "dictionary" else parts)
    data = data.batch(BATCH)
    if case.data == "repeated":
        data = data.repeat()
    if case.data == "unknown":
        data = data.filter(lambda *_: True)
    more = {"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}} if case.data == "classes" else {}
    return {"x": data, "shuffle": False, **more}


def validation(case: Case) -> Any:
    """Input of which the share of a worker is sometimes one example more, and sometimes empty."""
    numbers = np.random.default_rng(7)
    x = numbers.normal(size=(65, 8)).astype("float32")
    return tf.data.Dataset.from_tensor_slices(({"in": x} if case.data == "dictionary" else x, x[:, 0] > 0)).batch(32)


def make(keras: Any, case: Case) -> Any:
    """The compiled model."""
    layers = keras.layers
    kind: dict[str, Any] = {"synchronized": True} if case.normalization == "synchronized" else {}
    hidden = [layers.Dense(16, activation="relu"), layers.Dense(16, activation="tanh")]
    if case.normalization:
        hidden.insert(1, layers.BatchNormalization(momentum=0.9, **kind))
    last = layers.Dense(3, dtype="float32")
    if case.built:
        entry = y = keras.Input((8,), name="in")
        for layer in [*hidden, last]:
            y = layer(y)
        model = (with_step(keras) if case.own_step else keras.Model)(entry, y)
    else:
        model = keras.Sequential([*hidden, last])
    model.compile(
        getattr(keras.optimizers, case.optimizer)(**case.options),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")],
        weighted_metrics=["accuracy"] if case.data == "weighted" else None,
        run_eagerly=case.run_eagerly,
        steps_per_execution=case.steps_per_execution,
    )
    return model


def examples(count: int) -> Any:
    """Inputs and classes in batches."""
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(count, 8)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x[:, 0] > 0)).batch(32)


def begin_alike(keras: Any, model: Any) -> None:
    """Both libraries begin with the same weights."""
    numbers = np.random.default_rng(5)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Dense):
            layer.set_weights([numbers.normal(size=each.shape, scale=0.3) for each in layer.get_weights()])


def with_step(keras: Any) -> Any:
    """A class of models with a step of its own."""

    class Own(keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=predicted)
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
            )
            loss *= tf.distribute.get_strategy().num_replicas_in_sync  # compute_loss has divided it
            for metric in self.metrics:
                metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, predicted)
            return {metric.name: metric.result() for metric in self.metrics}

    return Own


def train(keras: Any, case: Case, strategy: Any) -> tuple[dict[str, Any], list[Any]]:
    """Train; what it has told, and the weights."""
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(case.policy)
    with strategy.scope():
        model = make(keras, case)
    if case.built:
        begin_alike(keras, model)
    batches: list[dict[str, float]] = []

    class Batches(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            batches.append({name: float(value) for name, value in logs.items()})

    arguments = {**inputs(case), "steps_per_epoch": case.steps, "verbose": 0}
    checked = validation(case)
    history = model.fit(epochs=EPOCHS, validation_data=checked, callbacks=[Batches()], **arguments).history
    if case.then == "fit":
        again = model.fit(epochs=1, **arguments).history
        history = {name: values + again.get(name, []) for name, values in history.items()}
    x, classes, _ = arrays(case)
    told: dict[str, Any] = {}
    if case.then == "train_on_batch":
        told["on_batch"] = [float(each) for each in model.train_on_batch(x[:8], classes[:8])]
    told |= {
        "history": {name: [float(each) for each in values] for name, values in history.items()},
        "batches": batches,
        "evaluated": model.evaluate(checked, verbose=0, return_dict=True),
        "predicted": model.predict(x[:33], batch_size=BATCH, verbose=0).tolist(),
        "iterations": int(model.optimizer.iterations.numpy()),
    }
    return told, [np.asarray(each) for each in model.get_weights()]


def main(out: str, library: str, names: list[str]) -> None:
    """Train all cases in one process."""
    config = os.environ.get("TF_CONFIG", "")
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if config else tf.distribute.get_strategy()
    task = json.loads(config)["task"]["index"] if config else "alone"
    keras = importlib.import_module(library)
    for name in names:
        told, weights = train(keras, CASES[name], strategy)
        Path(f"{out}.{name}.{task}.json").write_text(json.dumps(told))
        np.savez(f"{out}.{name}.{task}.npz", *weights)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

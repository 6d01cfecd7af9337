"""A model saved under one strategy is loaded under another, or under none, and trained on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import keras as keras_3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tftraining.examples import multi_worker_mnist as program
from tftraining.lib import data, device_setup
from tftraining.lib.input_pipeline import Order, endless_batches


def scope(name: str) -> AbstractContextManager[Any]:
    """The scope of a strategy on two devices, or none."""
    two = ["CPU:0", "CPU:1"]
    return tf.distribute.MirroredStrategy(two).scope() if name == "mirrored" else nullcontext()


@pytest.mark.slow_fault
@pytest.mark.parametrize("loaded", ["plain", "mirrored"])
@pytest.mark.parametrize("saved", ["plain", "mirrored"])
@pytest.mark.parametrize(("name", "steps"), [("model", 40), ("model.keras", 60)])
def test_a_loaded_model_is_trained_on(tmp_path: Path, name: str, steps: int, saved: str, loaded: str) -> None:
    """For two epochs of 20 steps, compiled as it was saved. Only a .keras file has the state of the optimizer."""
    device_setup.set_seed(1)
    digits = data.load("digits")
    batches = endless_batches(digits.train, Order(64, seed=1))
    with scope(saved):
        model = program.make_model((8, 8, 1), 0.1)
    model.fit(batches, epochs=1, steps_per_epoch=20, verbose=0)
    model.save(tmp_path / name)
    with scope(loaded):
        again = keras.models.load_model(tmp_path / name)
    images = digits.test.images
    np.testing.assert_allclose(again.predict(images, verbose=0), model.predict(images, verbose=0), atol=1e-5)
    curves = again.fit(batches, epochs=2, steps_per_epoch=20, verbose=0).history
    assert curves["accuracy"][1] > curves["accuracy"][0] > 0.6
    assert int(again.optimizer.iterations.numpy()) == steps


def compiled(layer: Any) -> Any:
    """A SavedModel as a layer of a new model of Keras 3."""
    model = keras_3.Sequential([keras_3.Input((8, 8, 1)), layer])
    loss = keras_3.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=keras_3.optimizers.SGD(0.1), metrics=["accuracy"])
    return model


@pytest.mark.slow_fault
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras with numpy 2
@pytest.mark.parametrize("loaded", ["plain", "mirrored"])
@pytest.mark.parametrize("saved", ["plain", "mirrored"])
def test_a_model_of_keras_3_is_trained_on_and_served(tmp_path: Path, saved: str, loaded: str) -> None:
    """The .keras file with the state of the optimizer, the SavedModel as a layer. Any process serves the latter."""
    device_setup.set_seed(1, keras=keras_3)
    digits = data.load("digits")
    batches, images = endless_batches(digits.train, Order(64, seed=1)), digits.test.images
    with scope(saved):
        model = program.make_model((8, 8, 1), 0.1, keras=keras_3)
    model.fit(batches, epochs=1, steps_per_epoch=20, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    program.export(program.Places(str(tmp_path), "3"))
    expected = model.predict(images, verbose=0)
    with scope(loaded):
        again = keras_3.models.load_model(tmp_path / "model.keras")
        exported = compiled(keras_3.layers.TFSMLayer(str(tmp_path / "model"), call_endpoint="serve"))
    for each, steps in ((again, 60), (exported, 40)):
        np.testing.assert_allclose(each.predict(images, verbose=0), expected, atol=1e-5)
        curves = each.fit(batches, epochs=2, steps_per_epoch=20, shuffle=False, verbose=0).history
        assert curves["accuracy"][1] > curves["accuracy"][0] > 0.6
        assert int(each.optimizer.iterations.numpy()) == steps
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    (outputs,) = served(tf.constant(images)).values()
    np.testing.assert_allclose(outputs, expected, atol=1e-5)

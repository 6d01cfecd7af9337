"""docs/programs.md#an-old-tutorial-today: each error has these words in this Keras, and each remedy works."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from tests.support.repository import REPOSITORY


def page() -> str:
    section = (REPOSITORY / "docs/programs.md").read_text().split("## An old tutorial today\n")[1]
    return section.split("\n## ")[0]


def model() -> Any:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras' own files
@pytest.mark.parametrize(
    ("words", "old", "today"),
    [
        (
            "has no attribute 'experimental_run_v2'",
            lambda _: tf.distribute.MirroredStrategy(["CPU:0"]).experimental_run_v2(int),
            lambda _: tf.distribute.MirroredStrategy(["CPU:0"]).run(int),
        ),
        (
            "'Mean' object has no attribute 'reset_states'",
            lambda _: keras.metrics.Mean().reset_states(),
            lambda _: keras.metrics.Mean().reset_state(),
        ),
        (
            "missing 1 required positional argument: 'pool_size'",
            lambda _: keras.layers.AveragePooling2D(),
            lambda _: keras.layers.AveragePooling2D(2),
        ),
        (
            "is deprecated. Use",
            lambda _: keras.layers.InputLayer(input_shape=(28, 28)),
            lambda _: keras.Input((28, 28)),
        ),
        (
            "Invalid filepath extension for saving",
            lambda place: model().save(place / "folder"),
            lambda place: (model().save(place / "model.keras"), model().export(place / "folder", verbose=False)),
        ),
        (
            "File format not supported",
            keras.models.load_model,
            lambda place: (
                model().export(place / "folder", verbose=False),
                keras.layers.TFSMLayer(place / "folder", call_endpoint="serving_default"),
            ),
        ),
        (
            "The filename must end in",
            lambda place: model().save_weights(place / "weights"),
            lambda place: model().save_weights(place / "model.weights.h5"),
        ),
        (
            "The filepath provided must end in",
            lambda place: keras.callbacks.ModelCheckpoint(place / "{epoch}"),
            lambda place: keras.callbacks.ModelCheckpoint(place / "{epoch}.keras"),
        ),
        (
            "Argument(s) not recognized: {'lr': 0.1}",
            lambda _: keras.optimizers.Adam(lr=0.1),
            lambda _: keras.optimizers.Adam(learning_rate=0.1),
        ),
        (
            "has no attribute 'experimental'",
            lambda _: keras.callbacks.experimental.BackupAndRestore,
            keras.callbacks.BackupAndRestore,
        ),
        ("has no attribute 'fit_generator'", lambda _: model().fit_generator([]), None),
        ("fit() got an unexpected keyword argument 'workers'", lambda _: model().fit([[0.0] * 3], workers=4), None),
        ("'SGD' object has no attribute 'minimize'", lambda _: keras.optimizers.SGD().minimize, None),
        (
            "A KerasTensor cannot be used as input to a TensorFlow function",
            lambda _: tf.reduce_sum(keras.Input((3,))),
            lambda _: keras.ops.sum(keras.Input((3,))),
        ),
        ("module 'tensorflow' has no attribute 'estimator'", lambda _: tf.estimator, None),
    ],
    ids=lambda each: re.sub(r"\W+", " ", each)[-40:].strip() if isinstance(each, str) else "",
)
def test_the_page_has_the_words_of_this_keras(
    words: str, old: Callable[[Path], Any], today: Callable[[Path], Any] | None, tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=re.escape(words)):
        old(tmp_path)
    assert words in page()
    if today is not None:
        today(tmp_path)

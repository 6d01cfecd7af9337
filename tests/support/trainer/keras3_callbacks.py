"""A member of a gang that trains with callbacks of Keras 3: `python -m ... DIRECTORY`. It writes `told.TASK.json`.

The members share the directory `DIRECTORY/shared`; `DIRECTORY/TASK` is each one's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

import tftraining
from tests.support.trainer.keras3_program import examples

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
TASK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
DIRECTORY = Path(sys.argv[1])
SHARED, OWN = DIRECTORY / "shared", DIRECTORY / str(TASK)
EPOCHS = 4


class Counting(keras.Model):  # type: ignore[misc]
    """A model that notes where it is saved."""

    saved: ClassVar[list[str]] = []

    def save(self, filepath: Any, **options: Any) -> None:
        self.saved.append(str(filepath))
        super().save(filepath, **options)

    def save_weights(self, filepath: Any, **options: Any) -> None:
        self.saved.append(str(filepath))
        super().save_weights(filepath, **options)


class Stop(keras.callbacks.Callback):  # type: ignore[misc]
    """Fails at the begin of an epoch, as a killed program would end there."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2:
            raise InterruptedError


def make(steps: int | None = None, **options: Any) -> Any:
    keras.utils.set_random_seed(1)
    with STRATEGY.scope():
        entry = keras.Input((8,))
        hidden = keras.layers.BatchNormalization(momentum=0.9)(keras.layers.Dense(16, activation="relu")(entry))
        model = Counting(entry, keras.layers.Dense(3)(hidden))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(
            keras.optimizers.Adam(0.02, gradient_accumulation_steps=steps), loss, metrics=["accuracy"], **options
        )
    Counting.saved.clear()
    return model


def fit(model: Any, *callbacks: Any, epochs: int = EPOCHS) -> Any:
    return model.fit(
        examples(250), epochs=epochs, validation_data=examples(65), callbacks=list(callbacks), shuffle=False, verbose=0
    )


def digest(model: Any) -> str:
    values = [np.asarray(each).tobytes() for each in [*model.weights, *model.optimizer.variables]]
    return hashlib.sha256(b"".join(values)).hexdigest()


def error_of(action: Callable[[], Any]) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:4000]
    return ""


def deciding() -> dict[str, Any]:
    """Callbacks that decide, and those that write files."""
    kinds, model = keras.callbacks, make()
    history = fit(
        model,
        kinds.EarlyStopping(monitor="val_loss", patience=3, restore_best_weights=True),
        kinds.ReduceLROnPlateau(monitor="val_loss", patience=1, factor=0.5),
        kinds.ModelCheckpoint(str(SHARED / "best.keras"), save_best_only=True),
        kinds.ModelCheckpoint(str(SHARED / "{epoch}.weights.h5"), save_weights_only=True),
        kinds.ModelCheckpoint(str(OWN / "last.keras")),
        kinds.CSVLogger(str(OWN / "log.csv")),
        kinds.TensorBoard(str(OWN / "board")),
        kinds.CSVLogger(str(SHARED / "log.csv"), append=True),
        kinds.TensorBoard(str(SHARED / "board"), histogram_freq=1, update_freq=2),
        epochs=12,
    )
    told = {"saved": sorted(set(Counting.saved)), "digest": digest(model), "process": os.getpid()}
    return {**told, "rate": float(model.optimizer.learning_rate.numpy()), "history": history.history}


def resumed() -> dict[str, Any]:
    """A `fit` that fails after two epochs, and its repetition; beside one that is not disturbed."""
    undisturbed = make()
    fit(undisturbed)
    first = make()
    error = error_of(lambda: fit(first, keras.callbacks.BackupAndRestore(SHARED / "backup"), Stop()))
    left = sorted(path.name for path in (SHARED / "backup").glob("*"))
    saved = len(Counting.saved)
    second = make()
    history = fit(second, keras.callbacks.BackupAndRestore(SHARED / "backup"))
    told = {"error": error, "left": left, "saved": saved, "epochs": history.epoch}
    return {**told, "digests": [digest(undisturbed), digest(second)], "gone": not (SHARED / "backup").exists()}


def not_shared() -> dict[str, Any]:
    """Members that do not resume at one place; and the backup of another Keras."""
    error_of(lambda: fit(make(), keras.callbacks.BackupAndRestore(OWN / "backup"), Stop()))
    saved = len(Counting.saved)
    if TASK:
        shutil.rmtree(OWN / "backup")
    error = error_of(lambda: fit(make(), keras.callbacks.BackupAndRestore(OWN / "backup")))
    legacy = DIRECTORY / "legacy" / "chief"
    legacy.mkdir(parents=True, exist_ok=True)
    (legacy / "checkpoint").touch()
    refused = error_of(lambda: fit(make(), keras.callbacks.BackupAndRestore(legacy.parent)))
    return {"saved": saved, "error": error, "refused": refused}


def averaged() -> dict[str, Any]:
    """A custom loop in which the statistics of the members differ, until they are averaged."""
    model = make()
    x = tf.constant(np.random.default_rng(TASK).normal(size=(16, 8)), "float32")
    STRATEGY.run(tf.function(lambda: model(x, training=True)))
    before = digest(model)
    tftraining.average_moving_statistics(model)
    return {"before": before, "after": digest(model)}


def overflow() -> dict[str, Any]:
    """With mixed precision, the gradients of the second worker overflow in one step."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    numbers = np.random.default_rng(0)
    x, y = (numbers.normal(size=(256, size)).astype("float32") for size in (8, 1))
    x[32 * 3 + 16 : 32 * 4] *= 1e4
    with STRATEGY.scope():
        hidden = keras.layers.Dense(16, activation="relu")
        model = keras.Sequential([keras.Input((8,)), hidden, keras.layers.Dense(1, dtype="float32")])
        model.compile("sgd", "mse")
    scales: list[float] = []

    class Scale(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            scales.append(float(model.optimizer.dynamic_scale.numpy()))

    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(32), callbacks=[Scale()], shuffle=False, verbose=0)
    keras.mixed_precision.set_global_policy("float32")
    return {"scales": scales, "digest": digest(model)}


def refusals() -> dict[str, Any]:
    """What Keras or TensorFlow refuse, for docs/keras3.md."""
    return {
        "accumulation": error_of(lambda: fit(make(2))),
        "compiled": error_of(lambda: fit(make(jit_compile=True))),
    }


if __name__ == "__main__":
    for place in (SHARED, OWN):
        place.mkdir(parents=True, exist_ok=True)
    cases = (overflow, deciding, resumed, not_shared, averaged, refusals)
    told = {case.__name__: case() for case in cases if case.__name__ in (sys.argv[2:] or case.__name__)}
    (DIRECTORY / f"told.{TASK}.json").write_text(json.dumps(told))

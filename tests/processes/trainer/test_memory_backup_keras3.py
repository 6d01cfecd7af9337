"""`fit` of Keras 3 in this process, as the launcher's hook extends it: interrupted, and resumed from a copy in memory.

As test_memory_backup_fit.py for tf_keras. A training that was interrupted ends with the same bytes as one that was not.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer import slow_input
from tftraining.launch.in_user_process import call_site
from tftraining.launch.in_user_process.memory_backup import (
    fit,
    fit_hook,
    input_position,
    interval,
    kept_variables,
    keras_state,
    model_variables,
)
from tftraining.launch.in_user_process.memory_backup.copy_file import held
from tftraining.launch.in_user_process.memory_backup.settings import CopySettings

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of Keras' own files
STEPS = 40  # in an epoch; copies after 16 and 40, at the end of the epoch, 48, 64
X = np.random.default_rng(1).normal(size=(8 * STEPS, 8)).astype("float32")
DATA = tf.data.Dataset.from_tensor_slices((X, X.sum(1, keepdims=True)))
METHODS = (
    *("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end"),
    *("on_train_batch_begin", "on_train_batch_end"),
)
ORIGINAL = {name: getattr(keras.callbacks.CallbackList, name) for name in METHODS}


class Interrupted(Exception):
    """Stands for a kill: nothing of `fit` runs behind it."""


class Follow(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes each batch, and interrupts behind one of this process."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.batches: list[tuple[int, int]] = []
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches.append((self.epoch, batch))
        if len(self.batches) == self.at:
            raise Interrupted


def state_of(model: Any) -> list[bytes]:
    """The values of all variables, but those of Keras' own metrics, which a `fit` resets."""
    local, again = model.distribute_strategy.experimental_local_results, model_variables.keras_metrics(model)
    state = [each for each in model_variables.all_of(model) if id(each) not in again]
    return [part.numpy().tobytes() for each in state for part in local(each)]


class Job:
    """One job on this machine; each `fit` is another round of it."""

    def __init__(self, place: Path) -> None:
        self.memory, self.backup = place / "memory", place / "backup"
        self.memory.mkdir(parents=True)
        self.round = 0
        self.follow = Follow(0)
        self.model: Any = None

    def fit(
        self, at: int = 0, *, input: Any, epochs: int = 2, saves: bool = True, save_freq: Any = "epoch", **more: Any
    ) -> list[bytes]:
        """Train, to the end or for `at` calls of the step; what the training ends with."""
        self.round += 1
        self.follow = Follow(at)
        copies = held(str(self.memory))
        told = {"directory": str(self.memory), "restore": copies[-1] if copies else None, "percent": 100}
        cls = keras.callbacks.CallbackList
        for name, method in ORIGINAL.items():  # without what the hook of an earlier round has done to it
            setattr(cls, name, method)
        fit_hook.extend(CopySettings(json.dumps(told), {"TFTRAINING_ROUND": str(self.round)}), lambda: True, cls)
        backup = [keras.callbacks.BackupAndRestore(str(self.backup), save_freq)] if saves else []
        callbacks = [*backup, *more.pop("callbacks", []), self.follow]
        self.model.fit(input, epochs=epochs, callbacks=callbacks, verbose=0, shuffle=False, **more)
        return state_of(self.model)

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.memory / "report.json").read_text())
        return found


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job whose call of `fit` is the same in each round: here it has the stack of the tests."""
    monkeypatch.setattr(call_site, "identity", lambda frame, *more: json.dumps(more))
    input_position.watch_iterators()
    # The interval of the first copies, whatever this machine measures.
    monkeypatch.setattr(interval.Measured, "exponent", lambda self, present, share: present)
    yield Job(tmp_path)
    for name, method in ORIGINAL.items():
        setattr(keras.callbacks.CallbackList, name, method)


def build(strategy: Any = None, execution: int = 1, optimizer: Any = None) -> Any:
    """A model with moving averages and random numbers."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    with (strategy or tf.distribute.get_strategy()).scope():
        inner = [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(1)]
        model = keras.Sequential([layers.Input((8,)), *inner])
        model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", metrics=["mae"], steps_per_execution=execution)
    return model


def test_members_exchange_moving_statistics_and_no_frozen_weights() -> None:
    model = build()
    model.layers[0].trainable = False
    assert {each.path.rsplit("/")[-1] for each in model.non_trainable_variables} > {"kernel", "moving_mean"}
    assert [each.shape.as_list() for each in keras_state._differing(model)] == [[4], [4]]


def mirrored() -> Any:
    devices, reduction = ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def ema_and_loss_scale() -> Any:
    adam = keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7)
    return build(optimizer=keras.optimizers.LossScaleOptimizer(adam, initial_scale=64.0, dynamic_growth_steps=5))


Case = tuple[Callable[[], Any], Callable[[], Any], dict[str, Any], int]
CASES: dict[str, Case] = {
    "shuffled": (build, lambda: DATA.shuffle(320, seed=4).batch(8), {"epochs": 3}, 100),
    "repeated": (lambda: build(mirrored(), 5), lambda: DATA.batch(8).repeat(), {"steps_per_epoch": STEPS}, 11),
    "over two epochs": (build, lambda: DATA.shuffle(320, seed=4).batch(8), {"steps_per_epoch": 20, "epochs": 4}, 70),
    "mirrored": (lambda: build(mirrored()), lambda: DATA.shuffle(320, seed=4).batch(8), {}, 55),
    "averages": (ema_and_loss_scale, lambda: DATA.batch(8), {"saves": False}, 55),
}


FIRST, *MORE = CASES


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(name, marks=pytest.mark.slow_fault) for name in MORE)])
def test_an_interrupted_training_ends_with_the_same_bytes(job: Job, tmp_path: Path, name: str) -> None:
    model, data, more, at = CASES[name]
    whole = Job(tmp_path / "undisturbed")
    whole.model = model()
    expected = whole.fit(input=data(), **more)
    job.model = model()
    with pytest.raises(Interrupted):
        job.fit(at, input=data(), **more)
    assert job.report()["on"], job.report()
    before = job.follow.batches
    if (saved := job.backup / "latest.weights.h5").exists():
        saved.write_bytes(b"killed while it saves")
    job.model = model()
    end = job.fit(input=data(), **more)
    assert job.report()["resumed"]["from"] == "Memory"
    assert job.follow.batches[0] in before
    assert job.follow.batches[0] != (0, 0)
    assert job.follow.batches[-1] == whole.follow.batches[-1]
    assert end == expected
    assert held(str(job.memory)) == []


def test_a_resumed_fit_reports_the_input_that_it_skips_until_its_first_step(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator has no position of its own: its batches are made anew, and this takes as long as it takes."""
    monkeypatch.setattr(fit, "PATIENCE_SECONDS", 0.0)
    data, told = slow_input.noting(job.report, 10 * STEPS)
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(37, input=data, steps_per_epoch=STEPS, epochs=1)
    assert not any(skipping for _, skipping in told)
    told.clear()
    job.model = build()
    job.fit(input=data, steps_per_epoch=STEPS, epochs=1)
    resumed = job.report()["resumed"]["step"]
    assert resumed > 16, "inside the epoch"
    assert {skipping for number, skipping in told if number < resumed} == {resumed}
    assert job.report()["skipping"] == 0


def test_no_iterator_outlives_its_fit(job: Job) -> None:
    """One that lives until the interpreter ends waits for ever for a generator of the program."""
    gc.collect()
    gc.disable()
    try:
        job.model = build()
        job.fit(input=DATA.batch(8))
        assert job.report()["lastStep"] > 0, "it has made copies"
        assert not [each for each in gc.get_objects() if type(each).__name__ == "OwnedIterator"]
    finally:
        gc.enable()


class Lasting(keras.metrics.Metric):  # type: ignore[misc]
    """A metric that `fit` does not reset."""

    def __init__(self) -> None:
        super().__init__(name="lasting")
        self.total = self.add_weight(name="total", shape=(), initializer="zeros")

    def update_state(self, truth: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.cast(tf.shape(truth)[0], tf.float32))

    def result(self) -> Any:
        return self.total

    def reset_state(self) -> None:
        pass


class Several(keras.Model):  # type: ignore[misc]
    """State that Keras' file of weights does not restore: two optimizers, a metric, a variable of TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = keras.layers.Dense(4), keras.layers.Dense(1)
        self.lasting, self.annealed = Lasting(), tf.Variable(1.0, trainable=False)
        self(keras.ops.zeros((1, 8)))

    def call(self, x: Any) -> Any:
        return self.head(self.body(x))

    def compile(self) -> None:
        super().compile(loss="mse")
        self.adam, self.sgd = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01, momentum=0.9)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.annealed * tf.reduce_mean((self(x) - y) ** 2) / (1 + self.lasting.total / 1000)
        parts = self.body.trainable_variables, self.head.trainable_variables
        for optimizer, part, gradients in zip((self.adam, self.sgd), parts, tape.gradient(loss, parts), strict=True):
            optimizer.apply_gradients(zip(gradients, part, strict=True))
        self.annealed.assign(self.annealed * 0.999)
        self.lasting.update_state(y, y)
        return {"loss": loss}


def several() -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = Several()
    model.compile()
    return model


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")
@pytest.mark.parametrize(
    ("model", "save_freq", "first"),
    [
        pytest.param(build, "epoch", (1, 0), marks=pytest.mark.slow_fault),
        (build, 30, (1, 20)),
        (several, "epoch", (1, 0)),
    ],
)
def test_without_copies_it_resumes_from_the_storage_and_ends_with_the_same_bytes(
    job: Job, tmp_path: Path, model: Callable[[], Any], save_freq: Any, first: tuple[int, int]
) -> None:
    """The backup has the place and the callbacks beside it: Keras alone would repeat the epoch."""
    whole = Job(tmp_path / "undisturbed")
    whole.model = model()
    expected = whole.fit(input=DATA.shuffle(320, seed=4).batch(8))
    job.model = model()
    with pytest.raises(Interrupted):
        job.fit(65, input=DATA.shuffle(320, seed=4).batch(8), save_freq=save_freq)
    for number, step in held(str(job.memory)):
        (job.memory / f"copy-{number}-{step}").unlink()
    job.model = model()
    end = job.fit(input=DATA.shuffle(320, seed=4).batch(8), save_freq=save_freq)
    assert (job.report()["resumed"], job.follow.batches[0]) == (None, first)
    assert end == expected


def test_what_lies_beside_another_backup_is_not_used(job: Job) -> None:
    """Of the same size and time, as a restored copy of an older backup may have."""
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(65, input=DATA.batch(8))
    for number, step in held(str(job.memory)):
        (job.memory / f"copy-{number}-{step}").unlink()
    saved = job.backup / "latest.weights.h5"
    times = saved.stat()
    with h5py.File(saved, "r+") as file:
        values = file["layers/dense/vars/0"]
        values[...] = values[...] + 1
    os.utime(saved, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert saved.stat().st_size == times.st_size
    job.model = build()
    job.fit(input=DATA.batch(8))
    assert "no stored state" in job.report()["epochResumed"]


@pytest.mark.slow_fault
@pytest.mark.parametrize("make", [lambda: build(mirrored()), several])
def test_a_new_model_gets_all_kept_variables(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Each replica has moving statistics of its own; a second optimizer has not made a step yet."""
    model = make()
    model.fit(DATA.batch(8), verbose=0, shuffle=False)
    file = tmp_path / "kept.npz"
    with file.open("wb") as opened:
        kept_variables.KeptVariables(model).write(opened)
    other = make()
    kept_variables.restore(other, str(file))
    assert state_of(other) == state_of(model)


@pytest.mark.slow_fault
def test_the_kept_variables_of_another_model_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "kept.npz"
    with file.open("wb") as opened:
        kept_variables.KeptVariables(build()).write(opened)
    with pytest.raises(LookupError):
        kept_variables.restore(several(), str(file))

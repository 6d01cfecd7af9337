"""`fit` of tf_keras in this process, as the launcher's hook extends it: interrupted, and resumed from a copy in memory.

The launcher is the test: it sets the program's variable, and writes the files that the launcher writes. The input
depends on the step alone, so a training that was interrupted has to end with the same bytes as one that was not.
Several workers: tests/processes/launch/test_memory_backups.py.
"""

from __future__ import annotations

import gc
import json
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.trainer import slow_input
from tftraining.launch.in_user_process import call_site
from tftraining.launch.in_user_process.memory_backup import fit, fit_hook, input_position, interval
from tftraining.launch.in_user_process.memory_backup.copier import LossIsNotFinite
from tftraining.launch.in_user_process.memory_backup.copy_file import VARIABLE, Copy, held
from tftraining.launch.in_user_process.memory_backup.loop import begin
from tftraining.launch.in_user_process.memory_backup.settings import CopySettings

STEPS = 40  # in an epoch; copies after 16 and 40, at the end of the epoch, 48, 64


class Interrupted(Exception):
    """Stands for a kill: nothing of `fit` runs behind it."""


def example(index: Any) -> Any:
    x = tf.random.stateless_normal([8], tf.stack([index, 7]))
    return x, tf.reduce_sum(x, keepdims=True)


def data(batch: int = 8) -> Any:
    return tf.data.Dataset.range(100_000).map(example).repeat().batch(batch)


class Follow(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes each step, and interrupts at one."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.steps: list[int] = []
        self.batches: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches.append(batch)
        self.steps.append(int(self.model._train_counter.numpy()))
        if self.steps[-1] >= self.at > 0:
            raise Interrupted


class Job:
    """One job on this machine; each `fit` is another round of it."""

    def __init__(self, place: Path) -> None:
        self.memory, self.backup = place / "memory", place / "backup"
        self.memory.mkdir()
        self.round = 0
        self.follow = Follow(0)
        self.told: dict[str, Any] = {"percent": 100}
        self.model: Any = None

    def fit(
        self, at: int = 0, *, input: Any = None, epochs: int = 2, steps: int | None = STEPS, **more: Any
    ) -> list[bytes]:
        """Train, to the end or to step `at`; what the training ends with."""
        self.round += 1
        self.follow = Follow(at)
        copies = held(str(self.memory))
        told = {"directory": str(self.memory), "restore": copies[-1] if copies else None, **self.told}
        fit_hook.extend(
            CopySettings(json.dumps(told), {"TFTRAINING_ROUND": str(self.round)}), lambda: True, self.extended()
        )
        backup = keras.callbacks.BackupAndRestore(str(self.backup))
        callbacks = [backup, self.follow, *more.pop("callbacks", [])]
        self.model.fit(
            data() if input is None else input,
            epochs=epochs,
            steps_per_epoch=steps,
            callbacks=callbacks,
            verbose=0,
            **more,
        )
        strategy = self.model.distribute_strategy
        optimizer = self.model.optimizer.variables
        state = [*self.model.variables, *(optimizer() if callable(optimizer) else optimizer)]
        return [part.numpy().tobytes() for each in state for part in strategy.experimental_local_results(each)]

    def extended(self) -> Any:
        """Keras' class, without what the hook of an earlier round has done to it."""
        cls = keras.callbacks.CallbackList
        for name, method in ORIGINAL.items():
            setattr(cls, name, method)
        return cls

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.memory / "report.json").read_text())
        return found


METHODS = (
    *("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end"),
    *("on_train_batch_begin", "on_train_batch_end"),
)
ORIGINAL = {name: getattr(keras.callbacks.CallbackList, name) for name in METHODS}


def build(loss: Any = "mse", strategy: Any = None, optimizer: Any = "adam", **compiled: Any) -> Any:
    """A model with moving averages."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    with (strategy or tf.distribute.get_strategy()).scope():
        layers = keras.layers
        model = keras.Sequential([layers.Input((8,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)])
        model.compile(optimizer, loss, **compiled)
    return model


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job whose call of `fit` is the same in each round: here it has the stack of the tests."""
    monkeypatch.setattr(call_site, "identity", lambda frame, *more: json.dumps(more))
    input_position.watch_iterators()
    # The interval of the first copies, whatever this machine measures.
    monkeypatch.setattr(interval.Measured, "exponent", lambda self, present, share: present)
    job = Job(tmp_path)
    yield job
    job.extended()


def undisturbed(tmp_path: Path, model: Callable[[], Any], **fitted: Any) -> list[bytes]:
    """What the same training ends with if nothing happens."""
    (tmp_path / "undisturbed").mkdir()
    job = Job(tmp_path / "undisturbed")
    job.model = model()
    return job.fit(**fitted)


def local_replicas() -> Any:
    # Collectives keep the shapes of the first strategy with these devices, and other tests of this process have others.
    devices, reduction = ["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice()
    return build(strategy=tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction))


def several_steps_at_a_time() -> Any:
    return build(steps_per_execution=5)


def first_step_creates_variables() -> Any:
    return build(optimizer=keras.optimizers.legacy.Adam())


@pytest.mark.parametrize("draws", [True, False])
def test_random_numbers_of_the_program_that_the_training_draws_begin_anew_which_is_told(job: Job, draws: bool) -> None:
    job.model = build()
    draw = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: np.random.rand() if draws else None)
    job.fit(callbacks=[draw])
    assert ("the random numbers of Python and NumPy" in job.report().get("beginsAnew", [])) == draws


@pytest.mark.parametrize("copies", [True, False])
def test_no_iterator_outlives_its_fit(job: Job, monkeypatch: pytest.MonkeyPatch, copies: bool) -> None:
    """One that lives until the interpreter ends waits for ever for a generator of the program."""
    if not copies:
        monkeypatch.setattr(call_site, "identity", lambda frame, *more: "")
    gc.collect()
    gc.disable()
    try:
        job.model = build()
        job.fit()
        assert ("lastStep" in job.report()) == copies
        assert not [each for each in gc.get_objects() if type(each).__name__ == "OwnedIterator"]
    finally:
        gc.enable()


@pytest.mark.parametrize("ends", ["with copies", "without copies", "by an exception"])
def test_a_model_does_not_outlive_its_fit(job: Job, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """A program that trains one model after the other has room for one."""
    if ends == "without copies":
        monkeypatch.setattr(call_site, "identity", lambda frame, *more: "")
    job.model = build()
    model = weakref.ref(job.model)
    with pytest.raises(Interrupted) if ends == "by an exception" else nullcontext():
        job.fit(55 if ends == "by an exception" else 0)
    job.model, job.follow = None, Follow(0)
    keras.backend.clear_session()
    gc.collect()
    assert model() is None


@pytest.mark.parametrize("model", [local_replicas, several_steps_at_a_time, first_step_creates_variables])
def test_an_interrupted_training_ends_with_the_same_bytes(job: Job, tmp_path: Path, model: Callable[[], Any]) -> None:
    job.model = model()
    with pytest.raises(Interrupted):
        job.fit(55)
    assert job.report()["on"]
    job.model = model()
    end = job.fit()
    assert job.report()["resumed"] == {"from": "Memory", "step": 50 if model is several_steps_at_a_time else 48}
    assert job.follow.steps[-1] == 2 * STEPS
    assert end == undisturbed(tmp_path, model)
    assert held(str(job.memory)) == []


def with_dropout() -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def test_without_copies_it_resumes_from_the_storage_and_ends_with_the_same_bytes(job: Job, tmp_path: Path) -> None:
    """The backup has the place, the callbacks and the random numbers beside it."""
    job.model = with_dropout()
    with pytest.raises(Interrupted):
        job.fit(55)
    for _, step in held(str(job.memory)):
        (job.memory / f"copy-1-{step}").unlink()
    job.model = with_dropout()
    end = job.fit()
    assert (job.report()["resumed"], job.follow.steps[0]) == (None, STEPS + 1)
    assert end == undisturbed(tmp_path, with_dropout)


def exact_labels() -> Any:
    return data().map(lambda x, y: (x, tf.cast(y, tf.float64)))


def before(job: Job, again: bool) -> None:
    """A `fit` before the one that is interrupted. It traces the step for another input, or for an earlier compile."""
    job.model = with_dropout()
    job.fit(epochs=1, input=data() if again else exact_labels())
    if again:
        job.model.compile("adam", "mse")


@pytest.mark.parametrize("again", [False, True])
def test_dropout_goes_on_where_an_earlier_fit_is_not_repeated(job: Job, tmp_path: Path, again: bool) -> None:
    before(job, again)
    with pytest.raises(Interrupted):
        job.fit(55)
    job.model = with_dropout()
    end = job.fit()
    assert job.report()["resumed"] == {"from": "Memory", "step": 48}
    (tmp_path / "undisturbed").mkdir()
    whole = Job(tmp_path / "undisturbed")
    before(whole, again)
    assert end == whole.fit()


def test_a_resumed_fit_reports_the_input_that_it_skips_until_its_first_step(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator has no position of its own: its batches are made anew, and this takes as long as it takes."""
    monkeypatch.setattr(fit, "PATIENCE_SECONDS", 0.0)
    data, told = slow_input.noting(job.report, 10 * STEPS)
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(37, input=data, epochs=1)
    assert not any(skipping for _, skipping in told)
    told.clear()
    job.model = build()
    job.fit(input=data, epochs=1)
    resumed = job.report()["resumed"]["step"]
    assert resumed > 16, "inside the epoch"
    assert {skipping for number, skipping in told if number < resumed} == {resumed}
    assert job.report()["skipping"] == 0


def test_dropout_of_a_step_that_a_fit_without_copies_has_traced_begins_anew_which_is_told(job: Job) -> None:
    job.model = with_dropout()
    job.extended()  # without the hook
    job.model.fit(data(), epochs=1, steps_per_epoch=2, verbose=0)
    job.fit()
    assert "the random numbers of RandomUniform" in job.report()["beginsAnew"]


def test_dropout_of_a_step_that_the_copy_does_not_know_begins_anew_which_is_told(job: Job) -> None:
    job.model = with_dropout()
    with pytest.raises(Interrupted):
        job.fit(55)
    job.model = with_dropout()
    job.fit(input=exact_labels())
    assert "the random numbers of random_uniform" in job.report()["beginsAnew"]


class Watched(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives each epoch the loss that the callbacks behind it look at: the best one is that of epoch 1."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["watched"] = [5.0, 3.0, 4.0, 4.0, 4.0, 4.0, 2.0, 2.0, 2.0][epoch]


def with_callbacks(place: Path) -> dict[str, Any]:
    callbacks = keras.callbacks
    stop = callbacks.EarlyStopping("watched", patience=4, restore_best_weights=True)
    slow = callbacks.ReduceLROnPlateau("watched", patience=3)
    best = callbacks.ModelCheckpoint(str(place / "best-{epoch}.weights.h5"), "watched", 0, True, True)
    made = [Watched(), stop, slow, best, callbacks.CSVLogger(str(place / "log.csv"))]
    return {"callbacks": made, "epochs": 9, "steps": 20}


@pytest.mark.parametrize("has_copies", [True, False])
def test_early_stopping_and_the_like_end_where_they_do_undisturbed(job: Job, tmp_path: Path, has_copies: bool) -> None:
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(88, **with_callbacks(tmp_path))  # in epoch 4
    for number, step in [] if has_copies else held(str(job.memory)):
        (job.memory / f"copy-{number}-{step}").unlink()
    job.model = build()
    end = job.fit(**with_callbacks(tmp_path))
    assert (job.report()["resumed"] is not None) == has_copies
    assert job.follow.steps[-1] == 6 * 20
    assert end == undisturbed(tmp_path, build, **with_callbacks(tmp_path / "undisturbed"))
    for place in (tmp_path, tmp_path / "undisturbed"):
        assert sorted(each.name for each in place.glob("best-*")) == ["best-1.weights.h5", "best-2.weights.h5"]
    assert (tmp_path / "log.csv").read_bytes() == (tmp_path / "undisturbed" / "log.csv").read_bytes()


# Another reader of the input, in the first start only.

SHUFFLED: dict[str, tuple[Callable[[Any], Any], int | None, str]] = {
    "an order for each iterator": (lambda each: each.shuffle(320, seed=3).batch(8), None, "Step"),
    "an order for each pass": (lambda each: each.shuffle(320, seed=3).batch(8).repeat(), STEPS, "StepDrawnAnew"),
}


@pytest.mark.parametrize("kind", SHUFFLED)
def test_a_shuffled_input_that_only_the_first_start_reads_before_fit(job: Job, tmp_path: Path, kind: str) -> None:
    shuffled, steps, resumed_at = SHUFFLED[kind]

    def read_before() -> Any:
        found = shuffled(tf.data.Dataset.range(8 * STEPS).map(example))
        next(iter(found))
        return found

    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(55, input=read_before(), steps=steps)
    job.model = build()
    end = job.fit(input=shuffled(tf.data.Dataset.range(8 * STEPS).map(example)), steps=steps)
    assert (job.report()["resumed"]["step"], job.report()["resumesAt"]) == (48, resumed_at)
    (tmp_path / "undisturbed").mkdir()
    whole = Job(tmp_path / "undisturbed")
    whole.model = build()
    assert (end == whole.fit(input=read_before(), steps=steps)) == (resumed_at == "Step")


# Another gang.


def rewrite_head(job: Job, **changed: Any) -> None:
    """Make the newest copy one of another gang."""
    number, step = held(str(job.memory))[-1]
    copy = Copy(str(job.memory), number, step)
    head = json.dumps({**copy.head, **changed}).encode()
    copy.close()
    with (job.memory / f"copy-{number}-{step}").open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", len(head)) + head)


class Recorded:
    """A loss that notes the first label of each batch, in a model that runs eagerly; the labels are the examples."""

    def __init__(self) -> None:
        self.labels: list[int] = []

    def __call__(self, labels: Any, outputs: Any) -> Any:
        self.labels.append(int(labels[0, 0]))
        return tf.reduce_mean(outputs)


def numbered(index: Any) -> Any:
    x, _ = example(index)
    return x, tf.reshape(tf.cast(index, tf.float32), [1])


@pytest.mark.parametrize(
    ("batch", "source", "made"),
    [
        (8, "Memory", 48),  # as many examples in a step: the strategy divides the batch
        (4, "Memory", 48),  # half as many, and the epochs are counted in steps
        (None, "Storage", 40),  # the number of examples in a step is unknown: only the begin of an epoch is a place
    ],
)
def test_a_gang_of_another_size_resumes_at_the_same_example(
    job: Job, batch: int | None, source: str, made: int
) -> None:
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(55)
    rewrite_head(job, workers=2)
    recorded = Recorded()
    job.model = build(recorded, run_eagerly=True)
    same = tf.data.Dataset.range(100_000).map(numbered).repeat().batch(batch or 8)
    with pytest.raises(Interrupted):
        # A map behind batch() may change the size of a batch, for all that tf.data knows.
        job.fit(49, input=same if batch else same.map(lambda x, y: (x, y)))
    assert recorded.labels == [step * 8 for step in range(made, 49)]
    assert job.follow.batches == list(range(made % STEPS, 49 % STEPS))
    assert job.follow.steps == list(range(made + 1, 50))  # of all steps of the job
    assert (job.report()["resumed"] is not None) == (source == "Memory")


# What the launcher does meanwhile.


def test_the_launcher_asks_for_a_copy_and_stops_the_training(job: Job) -> None:
    """The step behind the one asked for is never made, so a stop that is announced loses nothing."""
    request = job.memory / "request"
    request.write_bytes(struct.pack("<Q", 37))
    job.model = build()
    released = threading.Event()

    def release() -> None:
        while not (job.memory / "copy-1-37").exists():
            assert not released.wait(0.02)
        released.wait(0.3)
        job.follow.at = 1  # where a kill would come
        with request.open("r+b") as file:
            file.write(bytes(8))

    thread = threading.Thread(target=release)
    thread.start()
    try:
        with pytest.raises(Interrupted):
            job.fit()
    finally:
        released.set()
        thread.join()
    assert job.follow.steps[-1] == 38
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(38)
    assert job.follow.steps == [38]


# A loss that is no number.


def diverging(at: int) -> Any:
    """Data whose example for this step has no number for a label."""
    bad = tf.data.Dataset.range(100_000).map(
        lambda index: (example(index)[0], [0.0 if index < at * 8 else float("nan")])
    )
    return bad.repeat().batch(8)


def test_a_training_that_diverges_keeps_its_last_good_copy_and_runs_on(job: Job) -> None:
    job.model = build()
    with pytest.raises(Interrupted):
        job.fit(75, input=diverging(60))
    assert [step for _, step in held(str(job.memory))] == [40, 48]
    assert job.report()["reason"] == "the loss of step 64 is nan: the copies before it are kept"
    # After the restart the same comes again, but not within the first interval after the restore.
    job.model = build()
    with pytest.raises(LossIsNotFinite, match="the loss is NaN 16 steps after the restore of the copy of step 48"):
        job.fit(75, input=diverging(60))
    assert [step for _, step in held(str(job.memory))] == [40, 48]


# Another TensorFlow or Keras.


class Later:
    """What stands in the place of a class in a later version."""


TRACKABLE = "tensorflow.python.trackable.base"
STRATEGY = "tensorflow.python.distribute.collective_all_reduce_strategy"
CHANGED = {
    TRACKABLE: "",  # moved: or lookup tables would be left out
    STRATEGY: "CollectiveAllReduceExtended",
    "tensorflow.python.distribute.input_lib": "DistributedDataset",
    "tensorflow.python.checkpoint.checkpoint_management": "CheckpointManager",
}


def change(monkeypatch: pytest.MonkeyPatch, module: str) -> str:
    """Change what a later version may; what then is missing."""
    if not (name := CHANGED[module]):
        monkeypatch.delitem(sys.modules, module)
        return f"the module {module} is not loaded"
    monkeypatch.setattr(sys.modules[module], name, Later)
    return name


@pytest.mark.parametrize("module", CHANGED)
def test_a_fit_in_another_tensorflow_has_no_copies_and_trains_the_same(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    expected = undisturbed(tmp_path, build)
    job.model = build()
    missing = change(monkeypatch, module)
    assert job.fit() == expected
    assert missing in job.report()["reason"]


@pytest.mark.parametrize("module", [TRACKABLE, STRATEGY])
def test_a_loop_in_another_tensorflow_has_no_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str
) -> None:
    checkpoint = tf.train.Checkpoint(value=tf.Variable(1.0))
    missing = change(monkeypatch, module)
    told = json.dumps({"directory": str(tmp_path), "percent": 1})
    loop = begin(checkpoint, sys._getframe(), {VARIABLE: told, "TFTRAINING_ROUND": "1"})
    assert (loop.restore(3), loop.enabled) == (3, False)
    assert missing in capsys.readouterr().err


def test_a_callback_of_another_keras_begins_anew_which_is_told(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.model, stop = build(), keras.callbacks.EarlyStopping("loss")
    monkeypatch.setattr(sys.modules["tf_keras.src.callbacks"], "EarlyStopping", Later)
    job.fit(callbacks=[stop])
    assert "EarlyStopping" in job.report()["beginsAnew"]

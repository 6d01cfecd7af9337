"""The parts of the multi-worker example in one process: options, data for several workers, lines, saves, the result.

What several workers do together is in test_multi_worker_mnist.py.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tftraining.cluster import Task
from tftraining.examples import multi_worker_mnist as program
from tftraining.lib import device_setup
from tftraining.lib.callbacks import LogEpochs, SaveEvery, callback
from tftraining.lib.checkpoints import State, step_of
from tftraining.lib.data import Examples
from tftraining.lib.evaluator import Evaluator, measure_with
from tftraining.lib.input_pipeline import plain_batches
from tftraining.lib.options import UsageError
from tftraining.lib.train_step import TrainStep
from tftraining.lib.training_log import TrainingLog

WORKER = Task("worker", 1, 2, is_chief=False, rank=1)
ALONE = Task()
EXAMPLES = Examples(np.linspace(0, 1, 40 * 64, dtype=np.float32).reshape(40, 8, 8, 1), np.arange(40) % 10)


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return program.make_model((8, 8, 1), 0.1)


def test_the_defaults_are_those_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFTRAINING_DIR", raising=False)
    options = program.parse([])
    assert (options.data, options.epochs, options.batch_size, options.directory) == (
        "digits",
        10,
        64,
        "training-output/multi_worker_mnist",
    )
    monkeypatch.setenv("TFTRAINING_DIR", "/training/job")
    assert program.parse([]).directory == "/training/job"


@pytest.mark.parametrize(
    "wrong", [["--epochs", "0"], ["--save-freq", "often"], ["--data", "cats"], ["--auto-shard", "no"]]
)
def test_wrong_options_end_the_program(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        program.parse(wrong)
    assert end.value.code == 2


def test_the_backup_may_be_by_epoch_or_by_step() -> None:
    assert program.parse([]).save_freq == "epoch"
    assert program.parse(["--save-freq", "5"]).save_freq == 5


@pytest.mark.parametrize(
    ("arguments", "task", "gpus", "message"),
    [
        ([], Task("ps", 0, 2, False), 0, "the roles chief, worker and evaluator, not ps-0"),
        ([], Task("evaluator", 0, 2, False), 0, "an evaluator needs checkpoints: set --keep-checkpoints"),
        (["--communication", "nccl"], ALONE, 0, "nccl needs GPUs"),
        (["--auto-shard", "file"], WORKER, 0, "in memory: set --records 2 at least"),
        (["--auto-shard", "file", "--records", "1"], WORKER, 0, "a file for each worker"),
        (["--records", "2", "--loop", "custom"], WORKER, 0, "--records needs --loop fit"),
        (["--loop", "custom", "--precision", "mixed_float16"], WORKER, 1, "choose mixed_bfloat16"),
        (["--jit"], WORKER, 0, "XLA cannot wait"),
        (["--data-service", "localhost:1"], WORKER, 0, "--data-service needs --records"),
        (["--accumulate", "2"], WORKER, 0, "--accumulate needs --loop custom"),
        (["--accumulate", "3", "--loop", "custom"], WORKER, 0, "--batch-size 64 is not a multiple of --accumulate 3"),
    ],
)
def test_what_cannot_work_here_is_said(arguments: list[str], task: Task, gpus: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program.check(program.parse(arguments), task, gpus)


def test_what_can_work_here_passes() -> None:
    program.check(program.parse(["--communication", "nccl"]), WORKER, gpus=1)
    program.check(program.parse(["--auto-shard", "file"]), ALONE, gpus=0)
    program.check(program.parse(["--auto-shard", "file", "--records", "2"]), WORKER, gpus=0)
    program.check(program.parse(["--keep-checkpoints"]), Task("evaluator", 0, 2, False), gpus=0)


def test_the_batch_grows_with_the_workers() -> None:
    options = program.parse(["--batch-size", "8"])
    for task, expected in ((ALONE, 8), (WORKER, 16)):
        images, labels = next(iter(program.make_dataset(EXAMPLES, options, task)))
        assert images.shape == (expected, 8, 8, 1)
        assert labels.shape == (expected,)


@pytest.mark.parametrize("policy", ["off", "data", "auto", "file"])
def test_the_auto_shard_policy_reaches_the_data(policy: str) -> None:
    dataset = program.make_dataset(EXAMPLES, program.parse(["--auto-shard", policy]), ALONE)
    assert dataset.options().experimental_distribute.auto_shard_policy.name.lower() == policy


def test_without_sharding_the_workers_draw_in_different_orders() -> None:
    options = program.parse(["--auto-shard", "off", "--batch-size", "20"])
    other = Task("worker", 0, 2, is_chief=True)
    first, second = (next(iter(program.make_dataset(EXAMPLES, options, task)))[1] for task in (other, WORKER))
    assert list(first.numpy()) != list(second.numpy())


def test_progress_says_where_a_training_goes_on(model: keras.Model, capsys: pytest.CaptureFixture[str]) -> None:
    progress = callback(keras, LogEpochs, TrainingLog(4))
    model.optimizer.iterations.assign(12)
    saves: list[int] = []
    every = callback(keras, SaveEvery, 2, saves.append)
    arrays = (EXAMPLES.images, EXAMPLES.labels)
    model.fit(*arrays, initial_epoch=1, epochs=4, verbose=0, callbacks=[progress, every])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "resumed from epoch 1 (step 12 of the training)"
    assert [line.split(" loss ")[0] for line in lines[1:]] == ["epoch 2/4", "epoch 3/4", "epoch 4/4"]
    assert progress.training_log.resumed_from == 1
    assert saves == [2]  # the end of the training has its own


def test_a_training_that_was_done_says_so(model: keras.Model, capsys: pytest.CaptureFixture[str]) -> None:
    progress = callback(keras, LogEpochs, TrainingLog(3))
    model.optimizer.iterations.assign(9)
    model.fit(EXAMPLES.images, EXAMPLES.labels, initial_epoch=3, epochs=3, verbose=0, callbacks=[progress])
    assert capsys.readouterr().out == "resumed from epoch 3 (step 9 of the training), nothing left to train\n"
    assert progress.training_log.resumed_from == 3


def test_a_new_training_says_nothing_of_resuming(model: keras.Model, capsys: pytest.CaptureFixture[str]) -> None:
    progress = callback(keras, LogEpochs, TrainingLog(1))
    model.optimizer.iterations.assign(0)
    model.fit(EXAMPLES.images, EXAMPLES.labels, epochs=1, verbose=0, callbacks=[progress])
    assert capsys.readouterr().out.startswith("epoch 1/1 loss ")
    assert progress.training_log.resumed_from == 0


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["--data", "mnist", "--data-dir", "/no/such"], "", "no file train-images-idx3-ubyte.gz in /no/such"),
        ([], "{", "TF_CONFIG is not JSON"),
        (["--directory", "/dev/null/x"], "", "cannot create the directory /dev/null/x"),
    ],
)
def test_what_stops_the_program_is_one_line(
    arguments: list[str],
    environment: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TF_CONFIG", environment)
    assert program.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_only_the_chief_writes_the_checkpoints_that_count(model: keras.Model, tmp_path: Path) -> None:
    """The others write too, as they must, and all take up the chief's."""
    train_step = TrainStep(model, model.optimizer, 8)
    model.optimizer.build(model.trainable_variables)
    State(train_step, str(tmp_path), Task("worker", 0, 2, is_chief=True)).save(3)
    State(train_step, str(tmp_path), WORKER).save(4)
    assert list((tmp_path / "workertemp_1").iterdir()) == []  # what it wrote is gone already
    assert len(list((tmp_path / "checkpoints").glob("*.index"))) == 1
    assert State(train_step, str(tmp_path), WORKER).epoch == 3


@pytest.mark.parametrize(("shape", "other"), [((8, 8, 1), "keras"), ((28, 28, 1), "tf_keras")])
def test_a_checkpoint_of_another_model_is_refused(shape: tuple[int, int, int], other: str, tmp_path: Path) -> None:
    """Of Keras 3, or for other pictures: TensorFlow would restore what fits and leave the rest as it was made."""

    def state_of(model: Any) -> State:
        model.optimizer.build(model.trainable_variables)
        return State(TrainStep(model, model.optimizer, 8), str(tmp_path))

    state_of(program.make_model((8, 8, 1), 0.1)).save(3)
    with pytest.raises(UsageError, match="does not match this model"):
        state_of(program.make_model(shape, 0.1, keras=importlib.import_module(other)))


def test_a_checkpoint_within_an_epoch_knows_its_place(tmp_path: Path) -> None:
    fresh = program.make_model((8, 8, 1), 0.1)
    train_step = TrainStep(fresh, fresh.optimizer, 8)
    State(train_step, str(tmp_path)).save(3, 7, tf.constant([1.0, 2.0, 3.0]))
    state = State(train_step, str(tmp_path))
    assert (state.epoch, state.place, state.tallies.numpy().tolist()) == (3, 7, [1.0, 2.0, 3.0])
    state.save(4)
    state = State(train_step, str(tmp_path))
    assert (state.epoch, state.place, state.tallies.numpy().tolist()) == (4, 0, [0.0, 0.0, 0.0])
    assert State(train_step, str(tmp_path), resume=False).epoch == 0


@pytest.mark.parametrize(
    ("begin", "end", "save_freq", "most", "expected"),
    [
        (70, 140, "epoch", None, ["140 saved"]),
        (0, 70, 30, None, ["30 saved", "60 saved", "70"]),
        (70, 140, 30, None, ["90 saved", "120 saved", "140"]),
        (120, 140, 30, None, ["140"]),
        (0, 60, 30, None, ["30 saved", "60 saved"]),
        (0, 20, 30, None, ["20"]),
        (0, 25, "epoch", 10, ["10", "20", "25 saved"]),
        (5, 40, 30, 10, ["15", "25", "30 saved", "40"]),
    ],
)
def test_where_a_loop_returns_to_save(
    begin: int, end: int, save_freq: str | int, most: int | None, expected: list[str]
) -> None:
    parts = program.ends_of_parts(begin, end, save_freq, most)
    assert [f"{step} saved" if saved else str(step) for step, saved in parts] == expected


def test_each_process_of_a_machine_takes_gpus_of_its_own() -> None:
    """Not tried on GPUs: this machine has none."""
    assert device_setup.share_of_gpus(["a", "b", "c", "d"], 2, 1) == ["c", "d"]
    with pytest.raises(UsageError, match="--gpus-each 2 needs 6 GPUs for process 2 of this job, and has 4"):
        device_setup.share_of_gpus(["a", "b", "c", "d"], 2, 2)


class Checkpoints:
    """A training that saves when the evaluator waits, one epoch at a time."""

    def __init__(self, directory: Path, train_step: TrainStep) -> None:
        self.state = State(train_step, str(directory), resume=False)
        self.waited = 0

    def sleep(self, seconds: float) -> None:
        self.waited += 1
        self.state._optimizer.iterations.assign(self.waited * 10)
        self.state.save(self.waited)


def test_the_evaluator_measures_what_comes_until_the_last(
    model: keras.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.optimizer.build(model.trainable_variables)
    training = Checkpoints(tmp_path, TrainStep(model, model.optimizer, 8))
    measure = measure_with(program.make_network((8, 8, 1)), plain_batches(EXAMPLES, 16))
    first = Evaluator(str(tmp_path), 2, measure)
    expected = first.follow(training.sleep)
    assert [(each["epoch"], each["step"]) for each in first.history] == [(1, 10), (2, 20)]
    _, accuracy = model.evaluate(EXAMPLES.images, EXAMPLES.labels, verbose=0)
    assert expected["test_accuracy"] == pytest.approx(accuracy)
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" test_loss")[0] for line in said] == [
        "evaluated epoch 1/2 (step 10)",
        "evaluated epoch 2/2 (step 20)",
    ]
    again = Evaluator(str(tmp_path), 3, measure)
    again.follow(training.sleep)
    assert [each["epoch"] for each in again.history] == [1, 2, 3]  # epochs 1 and 2 from the file
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_checkpoint_that_vanishes_is_left_out(tmp_path: Path, model: keras.Model) -> None:
    training = Checkpoints(tmp_path, TrainStep(model, model.optimizer, 8))
    calls: list[str] = []

    def measure(path: str) -> dict[str, float]:
        calls.append(path)
        if len(calls) == 1:
            raise tf.errors.NotFoundError(None, None, "gone")
        return {"epoch": 2.0, "step": 20.0, "test_loss": 1.0, "test_accuracy": 0.5}

    assert Evaluator(str(tmp_path), 2, measure).follow(training.sleep)["step"] == 20
    assert [step_of(path) for path in calls] == [10, 20]

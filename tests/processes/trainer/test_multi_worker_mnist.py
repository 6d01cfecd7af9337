"""Two real workers train, one is killed, both are started again: nothing that was backed up is trained twice.

Each test runs TensorFlow for 15 to 40 s on two cores.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer.gang import Gang
from tests.support.trainer.programs import Program, check_logs, check_picture, history, run
from tftraining.lib import data
from tftraining.lib.checkpoints import checkpoints_of, step_of
from tftraining.lib.options import MARK

NAME = "multi_worker_mnist"
EPOCHS = 5
GOOD = 0.9  # test accuracy; undisturbed runs of five epochs reach 0.95 to 0.98


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job"


def epochs(lines: list[str]) -> list[int]:
    """The epochs that a worker has finished."""
    return [int(found[1]) for line in lines if (found := re.match(r"epoch (\d+)/", line))]


def resumed_from(lines: list[str]) -> int:
    return next(int(found[1]) for line in lines if (found := re.match(r"resumed from epoch (\d+) ", line)))


def last_checkpoint(directory: Path) -> int:
    """The step after which the one was saved that a later process takes up, 0 if there is none."""
    path = tf.train.latest_checkpoint(checkpoints_of(str(directory)))
    return step_of(path) if path else 0


def accuracy_as_served(model: Path) -> float:
    """The test accuracy of a SavedModel by its signature, without Keras."""
    test = data.load("digits").test
    served = tf.saved_model.load(str(model)).signatures["serving_default"]
    (logits,) = served(tf.constant(test.images)).values()
    return float(np.mean(np.argmax(logits, axis=1) == test.labels))


def check_result(gang: Gang, resumed: int) -> None:
    """The chief has proved the model and said so, on its last line and in the file."""
    last = gang.lines(0)[-1]
    result = json.loads((gang.directory / "result.json").read_text())
    assert last.startswith(f"result: epochs={EPOCHS} accuracy={round(result['accuracy'], 4)} ")
    assert (result["epochs"], result["workers"], result["resumed_from"]) == (EPOCHS, 2, resumed)
    assert result["accuracy"] > GOOD
    assert any(line.startswith("loaded the saved model in a single process") for line in gang.lines(0))
    assert not (gang.directory / "backup" / "chief").exists()
    assert not (gang.directory / "checkpoints").exists()


@pytest.mark.slow_fault  # the kill that `make test` has is behind launchers (tests/processes/client)
@pytest.mark.parametrize(("loop", "victim"), [("fit", 1), ("fit", 0), ("custom", 0), ("custom", 1)])
def test_a_worker_killed_in_the_middle_of_an_epoch_costs_that_epoch(job: Path, loop: str, victim: int) -> None:
    with Gang(job, ["--epochs", str(EPOCHS), "--loop", loop]) as gang:
        gang.start()
        gang.wait_for_line(victim, "epoch 2/")
        time.sleep(0.3)  # an epoch takes five times as long
        gang.kill(victim)
        done = max(epochs(gang.lines(victim)))
        gang.kill_all()
        assert done < EPOCHS, "the kill came too late to be in the middle"

        gang.start()
        assert gang.wait() == [0, 0]
        resumed = resumed_from(gang.lines(0))
        assert resumed in (done - 1, done), "the last one that the victim told of may not have been saved yet"
        for index in (0, 1):
            assert resumed_from(gang.lines(index)) == resumed
            assert epochs(gang.lines(index)) == list(range(resumed + 1, EPOCHS + 1))
        check_result(gang, resumed=resumed)
        # What the operator cleans up on a cluster, for the whole of the job's runs.
        assert (job / "workertemp_1" / "model").is_dir()


@pytest.mark.slow_fault
def test_the_survivor_of_a_killed_worker_ends_by_itself(job: Path) -> None:
    with Gang(job, ["--epochs", "50"]) as gang:
        gang.start()
        gang.wait_for_line(0, "epoch 1/")
        gang.kill(1)
        assert gang.wait()[0] not in (0, None)
        assert "UnavailableError" in gang.errors(0)


@pytest.mark.slow_fault
def test_a_chief_killed_after_the_last_save_does_not_train_again(job: Path) -> None:
    with Gang(job, ["--epochs", str(EPOCHS), "--steps-per-epoch", "40", "--save-every", "2"]) as gang:
        gang.start()
        gang.wait_for_line(0, "saved the model after step 80")
        gang.wait_for_line(0, "saved the model after step 200")
        gang.kill(0)
        gang.kill_all()
        assert not (job / "result.json").exists(), "the kill came too late"

        gang.start()
        assert gang.wait() == [0, 0]
        for index in (0, 1):
            assert resumed_from(gang.lines(index)) == EPOCHS
            assert epochs(gang.lines(index)) == []
        check_result(gang, resumed=EPOCHS)


@pytest.mark.slow_fault
@pytest.mark.parametrize("loop", [("fit",), ("custom",), ("custom", "--keras", "3")])
def test_a_backup_by_step_resumes_within_the_epoch(job: Path, loop: tuple[str, ...]) -> None:
    with Gang(job, ["--epochs", str(EPOCHS), "--save-freq", "7", "--loop", *loop]) as gang:
        gang.start()
        for index in (0, 1):
            gang.wait_for_line(index, "epoch 2/")
        gang.wait_for_saves(2)  # the first may be that of the epoch
        gang.kill_all()

        gang.start()
        assert gang.wait() == [0, 0]
        (resumed,) = [line for line in gang.lines(0) if line.startswith("resumed")]
        step = int(resumed.split("step ")[1].split()[0])
        assert step % 7 == 0
        assert step > 2 * 70
        check_result(gang, resumed=step // 70)


@pytest.mark.slow_fault
def test_a_loop_killed_within_an_epoch_ends_as_one_that_was_left_alone(tmp_path: Path) -> None:
    """To the last digit, also of the epoch that it was killed in: the data go on, and so do the sums of its steps."""
    arguments = ("--epochs", "3", "--loop", "custom", "--save-freq", "5")
    with Program(NAME, tmp_path / "killed", *arguments) as killed:
        killed.wait_for_line("epoch 1/")
        while last_checkpoint(tmp_path / "killed") <= 70:
            assert killed.process.poll() is None, killed.errors()
            time.sleep(0.01)
        killed.kill()
    with Program(NAME, tmp_path / "killed", *arguments) as resumed:
        result = resumed.result()
        (line,) = [line for line in resumed.lines() if line.startswith("resumed")]
    step = int(line.split("step ")[1].split()[0])
    assert 70 < step < 210
    assert step % 5 == 0
    assert step % 70, "the kill came at the end of an epoch"
    assert run(NAME, tmp_path / "undisturbed", *arguments)["accuracy"] == result["accuracy"]
    assert history(tmp_path / "undisturbed") == history(tmp_path / "killed")


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    "options",
    [
        ("--loop", "fit", "--auto-shard", "off", "--communication", "ring"),
        ("--loop", "custom", "--auto-shard", "off", "--communication", "ring"),
        ("--loop", "fit", "--auto-shard", "file", "--records", "4"),
        ("--loop", "custom", "--keras", "3"),
    ],
)
def test_the_last_evaluation_is_that_of_the_saved_model(job: Path, options: tuple[str, ...]) -> None:
    """Both workers measure the test data after each epoch, each its share, however the training data are shared."""
    picture = job.parent / "curves.png"
    pictures = ["--plot", str(picture), "--logdir", str(job.parent / "logs"), "--profile-steps", "80:90"]
    with Gang(job, ["--epochs", "3", "--validation-steps", "all", *pictures, *options]) as gang:
        gang.start()
        assert gang.wait() == [0, 0]
        assert any(re.match(r"epoch 3/3 .* test_accuracy ", line) for line in gang.lines(1))
    curves, result = history(job), json.loads((job / "result.json").read_text())
    assert [set(record) for record in curves] == [{"epoch", "loss", "accuracy", "test_loss", "test_accuracy"}] * 3
    assert curves[-1]["test_accuracy"] == pytest.approx(result["accuracy"])
    assert curves[-1]["test_loss"] == pytest.approx(result["loss"], rel=1e-3)
    assert result["accuracy"] > 0.85
    assert accuracy_as_served(job / "model") == pytest.approx(result["accuracy"])
    check_picture(picture, job)
    check_logs(job.parent / "logs")


@pytest.mark.slow_fault  # the killed evaluator that `make test` has is in tests/processes/launch/test_restart_scope.py
@pytest.mark.parametrize("loop", [("custom", "--keras", "3"), ("fit",), ("custom",)])
def test_an_evaluator_beside_the_workers_comes_to_the_last_epoch(job: Path, loop: tuple[str, ...]) -> None:
    """It is killed in between, which nobody notices; what it says at the end is what the chief's proof says."""
    arguments = ["--epochs", "4", "--keep-checkpoints", "--loop", *loop]
    with Gang(job, arguments) as gang:
        gang.start()
        config = {"cluster": {"worker": gang.addresses}, "task": {"type": "evaluator", "index": 0}}
        with Program(NAME, job, *arguments, tf_config=config) as evaluator:
            evaluator.wait_for_line("evaluated epoch ")
        with Program(NAME, job, *arguments, tf_config=config) as evaluator:
            assert gang.wait() == [0, 0]
            assert evaluator.process.wait(60) == 0
            assert evaluator.lines()[-1].startswith("result: epochs=4 accuracy=")
    (*_, last) = json.loads((job / "evaluation.json").read_text())
    result = json.loads((job / "result.json").read_text())
    assert (last["epoch"], last["step"]) == (4, 280)
    assert last["test_accuracy"] == pytest.approx(result["accuracy"])
    assert last["test_accuracy"] > GOOD


@pytest.mark.slow_fault
@pytest.mark.parametrize("loop", [("fit",), ("custom", "--keras", "3")])
def test_the_same_seed_trains_the_same(tmp_path: Path, loop: tuple[str, ...]) -> None:
    curves = []
    for name in ("first", "second"):
        with Gang(tmp_path / name / "job", ["--epochs", "2", "--loop", *loop]) as gang:
            gang.directory.parent.mkdir()
            gang.start()
            assert gang.wait() == [0, 0]
            curves.append(history(gang.directory))
    assert curves[0] == curves[1]
    assert len(curves[0]) == 2


@pytest.mark.slow_fault  # the gangs that `make test` trains are behind launchers
def test_without_an_operator_no_temporary_directory_is_left(job: Path) -> None:
    """And a worker that is stopped for a while at its end keeps nobody waiting. With logs for TensorBoard, whose writer
    must not be made before the strategy."""
    logs = job.parent / "logs"
    arguments = ["--epochs", "1", "--steps-per-epoch", "5", "--logdir", str(logs)]
    with Gang(job, arguments, operated=False) as gang:
        gang.start()
        gang.wait_for_line(1, "saved the model")
        with gang.stopped(1):
            gang.wait_for_line(0, "result: ")
            assert gang.workers[0].wait(timeout=30) == 0
        assert gang.wait() == [0, 0]
    assert sorted(path.name for path in job.iterdir()) == [MARK, "backup", "history.json", "model", "result.json"]
    assert any(path.name.startswith("events.out.tfevents") for path in logs.iterdir())

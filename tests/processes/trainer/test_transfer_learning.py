"""MobileNetV2 on folders of pictures: what is written and read, how it is split, and a training that was killed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.trainer.programs import Program, check_picture, history, run
from tftraining.cluster import Task
from tftraining.examples import transfer_learning as program
from tftraining.lib import data
from tftraining.lib.data import DataError
from tftraining.lib.image_folders import (
    Pictures,
    find_parts,
    find_pictures,
    naming_unreadable,
    picture_batches,
    pictures_of,
    shared_batches,
    split,
    write_folders,
)
from tftraining.lib.image_network import losses_of, make_network
from tftraining.lib.input_pipeline import Order
from tftraining.lib.options import UsageError
from tftraining.lib.train_step import per_example_losses

NAME = "transfer_learning"
COUNT = 40
TWO = Task("worker", 0, 2, is_chief=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folders(data.load("digits").train, tmp_path / "pictures", COUNT)
    return tmp_path / "pictures"


def test_what_is_written_is_what_is_read(folder: Path) -> None:
    """Every picture under the name of its class, and to the nearest of 256 shades."""
    digits, found = data.load("digits").train, find_pictures(folder)
    assert len(found) == COUNT
    assert found.names == tuple("0123456789")
    for file, label in zip(found.files, found.labels, strict=True):
        place = int(Path(file).stem)
        assert label == digits.labels[place]
        pixels = tf.io.decode_png(Path(file).read_bytes()).numpy() / 255
        np.testing.assert_allclose(pixels, digits.images[place], atol=0.5 / 255)


def test_each_picture_is_in_one_part_and_comes_once_an_epoch(folder: Path) -> None:
    pictures = find_pictures(folder)
    training, validation = split(pictures, 0.25, seed=1)
    assert (len(training), len(validation)) == (30, 10)
    assert sorted(training.files + validation.files) == sorted(pictures.files)
    orders = []
    for epoch in (0, 1, 1):
        batches = list(picture_batches(training, Order(8, seed=1), 32, epoch))
        assert [len(labels) for _, labels in batches] == [8, 8, 8, 6]
        orders.append([int(label) for _, labels in batches for label in labels])
        assert sorted(orders[-1]) == sorted(training.labels)
    assert orders[0] != orders[1] == orders[2]


def test_pictures_come_as_the_network_takes_them(folder: Path) -> None:
    images, labels = next(iter(picture_batches(find_pictures(folder), Order(8, seed=1), 48, None)))
    assert (images.shape, images.dtype, labels.dtype) == ((8, 48, 48, 3), tf.float32, tf.int64)
    assert -1 == float(tf.reduce_min(images)) < float(tf.reduce_max(images)) <= 1


def test_a_folder_that_is_no_good_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder"):
        find_pictures(tmp_path / "none")
    (tmp_path / "cats").mkdir()
    with pytest.raises(DataError, match="fewer than two classes"):
        find_pictures(tmp_path)
    for part in ("train", "test"):
        (tmp_path / "tree" / part / "cats").mkdir(parents=True)
    with pytest.raises(DataError, match=r"tree/train has pictures of fewer than two classes"):
        find_parts(tmp_path / "tree", 0.25, seed=1)
    with pytest.raises(DataError, match=r"tree holds test and train, not classes: choose one of them, .*tree/train"):
        find_pictures(tmp_path / "tree")


def test_folders_of_training_and_test_are_taken_as_they_are(folder: Path) -> None:
    for name in ("train", "test"):
        shutil.copytree(folder, folder.parent / "tree" / name)
    parts = find_parts(folder.parent / "tree", 0.25, seed=1)
    assert [len(part) for part in parts] == [COUNT, COUNT]
    assert all(f"/{name}/" in file for name, part in zip(("train", "test"), parts, strict=True) for file in part.files)
    assert [len(part) for part in find_parts(folder, 0.25, seed=1)] == [30, 10]
    (folder.parent / "tree" / "test" / "ten").mkdir()
    with pytest.raises(DataError, match=r"tree/train and .*tree/test must have the same classes: only one has ten"):
        find_parts(folder.parent / "tree", 0.25, seed=1)


def test_an_unreadable_picture_is_named_or_skipped_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = folder / "3" / "broken.png"
    bad.write_bytes(b"not a picture")
    pictures = find_pictures(folder)
    message = r"cannot decode .*3/broken.png: replace .* --skip-unreadable$"
    with pytest.raises(DataError, match=message), naming_unreadable(pictures):
        list(picture_batches(pictures, Order(8, seed=1), 32, None))
    kept, held_back = pictures_of(program.parse(["--folders", str(folder), "--skip-unreadable"]))
    assert len(kept) + len(held_back) == COUNT
    assert str(bad) not in kept.files + held_back.files
    assert f"skipped {bad}: it cannot be decoded" in capsys.readouterr().out
    with naming_unreadable(kept):
        assert sum(len(labels) for _, labels in picture_batches(kept, Order(8, seed=1), 32, None)) == len(kept)


def test_a_class_without_a_readable_picture_is_none(folder: Path) -> None:
    for name in "23456789":
        shutil.rmtree(folder / name)
    options = program.parse(["--folders", str(folder), "--skip-unreadable"])
    assert len(pictures_of(options)[0]) > 0
    for picture in (folder / "1").iterdir():
        picture.write_bytes(b"not a picture")
    with pytest.raises(DataError, match="pictures has pictures of fewer than two classes"):
        pictures_of(options)


@pytest.fixture
def tree(folder: Path) -> Path:
    """A folder with `train` and `test`, of the same classes."""
    for name in ("train", "test"):
        shutil.copytree(folder, folder.parent / "tree" / name)
    return folder.parent / "tree"


def leave_one_class(tree: Path) -> None:
    for name in "123456789":
        shutil.rmtree(tree / "train" / name)


def add_a_class(tree: Path) -> None:
    (tree / "test" / "ten").mkdir()


def damage_a_picture(tree: Path) -> None:
    (tree / "train" / "3" / "broken.png").write_bytes(b"not a picture")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (leave_one_class, r"tree/train has pictures of fewer than two classes"),
        (add_a_class, r"tree/train and .*tree/test must have the same classes: only one has ten"),
        pytest.param(damage_a_picture, r"cannot decode .*tree/train/3/broken.png", marks=pytest.mark.slow_fault),
    ],
)
def test_bad_pictures_end_the_program_with_one_line(
    tree: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], None], message: str
) -> None:
    spoil(tree)
    assert program.main(["--folders", str(tree), "--directory", str(tree.parent / "job")]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("transfer_learning: ")]
    assert re.search(message, line)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--validation", "1"], "not between 0 and 1"),
        (["--size", "16"], "32 pixels"),
        (["--weights", "/no/such"], "no weights file /no/such"),
        (["--accumulate", "5"], "--batch-size 32 is not a multiple of --accumulate 5"),
    ],
)
def test_what_cannot_work_is_said(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program.check(program.parse(arguments), Task())


def test_what_several_workers_cannot_do_is_said() -> None:
    with pytest.raises(UsageError, match="--devices and --logical-devices are for one worker"):
        program.check(program.parse(["--devices", "0"]), TWO)
    with pytest.raises(UsageError, match="the roles chief and worker, not ps-0"):
        program.check(program.parse([]), Task("ps", 0, 2, is_chief=False))
    with pytest.raises(UsageError, match=r"60 pictures .* fewer than one batch of all workers, 64: choose a smaller"):
        program.make_order(program.parse([]), 2, 60, TWO)
    assert program.make_order(program.parse([]), 2, 140, TWO) == Order(64, seed=1, steps_per_epoch=2)
    assert program.make_order(program.parse([]), 2, 60, Task()) == Order(64, seed=1)


def test_an_epoch_has_as_many_steps_in_a_smaller_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule of the learning rate would jump, and end too early."""
    monkeypatch.setenv("TFTRAINING_MAX_WORKERS", "4")
    four = Task("worker", 0, 4)
    steps = [program.make_order(program.parse([]), each.workers, 700, each).steps(700) for each in (four, TWO, Task())]
    assert steps == [5, 5, 5]


def test_each_worker_reads_its_share_of_the_pictures(folder: Path) -> None:
    """In batches of the same size; an epoch has each picture once, but those that fill no batch."""
    pictures, order = find_pictures(folder), Order(8, seed=1, steps_per_epoch=5)
    seen = []
    for worker in (0, 1):
        context = tf.distribute.InputContext(2, worker, 2)
        batches = [labels.numpy() for _, labels in shared_batches(pictures, order, 32, 0)(context).take(5)]
        assert [len(labels) for labels in batches] == [4] * 5
        seen += [int(label) for labels in batches for label in labels]
    assert sorted(seen) == sorted(pictures.labels)


def test_folders_that_no_class_has_are_left_out(folder: Path) -> None:
    (folder / ".ipynb_checkpoints").mkdir()
    assert find_pictures(folder).names == tuple("0123456789")


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    (tmp_path / "weights.h5").write_bytes(b"not weights")
    with pytest.raises(UsageError, match=r"cannot load --weights .*weights\.h5"):
        make_network(10, program.parse(["--weights", str(tmp_path / "weights.h5")]))


def test_with_weights_only_the_last_layer_is_trained(tmp_path: Path) -> None:
    first = make_network(10, program.parse([]))
    first.layers[0].save_weights(tmp_path / "weights.h5")
    options = ["--weights", str(tmp_path / "weights.h5")]
    model = make_network(3, program.parse(options))
    assert len(model.trainable_variables) == 2
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], first.layers[0].get_weights()[0])
    tuned = make_network(3, program.parse([*options, "--fine-tune"]))
    assert len(tuned.trainable_variables) > 50
    assert not any("bn" in variable.name.lower() for variable in tuned.trainable_variables), "in inference mode"


@pytest.mark.slow_fault
def test_weights_of_another_network_are_refused_by_the_name_of_the_layer(tmp_path: Path) -> None:
    """A file of Keras, and a checkpoint of this program."""
    first = make_network(10, program.parse(["--width", "0.5"]))
    first.layers[0].save_weights(tmp_path / "weights.h5")
    with pytest.raises(UsageError, match=r"cannot load --weights .*weights\.h5: .*block_1_project"):
        make_network(10, program.parse(["--weights", str(tmp_path / "weights.h5")]))
    best = tf.train.Checkpoint(model=make_network(10, program.parse([]))).write(str(tmp_path / "weights"))
    with pytest.raises(UsageError, match=r"weights does not match this model .*dense"):
        make_network(3, program.parse(["--weights", best]))


@pytest.mark.slow_fault
def test_such_weights_end_the_program_with_one_line(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = tf.train.Checkpoint(model=make_network(7, program.parse([]))).write(str(tree / "weights"))
    places = ["--folders", str(tree), "--directory", str(tree.parent / "job")]
    assert program.main([*places, "--weights", weights]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("transfer_learning: ")]
    assert re.search(r"weights does not match this model .*dense.*: choose another .* --weights$", line)


def test_the_dense_head_has_the_loss_of_its_probabilities() -> None:
    """Keras' CategoricalCrossentropy, the same as that of logits."""
    model = make_network(4, program.parse(["--head", "dense", "--size", "64"]))
    kinds = ["AveragePooling2D", "Flatten", "Dense", "Dropout", "Dense", "Activation"]
    assert [type(layer).__name__ for layer in model.layers[1:]] == kinds
    outputs, labels = model(tf.zeros((5, 64, 64, 3))), tf.constant([0, 1, 2, 3, 0])
    np.testing.assert_allclose(tf.reduce_sum(outputs, axis=1), np.ones(5), rtol=1e-5)
    logits = tf.math.log(outputs)
    expected = per_example_losses(logits, labels)
    np.testing.assert_allclose(losses_of("dense", 4)(outputs, labels), expected, rtol=1e-4)
    np.testing.assert_allclose(losses_of("linear", 4)(logits, labels), expected, rtol=1e-4)


@pytest.mark.slow_fault
def test_a_second_stage_begins_with_the_best_model_of_the_first(tmp_path: Path) -> None:
    first = make_network(10, program.parse([]))
    best = tf.train.Checkpoint(model=first).write(str(tmp_path / "best" / "weights"))
    options = program.parse(["--weights", best, "--fine-tune"])
    program.check(options, Task())
    second = make_network(10, options)
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(UsageError, match=r"best/weights does not match this model"):
        make_network(3, options)


@pytest.mark.slow_fault
def test_it_learns_goes_on_after_a_kill_and_is_fine_tuned(tmp_path: Path) -> None:
    """To 0.8 of the validation in five epochs; undisturbed runs reach 0.90. A second run begins with the best model.

    Its pictures of the training and of the test are in folders of their own.
    """
    arguments = ("--make-folders", "--epochs", "5", "--plot", str(tmp_path / "curves.png"))
    with Program(NAME, tmp_path / "job", *arguments) as killed:
        killed.wait_for_line("epoch 2/")
        killed.kill()
    with Program(NAME, tmp_path / "job", *arguments) as resumed:
        result = resumed.result()
        assert "epochs" in resumed.errors()  # the bar
    assert result["resumed_from"] in (1, 2)
    assert result["accuracy"] > 0.8
    assert result["accuracy"] == pytest.approx(max(each["test_accuracy"] for each in history(tmp_path / "job")))
    check_picture(tmp_path / "curves.png", tmp_path / "job")

    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "train").symlink_to(tmp_path / "job" / "pictures")
    write_folders(data.load("digits").test, tmp_path / "tree" / "test", 200)
    weights = str(tmp_path / "job" / "best" / "weights")
    stage = ("--folders", str(tmp_path / "tree"), "--weights", weights, "--fine-tune")
    tuned = run(NAME, tmp_path / "tuned", *stage, "--learning-rate", "0.0002", "--epochs", "1")
    assert tuned["accuracy"] > 0.75


def test_pictures_know_their_number() -> None:
    assert len(Pictures(("a", "b"), (0, 1), ("x", "y")).chosen(np.asarray([1]))) == 1


@pytest.mark.slow_fault
def test_the_same_seed_trains_the_same(tmp_path: Path) -> None:
    for name in ("first", "second"):
        run(NAME, tmp_path / name, "--make-folders", "--pictures", "300", "--epochs", "2")
    assert history(tmp_path / "first") == history(tmp_path / "second")
    assert len(history(tmp_path / "first")) == 2

"""Lessons by hand in two terminals and with each layout of a mesh, both without a launcher, and in two stages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.support.client.local_run import Run
from tests.support.ports import free_ports
from tests.support.repository import REPOSITORY
from tests.support.trainer.lessons import ACCURACY, LESSONS, manifest

SECONDS = 600  # of a program that takes half a minute on an idle machine


def commands() -> list[str]:
    """The two commands of docs/programs.md."""
    page = (REPOSITORY / "docs" / "programs.md").read_text(encoding="utf-8")
    return re.findall(r"^TF_CONFIG='.*\\\n.*$", page, re.MULTILINE)


def started(command: str, directory: Path, ports: list[int]) -> subprocess.Popen[str]:
    """A command of the page, with free ports and with this Python and this directory."""
    for shown, real in (("12345", str(ports[0])), ("23456", str(ports[1])), ("/tmp/by-hand", str(directory))):
        assert shown in command
        command = command.replace(shown, real)
    command = command.replace(" python ", f" exec {sys.executable} ")
    environment = {**os.environ, "TMPDIR": str(directory.parent)}
    return subprocess.Popen(["bash", "-c", command], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow_fault
def test_two_workers_by_hand(tmp_path: Path) -> None:
    """As the page says, with no launcher: both print the same curves, and only the chief's model is in its place."""
    job, ports = tmp_path / "by-hand", free_ports(2)
    workers = [started(command, job, ports) for command in commands()]
    assert len(workers) == 2
    try:
        chief, other = (worker.communicate(timeout=SECONDS)[0] for worker in workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [worker.returncode for worker in workers] == [0, 0]
    measured = [re.findall(r"loss: .* val_accuracy: [\d.]+", text) for text in (chief, other)]
    assert measured[0] == measured[1]
    assert len(measured[0]) == 10
    assert float(ACCURACY.findall(chief)[-1]) > 0.93
    assert ACCURACY.findall(other) == []
    assert (job / "model.keras").exists()
    assert (job / "workertemp_1" / "model.keras").exists()
    check_served(tf_keras, job / "model.keras")


def lesson_alone(directory: Path) -> subprocess.Popen[str]:
    """The lesson of `fit` with one worker, which has no TF_CONFIG."""
    environment = {**os.environ, "TFTRAINING_DIR": str(directory), "TMPDIR": str(directory)}
    command = [sys.executable, "-m", "tftraining.lessons.multi_worker_fit"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow_fault
@pytest.mark.parametrize("complete", [True, False])
def test_a_worse_epoch_after_a_restart_does_not_replace_the_best_model(tmp_path: Path, complete: bool) -> None:
    """But a file that a killed program has left incomplete is replaced."""
    with lesson_alone(tmp_path) as trained:
        assert float(ACCURACY.findall(trained.communicate(timeout=SECONDS)[0])[-1]) > 0.93
    best = tmp_path / "best.keras"
    if not complete:
        best.write_bytes(best.read_bytes()[:5000])
    before = best.read_bytes()
    with lesson_alone(tmp_path) as again:  # from the beginning: `fit` removes its backup at its end
        assert again.stdout is not None
        for line in again.stdout:
            if line.startswith("Epoch 2/"):
                break
        again.kill()
    assert (best.read_bytes() == before) == complete


@pytest.mark.slow_fault
def test_fine_tuning_begins_with_the_model_of_the_first_stage(tmp_path: Path) -> None:
    """By the two commands of docs/programs.md, beside their `--workdir`."""
    measured = []
    for options in ((), ("--env", "STAGE=fine-tune")):
        with Run(tmp_path, manifest("transfer-learning"), *options) as run:
            assert run.wait() == 0, run.log
            directory, log = run.job, run.log
        measured.append([float(each) for each in ACCURACY.findall(log)])
        assert "accuracy=" in log  # the bar
        assert "loss=" in log
    assert [len(each) for each in measured] == [5, 5]
    assert measured[1][0] > measured[0][-1] - 0.05 > 0.75
    head, tuned = (keras.models.load_model(directory / f"{stage}.keras").layers[1] for stage in ("head", "fine-tune"))
    same = {each.name: np.array_equal(each.moving_mean, other.moving_mean) for each, other in norms(head, tuned)}
    assert same and all(same.values()), "BatchNormalization runs in inference mode, and so keeps its statistics"
    convolution = "expanded_conv_project"
    assert not np.array_equal(head.get_layer(convolution).kernel, tuned.get_layer(convolution).kernel)
    check_served(keras, directory / "fine-tune.keras")


@pytest.mark.slow_fault
@pytest.mark.parametrize("layout", ["data", "model"])  # `hybrid` is that of the manifest
def test_each_layout_of_the_mesh_trains(tmp_path: Path, layout: str) -> None:
    environment = {**os.environ, "TFTRAINING_DIR": str(tmp_path), "LAYOUT": layout}
    command = [sys.executable, "-m", "tftraining.lessons.dtensor_mlp"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True)
    measured = [float(each) for each in ACCURACY.findall(done.stdout)]
    assert len(measured) == 10
    assert measured[-1] > LESSONS["dtensor-mlp"].good


def check_served(library: Any, path: Path) -> None:
    """The SavedModel that `export` makes of a lesson's file says what the model says."""
    model = library.models.load_model(path)
    model.export(str(path.with_name("exported")))
    inputs = tf.random.stateless_uniform((3, *model.input_shape[1:]), (1, 2))
    served = tf.saved_model.load(str(path.with_name("exported"))).signatures["serving_default"]
    (outputs,) = served(inputs).values()
    np.testing.assert_allclose(outputs, model(inputs, training=False), atol=1e-5)


def norms(*models: keras.Model) -> Iterator[tuple[Any, ...]]:
    """The BatchNormalization layers of models of one kind, side by side."""
    kind = keras.layers.BatchNormalization
    return zip(*([layer for layer in model.layers if isinstance(layer, kind)] for model in models), strict=True)

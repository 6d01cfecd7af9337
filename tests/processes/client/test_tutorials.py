"""TensorFlow's tutorials of distributed training, each as one program that knows nothing of the launcher, killed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.local_run import Run, manifest
from tests.support.repository import REPOSITORY
from tests.support.trainer import tutorials

PROGRAMS = REPOSITORY / "tests" / "support" / "trainer"


def job(tmp_path: Path, name: str, workers: int, **variables: str) -> dict[str, Any]:
    """A job of one of the programs, with the launcher's defaults."""
    pictures = tmp_path / "work" / "pictures.npz"
    pictures.parent.mkdir()
    tutorials.write_pictures(pictures)
    made = manifest(workers=workers)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python", str(PROGRAMS / f"{name}.py")]
    container["env"] = [{"name": key, "value": value} for key, value in {"MNIST": str(pictures), **variables}.items()]
    del made["spec"]["launcher"]
    return made


def kill(run: Run, replica: str, program: str, *lines: str) -> None:
    """Kill a program once worker-0 has printed lines that begin so, in this order."""
    run.wait_for("(?s)" + ".*".join(rf"worker-0 +\| {line}" for line in lines))
    os.kill(run.program(replica, program), signal.SIGKILL)


@pytest.mark.slow_fault
def test_multi_worker_training_with_keras_resumes(tmp_path: Path) -> None:
    """In its second `fit`, which has no callback: the first one, in each worker alone, is repeated, which is told."""
    with Run(tmp_path, job(tmp_path, "tutorial_fit", 2)) as run:
        kill(run, "worker-1", "tutorial_fit", "Epoch 1/3", "Epoch 1/3", "Epoch 3/3")
        run.wait_for("accuracies of all workers")
        run.wait_for("accuracies with a backup each epoch")
        assert run.wait() == 0
        log = run.log
    assert "a restart resumes from the storage only: the newest copy is of another fit of this program" in log
    assert len(re.findall(r"worker-\d +\| tftraining: resumed from memory at epoch \d, step \d+", log)) == 2, log
    tutorials.check(log)
    assert (run.job / "keras-model.keras").exists()
    assert list(run.job.rglob("workertemp_*")) == []


@pytest.mark.slow_fault
def test_custom_training_begins_anew_and_says_so(tmp_path: Path) -> None:
    """On two devices. The tutorial saves checkpoints, and restores the last one into another model at the end only."""
    with Run(tmp_path, job(tmp_path, "tutorial_loop", 1, EPOCHS="5", TRAIN="1536", TEST="256")) as run:
        kill(run, "worker-0", "tutorial_loop", "Epoch 3, ")
        assert run.wait() == 0
        log = run.log
    told = r"tftraining: this program was started again, and saves checkpoints in \S+/training_checkpoints beside those"
    assert len(re.findall(told, log)) == 1, log
    assert len(re.findall(r"\| Epoch 1, ", log)) == 2, log
    assert float(re.findall(r"accuracy of the restored model (\S+)", log)[0]) > 0.7, log
    assert "an epoch in a function" in log

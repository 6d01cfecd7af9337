"""A program of Keras 3 with several `fit`s and no backups in memory: what is lost is what is trained again."""

import re
from pathlib import Path

import pytest

from tests.support.client.local_run import Run, manifest

PROGRAM = """
import os, pathlib
import keras, numpy as np

x, y, here = np.ones((20, 3), "float32"), np.ones((20, 1), "float32"), os.environ["TFTRAINING_DIR"]


class Dies(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        first = pathlib.Path(here, "has-died")
        if number == 2 and self.steps == 8 and not first.exists():
            first.touch()
            os._exit(7)


for number in range(3):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    backups = [keras.callbacks.BackupAndRestore(f"{here}/backup")] if number == 2 else []
    model.fit(x, y, batch_size=4, epochs=3, verbose=0, callbacks=[*backups, Dies()])
"""


@pytest.mark.slow_fault
def test_the_steps_of_earlier_fits_and_of_the_lost_epoch_are_done_again(tmp_path: Path) -> None:
    """Two fits of 15 steps, and two steps behind the backup of the third; not the five steps before it."""
    program = tmp_path / "work" / "train.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    job = manifest(workers=1, launcher={"keras": "Unpatched", "memoryBackup": {"mode": "Off"}})
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", str(program)]
    with Run(tmp_path, job) as run:
        assert run.wait() == 0, run.log
        log = run.log
    assert re.search(r"failed with exit code 7, resumed from epoch 1, .*\b32 steps lost", log), log

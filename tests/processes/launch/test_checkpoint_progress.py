"""A newer checkpoint inside an epoch makes the budget of restarts whole: real TensorFlow, and programs that fail before
they come to the end of an epoch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 240.0
STEPS = 40  # in the one epoch

# Fails behind so many steps of each round, those of its argument; a backup each 5 steps.
FIT = """
import os, sys
import numpy as np
import {keras} as keras
directory, most = os.environ["TFTRAINING_DIR"], int(sys.argv[int(os.environ["TFTRAINING_ROUND"])])
class Fail(keras.callbacks.Callback):
    steps = 0
    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == most:
            os._exit(3)
    def on_train_begin(self, logs=None):
        with open(f"{{directory}}/begins", "a") as file:
            file.write(f"{{int(np.asarray(self.model.optimizer.iterations))}}\\n")
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.random.rand(STEPS, 4).astype("f")
backup = keras.callbacks.BackupAndRestore(f"{{directory}}/backup", save_freq=5)
model.fit(x, x.sum(1), batch_size=1, epochs=1, shuffle=False, verbose=0, callbacks=[backup, Fail()])
""".replace("STEPS", str(STEPS))

LOOP = """
import os, sys, pathlib
import tensorflow as tf
import tftraining
directory, most = os.environ["TFTRAINING_DIR"], int(sys.argv[int(os.environ["TFTRAINING_ROUND"])])
step = tf.Variable(0)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=step), f"{directory}/checkpoints", 2)
manager.restore_or_initialize()
begun = int(step)
with open(f"{directory}/begins", "a") as file:
    file.write(f"{begun}\\n")
tftraining.begin(step=begun, epochs=1, steps_per_epoch=STEPS)
while step < STEPS:
    tftraining.report(step=int(step.assign_add(1)), epoch=1)
    if step % 5 == 0:
        manager.save()
        {told}
    if step - begun == most:
        os._exit(3)
""".replace("STEPS", str(STEPS))

PROGRAMS = {
    "tf_keras": FIT.format(keras="tf_keras"),
    "a loop that tells its checkpoints": LOOP.replace("{told}", "tftraining.report(checkpoint=int(step))"),
    "a loop that tells where it goes on": LOOP.replace("{told}", ""),
}


def gang_of(place: Path, program: str, *steps: int) -> LocalGang:
    """One worker that makes so many steps in each round."""
    (place / "train.py").write_text(program)
    gang = LocalGang(place, {"worker": 1}, maxRestarts=1, warmStart=True)
    gang.command = [sys.executable, str(place / "train.py"), *map(str, steps)]
    return gang


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TFTRAINING_DIR", str(tmp_path))
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)


# Where a round goes on is known when it starts: of its steps nothing is then known to be saved.
@pytest.mark.parametrize(("name", "rounds"), [*zip(PROGRAMS, (3, 3, 4), strict=True)])
def test_only_failures_before_the_next_checkpoint_use_up_the_budget(tmp_path: Path, name: str, rounds: int) -> None:
    with gang_of(tmp_path, PROGRAMS[name], *(12, 12, 3, 3)[:rounds], STEPS + 1) as gang:
        gang.start()
        assert gang.launchers["worker-0"].wait(PATIENCE) != 0, gang.log("worker-0")
        message = gang.message("worker-0")
    assert (message["reason"], message["ledger"]["processFailures"]) == ("MaxRestartsExceeded", rounds - 1)
    begins = [int(line) for line in (tmp_path / "begins").read_text().splitlines()]
    assert len(begins) == rounds and begins[:3] == sorted(set(begins[:3])), begins


def test_a_keras_3_backup_inside_an_epoch_is_no_progress(tmp_path: Path) -> None:
    """It restores the weights, and begins the epoch again: the same place would come for ever."""
    with gang_of(tmp_path, FIT.format(keras="keras"), 12, 12) as gang:
        gang.start()
        assert gang.launchers["worker-0"].wait(PATIENCE) != 0
        assert gang.message("worker-0")["reason"] == "MaxRestartsExceeded"
    assert (tmp_path / "begins").read_text().split() == ["0", "10"]

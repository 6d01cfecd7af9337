"""A gang of real programs behind a wrapper: they are followed, wait for their leader, and go on after a kill."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.launchers.wrappers import WRAPPERS

PATIENCE = 240.0  # of two imports of TensorFlow on a busy machine, twice
TRAIN = """
import json, os, sys, time
import tensorflow as tf
print(os.getpid(), file=open(os.path.join(sys.argv[1], "pid-" + os.environ["STANDIN"]), "w"))
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
class Slow(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        while epoch == 2 and not os.path.exists(os.path.join(sys.argv[1], "go")):
            time.sleep(0.05)
backup = tf.keras.callbacks.BackupAndRestore(os.path.join(sys.argv[1], "backup"))
data = tf.data.Dataset.from_tensors((tf.ones((16, 4)), tf.ones((16, 1)))).repeat()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = data.with_options(options)
model.fit(data, epochs=5, steps_per_epoch=3, callbacks=[backup, Slow()], verbose=0)
"""


def step_of(gang: LocalGang, member: str) -> int | None:
    """As the launcher of the member shows it."""
    progress = gang.status(member).get("progress") or {}
    step: int | None = progress.get("step")
    return step


@pytest.mark.slow_fault
@pytest.mark.parametrize("way", ["execv", "subprocess", "as conda run"])
def test_a_gang_behind_wrappers_resumes(tmp_path: Path, way: str) -> None:
    wrapper, train = tmp_path / "wrapper.py", tmp_path / "train.py"
    wrapper.write_text(WRAPPERS[way])
    train.write_text(TRAIN)
    with LocalGang(tmp_path, {"worker": 2}) as gang:
        gang.command = [sys.executable, str(wrapper), str(train), str(gang.directory)]
        gang.start()
        gang.wait_for(lambda: [step_of(gang, name) for name in gang.names] == [9, 9], PATIENCE)
        os.kill(int((gang.directory / "pid-worker-1").read_text()), signal.SIGKILL)
        (gang.directory / "go").touch()
        assert gang.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}
        told = gang.message("worker-0")
        assert (told["progress"]["epoch"], told["progress"]["step"]) == (5, 15)
        assert told["lastRestart"]["member"] == "worker-1"
        assert told["lastRestart"]["resumedFromEpoch"] in (2, 3), "killed before, or after, the backup was written"

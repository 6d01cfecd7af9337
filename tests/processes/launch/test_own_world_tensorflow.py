"""What the hooks see of a gang's program, with the real TensorFlow: members that train without each other, and files
that only one pod would see.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

NAMES = ("worker-0", "worker-1")
# As TensorFlow's tutorial in one file does: TF_CONFIG is removed for a first try on one machine, and stays away.
PROGRAM = """
import os, sys, time
if sys.argv[1] == "alone":
    os.environ.pop("TF_CONFIG", None)
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
slow = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.1))
data = tf.data.Dataset.from_tensor_slices((np.ones((32, 4), "f"), np.ones((32, 1), "f"))).repeat().batch(8)
model.fit(data, epochs=1, steps_per_epoch=int(sys.argv[2]), verbose=0, callbacks=[
    slow,
    tf.keras.callbacks.BackupAndRestore(f"{sys.argv[3]}/{os.environ['STANDIN']}"),
    tf.keras.callbacks.ModelCheckpoint(f"{os.environ['TFTRAINING_DIR']}/{os.environ['STANDIN']}.keras"),
])
model.save(f"{sys.argv[3]}/saved/{os.environ['STANDIN']}.keras")
"""


@pytest.mark.parametrize(
    ("how", "named"),
    [("alone", ["worker-0", "worker-1"]), pytest.param("together", [], marks=pytest.mark.slow_fault)],
)
def test_what_each_pod_has_for_itself_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, named: list[str]
) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    with LocalGang(tmp_path, {"worker": 2}) as gang:
        monkeypatch.setenv("TFTRAINING_DIR", str(gang.directory))
        gang.command = [sys.executable, str(tmp_path / "train.py"), how, "30", str(tmp_path)]
        gang.start()
        gang.wait_for_phase("Training", patience=240)
        status = gang.wait_for(lambda: found if (found := gang.status()).get("trainsAlone") == named else None)
        assert (status["phase"], status["ledger"]["incidents"]) == ("Training", 0), "nothing restarts"
        assert gang.wait(240) == {"worker-0": 0, "worker-1": 0}, gang.describe()
        logs = [gang.log(name).splitlines() for name in NAMES]
    kept = [f"tftraining: BackupAndRestore keeps {tmp_path}/{name} outside" for name in NAMES]
    saved = f"tftraining: model.save writes {tmp_path}/saved/worker-0.keras outside"
    told = [[line.partition(" the job's")[0] for line in log if "outside the job's storage" in line] for log in logs]
    assert told == [[kept[0], saved], [kept[1]]], "the models of others than the chief are nobody's"

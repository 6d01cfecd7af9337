"""A NaN that a training notices late: real launchers and TensorFlow. It is followed back to the state before it.

In the first round one step makes the weights NaN. The training looks at its loss every so many steps; when that is
finite it saves a checkpoint in the storage, otherwise it raises.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

pytestmark = pytest.mark.slow_fault

PATIENCE = 240.0

BEGIN = """
import json, math, os
import tensorflow as tf
import tf_keras as keras
import tftraining
directory, first_round = os.environ["TFTRAINING_DIR"], os.environ["TFTRAINING_ROUND"] == "1"
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
late, every, who = (int(os.environ[name]) for name in ("LATE", "EVERY", "WHO"))
nan_at, steps = 3 * every - late, 4 * every
keras.utils.set_random_seed(1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
"""

# WHO: the member that raises; the others learn it from their collectives.
LOOP = """
with strategy.scope():
    optimizer.build(model.trainable_variables)
    position = tf.Variable(0, dtype=tf.int64, trainable=False)

@tf.function
def train(step):
    def replica():
        x = tf.random.stateless_uniform([8, 8], tf.stack([step, task]))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    return strategy.reduce("MEAN", strategy.run(replica), axis=None)

checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, position=position)
manager = tf.train.CheckpointManager(checkpoint, f"{directory}/checkpoint-{task}", max_to_keep=2)
manager.restore_or_initialize()
backup = tftraining.MemoryBackup(checkpoint)
stored = int(position.numpy())
step = backup.restore(stored)
print("begins at", step, "from", "memory" if step > stored else "storage", flush=True)
tftraining.begin(step=step)
while step < steps:
    loss = train(tf.constant(step))
    step += 1
    position.assign(step)
    if first_round and step == nan_at:
        model.trainable_variables[2].assign(model.trainable_variables[2] * math.nan)
    if step % every == 0:
        if task == who and not math.isfinite(float(loss)):
            raise ArithmeticError(f"the loss of step {step} is {float(loss)}")
        if math.isfinite(float(loss)):
            manager.save()
        tftraining.report(step=step, checkpoint=int(manager.latest_checkpoint.rpartition("-")[2]) * every)
    backup.step(step)
backup.done()
print("ends at", step, "with a finite loss:", math.isfinite(float(loss)), flush=True)
"""

FIT = """
class Nan(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        if first_round and step == nan_at:
            self.model.trainable_variables[2].assign(self.model.trainable_variables[2] * math.nan)
        if step % every == 0 and not math.isfinite(logs["loss"]):
            raise ArithmeticError(f"the loss of step {step} is {logs['loss']}")

with strategy.scope():
    model.compile(optimizer, "mse")
x = tf.random.stateless_uniform([64, 8], [1, 2])
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True))).repeat().batch(8)
backup = keras.callbacks.BackupAndRestore(f"{directory}/backup")
end = model.fit(data, epochs=4, steps_per_epoch=every, callbacks=[Nan(), backup], verbose=0)
print("ends at", int(model.optimizer.iterations.numpy()), "with a finite loss:", math.isfinite(end.history["loss"][-1]))
"""


def train(
    place: Path, monkeypatch: pytest.MonkeyPatch, program: str, workers: int, late: int, who: int = 0
) -> LocalGang:
    """The gang that has trained to the end."""
    every = max(100, late + 50)
    told = {"LATE": late, "EVERY": every, "WHO": who, "TFTRAINING_DIR": place / "job", "TF_CPP_MIN_LOG_LEVEL": 3}
    for name, value in told.items():
        monkeypatch.setenv(name, str(value))
    backups = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 2**30}
    options = {"memoryBackup": backups, "maxRestarts": 3, "budgetReset": "Never", "warmStart": True}
    with LocalGang(place, {"worker": workers}, **options) as gang:
        (script := place / "train.py").write_text(BEGIN + program)
        gang.command = [sys.executable, str(script)]
        gang.start()
        assert gang.wait(PATIENCE) == dict.fromkeys(gang.names, 0), gang.describe()
    assert f"ends at {4 * every} with a finite loss: True\n" in gang.log("worker-0")
    assert "is nan\n" in gang.log(f"worker-{who}")
    return gang


def begins(gang: LocalGang) -> list[tuple[int, str]]:
    return [(int(step), source) for step, source in re.findall(r"begins at (\d+) from (\w+)", gang.log("worker-0"))]


@pytest.mark.parametrize("late", [20, 80, 300, 1000])
def test_a_loop_goes_back_one_source_after_each_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    first, *others = begins(train(tmp_path, monkeypatch, LOOP, 1, late))
    steps = [step for step, _ in others]
    assert first == (0, "storage") and steps == sorted(steps, reverse=True)
    assert others[0][1] == "memory"
    if late >= 80:  # no copy is as old
        assert others[-1] == (2 * max(100, late + 50), "storage")


@pytest.mark.parametrize("who", [0, 1])
def test_any_member_may_notice_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: int) -> None:
    gang = train(tmp_path, monkeypatch, LOOP, 2, 80, who)
    assert begins(gang)[-1] == (200, "storage")


@pytest.mark.parametrize("late", [20, 80])
def test_a_callback_of_fit_may_notice_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    train(tmp_path, monkeypatch, FIT, 1, late)

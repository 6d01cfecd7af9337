"""tftraining.MemoryBackup in custom loops: real launchers and TensorFlow.

The input depends on the step alone, so a training that was killed ends with the same bytes in every variable as one
that was not. A NaN that a training notices late is followed back to the state before it, with `fit` as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 240.0
STEPS = 120
INTERVAL = 16
EXAMPLE_STEPS = 800

# Only Keras 3 keeps the state of Dropout in a variable.
BEGIN = """
import importlib, json, math, os, signal
import tensorflow as tf
import tftraining
keras = importlib.import_module(os.environ["KERAS"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
directory, first_round = os.environ["TFTRAINING_DIR"], os.environ["TFTRAINING_ROUND"] == "1"
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(1)
with strategy.scope():
    layers = keras.layers
    dropout = [layers.Dropout(0.2)] if keras.__version__ >= "3" else []
    middle = [layers.Dense(16), layers.BatchNormalization(), *dropout]
    model = keras.Sequential([layers.Input((8,)), *middle, layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

@tf.function
def train(step):
    def replica():
        x = tf.random.stateless_normal([8, 8], tf.stack([step, task]))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    return strategy.reduce("MEAN", strategy.run(replica), axis=None)
"""

# KILLS has `<worker>@<step>` for each kill. The loop keeps no checkpoint: whatever is not in memory is lost.
KILLED = f"""
total = tf.Variable(0.0)  # a variable of this process alone
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, total=total)
tftraining.begin(step=0)
backup = tftraining.MemoryBackup(checkpoint)
step = backup.restore(0)
print("begins at", step, "from memory", flush=True)
while step < {STEPS}:
    total.assign_add(train(tf.constant(step)))
    step += 1
    backup.step(step)
    tftraining.report(step=step)
    for order in os.environ.get("KILLS", "").split():
        worker, at = map(int, order.split("@"))
        done = f"{{directory}}/killed-{{order}}"
        if worker == task and step >= at and not os.path.exists(done):
            open(done, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
backup.done()
held = [*model.variables, *optimizer.variables]
state = [*(each if isinstance(each, tf.Variable) else each.value for each in held), total]
parts = [part.numpy() for each in state for part in strategy.experimental_local_results(each)]
with open(f"{{directory}}/end-{{task}}", "wb") as file:
    file.write(b"".join(part.tobytes() for part in parts))
"""

# In the first round the weights are NaN from a step on, LATE steps before the training looks at its loss, as it does
# EVERY so many steps: it saves a checkpoint then, or raises in one member, of which the others learn.
NAN = """
late, every = int(os.environ["LATE"]), int(os.environ["EVERY"])

def spoil(step):
    if first_round and step == 3 * every - late:
        model.trainable_variables[0].assign(model.trainable_variables[0] * math.nan)
"""
LOOP = f"""{NAN}
with strategy.scope():
    position = tf.Variable(0, dtype=tf.int64, trainable=False)
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, position=position)
manager = tf.train.CheckpointManager(checkpoint, f"{{directory}}/checkpoint-{{task}}", max_to_keep=2)
manager.restore_or_initialize()
workers = strategy.num_replicas_in_sync
backup = tftraining.MemoryBackup(checkpoint)
stored = int(position.numpy())
step = backup.restore(stored)
print("begins at", step, "from", "memory" if step > stored else "storage", flush=True)
tftraining.begin(step=step)
while step < 4 * every:
    loss = float(train(tf.constant(step)))
    step += 1
    position.assign(step)
    spoil(step)
    if step % every == 0:
        if task == workers - 1 and not math.isfinite(loss):
            raise ArithmeticError(f"the loss of step {{step}} is {{loss}}")
        if math.isfinite(loss):
            manager.save()
        tftraining.report(step=step, checkpoint=int(manager.latest_checkpoint.rpartition("-")[2]) * every)
    backup.step(step)
backup.done()
print("ends at", step, "with a finite loss:", math.isfinite(loss), flush=True)
"""
FIT = f"""{NAN}
class Look(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        step = int(self.model.optimizer.iterations.numpy())
        spoil(step)
        if step % every == 0 and not math.isfinite(logs["loss"]):
            raise ArithmeticError(f"the loss of step {{step}} is {{logs['loss']}}")

with strategy.scope():
    model.compile(optimizer, "mse")
x = tf.random.stateless_uniform([64, 8], [1, 2])
data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True))).repeat().batch(8)
backup = keras.callbacks.BackupAndRestore(f"{{directory}}/backup")
end = model.fit(data, epochs=4, steps_per_epoch=every, callbacks=[Look(), backup], verbose=0)
print("ends at", int(model.optimizer.iterations.numpy()), "with a finite loss:", math.isfinite(end.history["loss"][-1]))
"""


# The coordinator loses its servers' variables with them: the whole gang restarts when it is killed.
COORDINATOR = f"""
import json, os, signal
import tensorflow as tf
import tftraining
config = json.loads(os.environ["TF_CONFIG"])
directory, task = os.environ["TFTRAINING_DIR"], config["task"]
spec = tf.train.ClusterSpec(config["cluster"])
if task["type"] != "chief":
    server = tf.distribute.Server(spec, job_name=task["type"], task_index=task["index"])
    server.join()
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc", task_type="chief", task_id=0)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0, dtype=tf.int64)

@tf.function
def add(number):
    total.assign_add(number)

backup = tftraining.MemoryBackup(tf.train.Checkpoint(total=total))
step = backup.restore(0)
print("begins at", step, "from memory", flush=True)
tftraining.begin(step=step)
while step < {STEPS}:
    step += 1
    coordinator.schedule(add, args=(tf.constant(step, tf.int64),))
    coordinator.join()
    backup.step(step)
    tftraining.report(step=step)
    if step == {STEPS // 2} and not os.path.exists(f"{{directory}}/killed"):
        open(f"{{directory}}/killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
backup.done()
print("the sum is", int(total.numpy()), flush=True)
os._exit(0)
"""


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalGang]:
    """A function that trains a program, or the arguments of Python, to the end; the gang that has done so."""

    def run(
        program: str | list[str],
        roles: dict[str, int],
        meanwhile: Callable[[LocalGang], None] = lambda _: None,
        mode: str = "Auto",
        **variables: object,
    ) -> LocalGang:
        (place := tmp_path / f"{len([*tmp_path.iterdir()])}").mkdir()
        told = {"TF_CPP_MIN_LOG_LEVEL": 3, "TFTRAINING_DIR": place / "job", "KERAS": "tf_keras", **variables}
        for key, value in told.items():
            monkeypatch.setenv(key, str(value))
        backups = {"mode": mode, "maxOverheadPercent": 100, "sizeLimit": 2**30}
        options = {"memoryBackup": backups, "terminationGraceSeconds": 60, "maxRestarts": 3, "budgetReset": "Never"}
        with LocalGang(place, roles, **options) as gang:
            if isinstance(program, str):
                (script := place / "train.py").write_text(program)
                program = [str(script)]
            gang.command = [sys.executable, *program]
            gang.start()
            meanwhile(gang)
            ended = {name: code for name, code in gang.wait(PATIENCE).items() if "ps" not in name}
            assert set(ended.values()) == {0}, gang.describe()
        return gang

    return run


def begins(gang: LocalGang) -> list[tuple[int, str]]:
    """Where each round of the first member has begun."""
    return [(int(step), source) for step, source in re.findall(r"begins at (\d+) from (\w+)", gang.log(gang.names[0]))]


def ends(gang: LocalGang) -> list[bytes]:
    return [(gang.directory / f"end-{worker}").read_bytes() for worker in (0, 1)]


@pytest.mark.parametrize("keras", ["keras", pytest.param("tf_keras", marks=pytest.mark.slow_fault)])
def test_a_killed_loop_resumes_at_the_copy_and_ends_with_the_same_bytes(
    train: Callable[..., LocalGang], keras: str
) -> None:
    undisturbed = train(BEGIN + KILLED, {"worker": 2}, mode="Off", KERAS=keras)
    killed = train(BEGIN + KILLED, {"worker": 2}, KERAS=keras, KILLS="1@60")  # twice: test_memory_backups.py
    assert ends(killed) == ends(undisturbed)
    assert ends(undisturbed)[0] != ends(undisturbed)[1]  # each worker has its own moving averages
    assert begins(undisturbed) == [(0, "memory")]
    first, second = (step for step, _ in begins(killed))
    assert first == 0 and 60 - INTERVAL <= second <= 60
    assert "no backups in memory" not in killed.log("worker-0")


@pytest.mark.slow_fault
def test_the_custom_loop_of_the_example_resumes_inside_its_epoch(train: Callable[..., LocalGang]) -> None:
    options = ["--loop", "custom", "--epochs", "1", "--steps-per-epoch", str(EXAMPLE_STEPS), "--batch-size", "4"]

    def kill(gang: LocalGang) -> None:
        gang.wait_for(lambda: (gang.status().get("progress") or {}).get("step", 0) > EXAMPLE_STEPS / 2, PATIENCE)
        backup = gang.status()["backup"]
        assert backup["blockedSeconds"] > backup["seconds"] > 0, "of several copies"
        gang.kill_program("worker-1")

    log = train(["-m", "tftraining.examples.multi_worker_mnist", *options], {"worker": 2}, kill).log("worker-0")
    resumed = re.search(r"^resumed from epoch 0 \(step (\d+) ", log, re.MULTILINE)
    assert resumed is not None and int(resumed[1]) >= EXAMPLE_STEPS / 4, log
    assert f"saved the model after step {EXAMPLE_STEPS}\n" in log


@pytest.mark.slow_fault
def test_a_killed_coordinator_of_parameter_servers_resumes_at_its_copy(train: Callable[..., LocalGang]) -> None:
    gang = train(COORDINATOR, {"chief": 1, "worker": 1, "ps": 1})
    (first, _), (second, _) = begins(gang)
    assert first == 0 and STEPS / 2 - INTERVAL <= second <= STEPS / 2, gang.log("chief-0")
    assert f"the sum is {STEPS * (STEPS + 1) // 2}\n" in gang.log("chief-0")


@pytest.mark.slow_fault
@pytest.mark.parametrize(("program", "workers", "late"), [(LOOP, 1, 20), (LOOP, 1, 1000), (LOOP, 2, 80), (FIT, 1, 80)])
def test_a_late_nan_is_followed_back_one_source_after_each_failure(
    train: Callable[..., LocalGang], program: str, workers: int, late: int
) -> None:
    every = max(100, late + 50)
    gang = train(BEGIN + program, {"worker": workers}, LATE=late, EVERY=every)
    assert f"ends at {4 * every} with a finite loss: True\n" in gang.log("worker-0")
    assert f"the loss of step {3 * every} is nan\n" in gang.log(f"worker-{workers - 1}")
    if program == LOOP:
        first, *others = begins(gang)
        steps = [step for step, _ in others]
        assert first == (0, "storage") and others[0][1] == "memory" and steps == sorted(steps, reverse=True)
        if late >= 80:  # no copy is as old
            assert others[-1] == (2 * every, "storage")

"""tftraining.MemoryBackup in a custom loop of two workers: real launchers and TensorFlow.

The input depends on the step alone, so a training that was killed ends with the same bytes in every variable as one
that was not. The loop keeps no checkpoint in storage: whatever is not in memory is lost.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 240.0
STEPS = 120
INTERVAL = 16
EXAMPLE_STEPS = 800

# KILLS has `<worker>@<step>` for each kill. Only Keras 3 keeps the state of Dropout in a variable.
PROGRAM = f"""
import importlib, json, os, signal
import tensorflow as tf
import tftraining
keras = importlib.import_module(os.environ["KERAS"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
directory = os.environ["TFTRAINING_DIR"]
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(1)
with strategy.scope():
    layers = keras.layers
    dropout = [layers.Dropout(0.2)] if keras.__version__ >= "3" else []
    middle = [layers.Dense(16), layers.BatchNormalization(), *dropout]
    model = keras.Sequential([layers.Input((8,)), *middle, layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
total = tf.Variable(0.0)  # a variable of this process alone

@tf.function
def train(step):
    def replica():
        x = tf.random.stateless_normal([8, 8], tf.stack([step, task]))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - tf.reduce_sum(x, 1, keepdims=True)) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss
    return strategy.reduce("MEAN", strategy.run(replica), axis=None)

checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, total=total)
tftraining.begin(step=0)
backup = tftraining.MemoryBackup(checkpoint)
step = backup.restore(0)
print("begins after step", step, flush=True)
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
print("begins after step", step, flush=True)
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
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LocalGang]]:
    """A function that trains to the end, with these kills; the gang that has done so."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")

    def run(
        name: str, kills: str = "", keras: str = "keras", command: list[str] | None = None, **memory_backup: object
    ) -> LocalGang:
        place = tmp_path / name
        place.mkdir()
        monkeypatch.setenv("TFTRAINING_DIR", str(place / "job"))
        monkeypatch.setenv("KILLS", kills)
        monkeypatch.setenv("KERAS", keras)
        told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 2**30, **memory_backup}
        with LocalGang(place, {"worker": 2}, memoryBackup=told, terminationGraceSeconds=60) as gang:
            (script := place / "train.py").write_text(PROGRAM)
            gang.command = [sys.executable, *(command or [str(script)])]
            gang.start()
            if command:
                gang.wait_for(
                    lambda: (gang.status().get("progress") or {}).get("step", 0) > EXAMPLE_STEPS / 2, PATIENCE
                )
                gang.kill_program("worker-1")
            assert gang.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}, gang.describe()
        return gang

    yield run


def _step(gang: LocalGang) -> int:
    step: int = (gang.status().get("progress") or {}).get("step") or 0
    return step


def begins(gang: LocalGang) -> list[int]:
    lines = gang.log("worker-0").splitlines()
    return [int(line.split()[-1]) for line in lines if line.startswith("begins after step")]


def ends(gang: LocalGang) -> list[bytes]:
    return [(gang.directory / f"end-{worker}").read_bytes() for worker in (0, 1)]


@pytest.mark.parametrize("keras", ["keras", pytest.param("tf_keras", marks=pytest.mark.slow_fault)])
def test_a_killed_loop_resumes_at_the_copy_and_ends_with_the_same_bytes(
    trained: Callable[..., LocalGang], keras: str
) -> None:
    undisturbed = trained("undisturbed", keras=keras, mode="Off")
    killed = trained("killed", "1@40 0@90", keras)
    assert ends(killed) == ends(undisturbed)
    assert ends(undisturbed)[0] != ends(undisturbed)[1]  # each worker has its own moving averages
    assert begins(undisturbed) == [0]
    first, second, third = begins(killed)
    assert first == 0 and 40 - INTERVAL <= second <= 40 and 90 - INTERVAL <= third <= 90
    assert "no backups in memory" not in killed.log("worker-0")


@pytest.mark.slow_fault
def test_the_custom_loop_of_the_example_resumes_inside_its_epoch(trained: Callable[..., LocalGang]) -> None:
    options = ["--loop", "custom", "--epochs", "1", "--steps-per-epoch", str(EXAMPLE_STEPS), "--batch-size", "4"]
    killed = trained("example", command=["-m", "tftraining.examples.multi_worker_mnist", *options])
    log = killed.log("worker-0")
    resumed = re.search(r"^resumed from epoch 0 \(step (\d+) ", log, re.MULTILINE)
    assert resumed is not None and int(resumed[1]) >= EXAMPLE_STEPS / 4, log
    assert f"saved the model after step {EXAMPLE_STEPS}\n" in log


@pytest.mark.slow_fault
def test_a_killed_coordinator_of_parameter_servers_resumes_at_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "job"))
    told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 2**30}
    with LocalGang(tmp_path, {"chief": 1, "worker": 1, "ps": 1}, memoryBackup=told) as gang:
        (script := tmp_path / "train.py").write_text(COORDINATOR)
        gang.command = [sys.executable, str(script)]
        gang.start()
        assert gang.wait(PATIENCE)["chief-0"] == 0, gang.describe()
    log = gang.log("chief-0")
    first, second = (int(line.split()[-1]) for line in log.splitlines() if line.startswith("begins after step"))
    assert first == 0 and STEPS / 2 - INTERVAL <= second <= STEPS / 2, log
    assert f"the sum is {STEPS * (STEPS + 1) // 2}\n" in log

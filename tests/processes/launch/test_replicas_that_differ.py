"""Replicas whose variables ought to be equal, and are not: real launchers and TensorFlow, and a bit that is flipped.

The programs train until the test has seen what the chief's launcher says of their copies.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 240.0
STEPS = 500
CASES = [
    ("tf_keras", "yes", 3, 0),
    ("keras", "yes", 2, 0),
    ("keras", "yes", 3, 0),
    ("keras", "", 4, 0),
    ("tf_keras", "", 2, 0),
    ("keras", "", 1, 3),
]

# FLIP has `<worker> <bit>`; once the file `flip` exists, that worker flips the bit in its replica of the first weights.
# FLEETING: of weights that nothing changes, and from one copy of eight to the next one only.
PROGRAM = """
import hashlib, importlib, json, os, time
import numpy as np
import tensorflow as tf
import tftraining
if devices := int(os.environ.get("DEVICES", "0")):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
keras = importlib.import_module(os.environ["KERAS"])
flipping, bit = map(int, os.environ["FLIP"].split())
last_step = int(os.environ.get("LAST_STEP", "100000"))
strategy = tf.distribute.MirroredStrategy() if devices else tf.distribute.MultiWorkerMirroredStrategy()
directory = os.environ["TFTRAINING_DIR"]
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(task if os.environ["FIT"] and not os.environ["STORES"] else 1)
with strategy.scope():
    layers = keras.layers
    middle = [layers.Dense(16, name="first"), layers.BatchNormalization(), layers.Dropout(0.2)]
    middle += [layers.Dense(16, name="frozen", trainable=False)] if os.environ["FLEETING"] else []
    model = keras.Sequential([layers.Input((8,)), *middle, layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    model.compile(optimizer, "mse", metrics=["mae"])
    optimizer.build(model.trainable_variables)

def flip(layer):
    kernel = model.get_layer(layer).kernel
    variable = kernel if isinstance(kernel, tf.Variable) else kernel.value
    part = strategy.experimental_local_results(variable)[-1]
    value = part.numpy()
    value.reshape(-1).view("uint32")[5] ^= 1 << bit
    tf.raw_ops.AssignVariableOp(resource=part.handle, value=value)
    print("flipped", flush=True)

def look(batch=None, logs=None):
    # A gang takes seconds to notice.
    time.sleep(0.1 if os.environ["FLEETING"] else 0.02 if os.environ["STORES"] else 0.002)
    if flipping not in (task, -1) or not os.path.exists(f"{directory}/flip"):
        return
    if os.environ["FLEETING"]:
        with open(json.loads(os.environ["TFTRAINING_MEMORY_BACKUP"])["directory"] + "/report.json") as file:
            newest = json.load(file)["step"]
        look.copies += newest != look.newest
        if newest != look.newest and look.copies % 8 in (1, 2):
            flip("frozen")
        look.newest = newest
    elif not look.copies:
        look.copies = 1
        if os.environ["STORES"]:  # once, and not again in the next program
            os.unlink(f"{directory}/flip")
        flip("first")
look.copies, look.newest = 0, None

def examples(index):
    x = tf.random.stateless_normal([12, 8], tf.stack([tf.cast(index, tf.int32), 7]))
    return x, tf.reduce_sum(x, 1, keepdims=True)

if os.environ["FIT"]:
    data = tf.data.Dataset.range(100_000).map(examples).repeat()
    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=look)]
    if os.environ["STORES"]:
        callbacks.append(keras.callbacks.BackupAndRestore(f"{directory}/backup"))
    model.fit(data, epochs=last_step // 50, steps_per_epoch=50, callbacks=callbacks, verbose=0)
else:
    @tf.function
    def train(step):
        def replica():
            x, y = examples(step)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        strategy.run(replica)

    own = tf.Variable(task, dtype=tf.int64)  # of this process alone
    generator = tf.random.Generator.from_seed(task)
    backup = tftraining.MemoryBackup(tf.train.Checkpoint(model=model, optimizer=optimizer, own=own, random=generator))
    storage = tf.train.Checkpoint(model=model, optimizer=optimizer, step=tf.Variable(0, dtype=tf.int64))
    manager = tf.train.CheckpointManager(storage, f"{directory}/storage-{task}", max_to_keep=1)
    if manager.restore_or_initialize():
        print("the storage has step", int(storage.step), flush=True)
    step = backup.restore(int(storage.step))
    tftraining.begin(step=step)
    while step < last_step:
        train(tf.constant(step))
        step += 1
        look()
        backup.step(step)
        tftraining.report(step=step)
        if os.environ["STORES"] and step % 50 == 0:
            storage.step.assign(step)
            manager.save()
digest = hashlib.sha256()
for variable in [*model.variables, *optimizer.variables] if os.environ["KERAS"] == "keras" else model.variables:
    variable = variable if isinstance(variable, tf.Variable) else variable.value
    for part in strategy.experimental_local_results(variable):
        digest.update(part.numpy().tobytes())
with open(f"{directory}/end-{task}", "w") as file:
    file.write(digest.hexdigest())
"""


def replicas(gang: LocalGang) -> dict[str, Any]:
    assert all(each.poll() is None for each in gang.launchers.values()), gang.describe()
    return gang.status().get("backup") or {}


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalGang]:
    """A function that starts a gang of workers."""

    def begin(workers: int, place: Path = tmp_path, **variables: object) -> LocalGang:
        told = {"TF_CPP_MIN_LOG_LEVEL": 3, "TFTRAINING_DIR": place / "job", "STORES": "", "FLEETING": "", **variables}
        for key, value in told.items():
            monkeypatch.setenv(key, str(value))
        backups = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 2**30}
        gang = LocalGang(place, {"worker": workers}, memoryBackup=backups, memberTimeoutSeconds=6, maxRestarts=0)
        (script := place / "train.py").write_text(PROGRAM)
        gang.command = [sys.executable, str(script)]
        return gang

    return begin


def test_a_difference_that_the_next_copy_has_forgotten_is_found_and_the_member_named(
    train: Callable[..., LocalGang],
) -> None:
    """So does an average forget. Copies come every second or two, so that the members still hold the one that differs
    when the chief's launcher asks for it; else it is the turn of the next one."""
    with train(3, KERAS="tf_keras", FIT="yes", FLIP="2 22", DEVICES=0, FLEETING="yes") as gang:
        gang.options["memoryBackup"] = {"mode": "Auto", "maxOverheadPercent": 0.3, "sizeLimit": 2**30}
        gang.start()
        gang.wait_for(lambda: replicas(gang).get("replicasCompared", 0) > 2, PATIENCE)
        (gang.directory / "flip").touch()
        gang.wait_for(lambda: replicas(gang).get("replicasDiffer"), PATIENCE)
        told = replicas(gang)["replicas"]
    assert "worker-2 holds other values than the rest: frozen/kernel" in told


@pytest.mark.slow_fault
@pytest.mark.parametrize(("keras", "fit", "workers", "devices"), CASES)
def test_a_flipped_bit_is_found_and_the_member_named(
    train: Callable[..., LocalGang], keras: str, fit: str, workers: int, devices: int
) -> None:
    with train(workers, KERAS=keras, FIT=fit, FLIP=f"{workers - 1} 29", DEVICES=devices) as gang:
        gang.start()
        gang.wait_for(lambda: replicas(gang).get("replicasCompared", 0) > 2, PATIENCE)
        assert replicas(gang)["replicas"] == ""
        (gang.directory / "flip").touch()
        gang.wait_for(lambda: replicas(gang).get("replicasDiffer"), PATIENCE)
        told = replicas(gang)["replicas"]
    who = f"replica {devices - 1} of worker-0" if devices else f"worker-{workers - 1}"
    both = "worker-0, worker-1 hold other values than each other: "
    assert (both if workers == 2 else f"{who} holds other values than the rest: ") in told
    assert "first/kernel" in told and "more" not in told


def ends(gang: LocalGang) -> set[str]:
    """The digests of the variables that the programs have at the end."""
    return {(gang.directory / f"end-{rank}").read_text() for rank in range(len(gang.names))}


@pytest.mark.parametrize(
    ("keras", "fit", "workers"),
    [
        ("keras", "", 2),
        *(
            pytest.param(*case, marks=pytest.mark.slow_fault)
            for case in [("tf_keras", "yes", 3), ("keras", "yes", 3), ("keras", "yes", 2), ("tf_keras", "yes", 2)]
        ),
    ],
)
def test_all_go_back_to_the_copy_on_which_they_agreed_and_end_as_the_undisturbed_training(
    train: Callable[..., LocalGang], tmp_path: Path, keras: str, fit: str, workers: int
) -> None:
    """The programs save a backup in the storage behind each 50 steps, so that it has the flipped bit, too."""
    told = {"KERAS": keras, "FIT": fit, "STORES": "yes", "LAST_STEP": STEPS}
    (tmp_path / "undisturbed").mkdir()
    with train(workers, tmp_path / "undisturbed", FLIP="0 0", **told) as gang:
        gang.start()
        gang.wait_for(lambda: all(each.poll() == 0 for each in gang.launchers.values()), PATIENCE)
        undisturbed = ends(gang)
    odd = f"worker-{workers - 1}"
    with train(workers, FLIP=f"{workers - 1} 29", **told) as gang:
        gang.options["onDivergence"] = "Restore"
        gang.start()
        agreed = gang.wait_for(lambda: replicas(gang).get("agreedStep"), PATIENCE)
        gang.wait_for(lambda: (replicas(gang).get("step") or 0) > agreed + 60, PATIENCE)
        (gang.directory / "flip").touch()
        gang.wait_for(lambda: gang.status()["round"] == 2 or gang.launchers[odd].poll() is not None, PATIENCE)
        if workers > 2:
            assert gang.launchers[odd].wait(60) == 143, "it leaves for a new pod"
            found = gang.message(odd)
            assert (found["reason"], found["ledger"]["processFailures"]) == ("NodeSuspected", 0)
            gang.start(odd, ledger=found["ledger"])
        gang.wait_for(lambda: all(each.poll() == 0 for each in gang.launchers.values()), PATIENCE)
        assert ends(gang) == undisturbed
        log = gang.log("worker-0")
    (step,) = re.findall(r"all go back to step (\d+), at which they have agreed", log)
    assert int(step) >= agreed and re.search(rf"resumed from memory at .*step {step}\b", log)

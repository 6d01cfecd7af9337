"""Replicas whose variables ought to be equal, and are not: real launchers and TensorFlow, and a bit that is flipped.

The programs train until the test has seen what the chief's launcher says of their copies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 240.0
STEPS = 100_000
MORE = [
    ("keras", "yes", 2, 0),
    ("keras", "yes", 3, 0),
    ("keras", "", 4, 0),
    ("tf_keras", "", 2, 0),
    ("keras", "", 1, 3),
]

# FLIP has `<worker> <bit>`; once the file `flip` exists, that worker flips the bit in its replica of the first weights.
PROGRAM = f"""
import importlib, json, os, time
import numpy as np
import tensorflow as tf
import tftraining
if devices := int(os.environ.get("DEVICES", "0")):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
keras = importlib.import_module(os.environ["KERAS"])
flipping, bit = map(int, os.environ["FLIP"].split())
strategy = tf.distribute.MirroredStrategy() if devices else tf.distribute.MultiWorkerMirroredStrategy()
directory = os.environ["TFTRAINING_DIR"]
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
keras.utils.set_random_seed(task if os.environ["FIT"] else 1)
with strategy.scope():
    layers = keras.layers
    middle = [layers.Dense(16, name="first"), layers.BatchNormalization(), layers.Dropout(0.2)]
    model = keras.Sequential([layers.Input((8,)), *middle, layers.Dense(1)])
    optimizer = keras.optimizers.Adam()
    model.compile(optimizer, "mse", metrics=["mae"])
    optimizer.build(model.trainable_variables)

def look(batch=None, logs=None):
    time.sleep(0.002)
    if flipping in (task, -1) and not look.flipped and os.path.exists(f"{{directory}}/flip"):
        look.flipped = True
        kernel = model.get_layer("first").kernel
        variable = kernel if isinstance(kernel, tf.Variable) else kernel.value
        part = strategy.experimental_local_results(variable)[-1]
        value = part.numpy()
        value.reshape(-1).view("uint32")[5] ^= 1 << bit
        tf.raw_ops.AssignVariableOp(resource=part.handle, value=value)
        print("flipped", flush=True)
look.flipped = False

def examples(index):
    x = tf.random.stateless_normal([8, 8], tf.stack([tf.cast(index, tf.int32), 7]))
    return x, tf.reduce_sum(x, 1, keepdims=True)

if os.environ["FIT"]:
    data = tf.data.Dataset.range({STEPS}).map(examples).repeat()
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=look)
    model.fit(data, epochs=1000, steps_per_epoch=100, callbacks=[watch], verbose=0)
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
    step = backup.restore(0)
    tftraining.begin(step=step)
    while step < {STEPS}:
        train(tf.constant(step))
        step += 1
        look()
        backup.step(step)
        tftraining.report(step=step)
"""


def replicas(gang: LocalGang) -> dict[str, Any]:
    assert all(each.poll() is None for each in gang.launchers.values()), gang.describe()
    return gang.status().get("backup") or {}


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalGang]:
    """A function that starts a gang of workers."""

    def begin(workers: int, **variables: object) -> LocalGang:
        told = {"TF_CPP_MIN_LOG_LEVEL": 3, "TFTRAINING_DIR": tmp_path / "job", **variables}
        for key, value in told.items():
            monkeypatch.setenv(key, str(value))
        backups = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 2**30}
        gang = LocalGang(tmp_path, {"worker": workers}, memoryBackup=backups, memberTimeoutSeconds=6, maxRestarts=0)
        (script := tmp_path / "train.py").write_text(PROGRAM)
        gang.command = [sys.executable, str(script)]
        return gang

    return begin


@pytest.mark.parametrize(
    ("keras", "fit", "workers", "devices"),
    [
        ("tf_keras", "yes", 3, 0),
        *(pytest.param(*case, marks=pytest.mark.slow_fault) for case in MORE),
    ],
)
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

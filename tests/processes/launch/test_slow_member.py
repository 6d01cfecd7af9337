"""A member that the others wait for: real launchers and TensorFlow, and a program that is stopped for half of the time.

The programs train until the test has seen what the chief's launcher says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.launchers.stopped import stopped_now_and_then

PATIENCE = 240.0

PROGRAM = """
import importlib, json, os, time
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
keras = importlib.import_module(os.environ["KERAS"])
strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
with strategy.scope():
    layers = keras.layers
    model = keras.Sequential([layers.Input((512,)), layers.Dense(512), layers.Dense(512), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=bool(os.environ.get("EAGER")))

batch = tf.ones((32, 512)), tf.ones((32, 1))

def examples():
    while True:
        if task == 1 and os.path.exists(f"{os.environ['TFTRAINING_DIR']}/slow-input"):
            time.sleep(0.2)
        yield batch

shapes = tf.TensorSpec((32, 512)), tf.TensorSpec((32, 1))
data = tf.data.Dataset.from_generator(examples, output_signature=shapes).prefetch(1)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = data.with_options(options)
model.fit(data, epochs=1_000_000, steps_per_epoch=50, validation_data=data, validation_steps=2, verbose=0)
"""


def slow(gang: LocalGang) -> dict[str, Any] | None:
    assert all(each.poll() is None for each in gang.launchers.values()), gang.describe()
    found: dict[str, Any] | None = gang.status().get("slowMember")
    return found


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LocalGang]:
    """A function that starts a gang of workers."""

    def begin(workers: int, program: str = PROGRAM, **variables: str) -> LocalGang:
        told = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TFTRAINING_DIR": str(tmp_path / "job")}
        for key, value in {**told, **variables}.items():
            monkeypatch.setenv(key, value)
        gang = LocalGang(tmp_path, {"worker": workers}, memberTimeoutSeconds=6, maxRestarts=0)
        (script := tmp_path / "train.py").write_text(program)
        gang.command = [sys.executable, str(script)]
        return gang

    return begin


@contextmanager
def slow_input(gang: LocalGang) -> Iterator[None]:
    (mark := gang.directory / "slow-input").touch()
    yield
    mark.unlink()


STOPPED_OFTEN = ("Computes", lambda gang: stopped_now_and_then(gang.status("worker-1")["pid"], 0.03, 0.02))
SLOW_INPUT = ("WaitsForInput", slow_input)


@pytest.mark.parametrize(
    ("keras", "workers", "faults"),
    [
        ("tf_keras", 2, [SLOW_INPUT]),
        pytest.param("keras", 2, [STOPPED_OFTEN, SLOW_INPUT], marks=pytest.mark.slow_fault),
        pytest.param("tf_keras", 3, [STOPPED_OFTEN, SLOW_INPUT], marks=pytest.mark.slow_fault),
    ],
)
def test_it_is_named_with_the_cause(
    train: Callable[..., LocalGang],
    keras: str,
    workers: int,
    faults: list[tuple[str, Callable[[LocalGang], AbstractContextManager[None]]]],
) -> None:
    with train(workers, KERAS=keras) as gang:
        gang.start()
        for cause, fault in faults:
            gang.wait_for(lambda: slow(gang) == {"member": None, "factor": 1.0, "cause": ""}, PATIENCE)
            with fault(gang):
                found = gang.wait_for(lambda: (each := slow(gang)) and each["member"] and each, PATIENCE)
            assert (found["member"], found["cause"]) == ("worker-1", cause)
        assert gang.status()["ledger"]["processFailures"] == 0, "nothing is restarted"


# Each member trains the same model twice, the second time without the clocks: same weights, to the last bit.
TWICE = """
import importlib, os, sys
import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.distribute.cross_device_ops import CollectiveAllReduce
tf.config.threading.set_intra_op_parallelism_threads(1)
keras = importlib.import_module(os.environ["KERAS"])
layers, strategy = keras.layers, tf.distribute.MultiWorkerMirroredStrategy()

def train(model=None):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        stack = [layers.Dense(64, "relu"), layers.BatchNormalization(), layers.Dropout(0.3), layers.Dense(1)]
        new = keras.Sequential([layers.Input((32,)), *stack])
        new.compile("adam", "mse", metrics=["mae"])
    model = model or new
    data = tf.data.Dataset.range(800).map(lambda n: (tf.random.stateless_normal((32,), (n, 1)), n % 3))
    model.fit(data.shuffle(99, seed=3).batch(16), epochs=2, verbose=0)
    return model, model.get_weights()

def waits():
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=[4], shared_name="tftraining_own_time")
    return float(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float64)[2])

(model, measured), before = train(), waits()
assert before >= 100, before  # Keras 3 reduces its moving statistics at the end of an epoch, too
of_input = ((OwnedIterator, each) for each in ("get_next", "get_next_as_optional"))
for cls, name in ((CollectiveAllReduce, "_all_reduce"), *of_input):
    setattr(cls, name, getattr(cls, name).__wrapped__)
_, plain = train()
assert waits() == before
assert all(np.array_equal(a, b) for a, b in zip(measured, plain)), "other weights"
tf.config.experimental.enable_op_determinism()  # which forbids clocks, also those that a function has already
train(model), train()
"""


@pytest.mark.parametrize("keras", ["tf_keras", pytest.param("keras", marks=pytest.mark.slow_fault)])
def test_the_clocks_change_no_weight(train: Callable[..., LocalGang], keras: str) -> None:
    with train(2, TWICE, KERAS=keras) as gang:
        gang.start()
        assert set(gang.wait(PATIENCE).values()) == {0}, gang.describe()


@pytest.mark.slow_fault
def test_eager_steps_are_not_measured(train: Callable[..., LocalGang]) -> None:
    with train(2, KERAS="tf_keras", EAGER="1") as gang:
        gang.start()
        gang.wait_for(lambda: (gang.status().get("progress") or {}).get("totalSteps", 0) > 150, PATIENCE)
        assert slow(gang) is None


GRAPH = """
import time
import tensorflow as tf
from tftraining.launch.in_user_process.own_time import OwnTime

clock = OwnTime()
clock.begin_fit(None)
clock.begin_step(0)

def busy(given, seconds):
    def wait(value):
        time.sleep(seconds)
        return value
    found = tf.numpy_function(wait, [given], tf.float32)
    found.set_shape([8])
    return found

@tf.function
def step(given):
    given = clock.timed(1, (), lambda: busy(given, 0.05))
    given = clock.timed(0, given, lambda: busy(given, 0.1), False)
    gradient = busy(given, 0.07)
    total = clock.timed(0, [gradient], lambda: busy(gradient, 0.2))

    def reduce_metric():
        with tf.control_dependencies([total]):  # all-reduces run one after the other
            return busy(given, 0.03)

    return total + clock.timed(0, [given], reduce_metric, False)

@tf.function(jit_compile=True)
def compiled(given):
    return clock.timed(0, given, lambda: 2 * tf.identity(given))

@tf.function
def around(given):
    return compiled(given)

step(tf.ones(8))
before, began = clock._read(), time.monotonic()
step(tf.ones(8))
print(*(now - then for now, then in zip([*clock._read(), time.monotonic()], [*before, began])))
before = clock._read()
compiled(tf.ones(8)), around(tf.ones(8))
print(clock._read() == before)
"""


def test_the_clocks_of_a_graph_add_up_without_an_overlap_and_are_no_part_of_a_compiled_one() -> None:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", GRAPH], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    times, compiled_is_unmeasured = done.stdout.splitlines()
    wait, of_input, waits, inputs, seconds = map(float, times.split())
    # The sleeps of the step are 0.33 s of waits, 0.05 s of input and 0.07 s of computing; a busy machine adds to each.
    assert 0.329 < wait < seconds - 0.119 and 0.049 < of_input < seconds - 0.399
    assert (waits, inputs, compiled_is_unmeasured) == (1, 1, "True")

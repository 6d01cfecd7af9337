"""The launcher's side of a program with the real TensorFlow: warm and plain starts, progress, resume, stacks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.launchers import changed_package
from tests.support.launchers.gang import LocalGang
from tests.support.launchers.harness import Harness, stderr, until
from tests.support.launchers.wrappers import WRAPPERS
from tests.support.ports import free_ports
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.in_user_process.keras3 import patches
from tftraining.launch.in_user_process.shared import tf_config
from tftraining.launch.process.program import Program, Snapshot
from tftraining.launch.progress import fit_step

PATIENCE = 240.0  # seconds; an import of TensorFlow takes 3 on an idle machine and 30 on a busy one
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
GPUS = 0  # whatever this machine has

# Legacy Keras, a backup after every fifth step, and random numbers of all kinds into a file for each start.
LEGACY = """
import random, sys
import numpy as np
import tensorflow as tf
import tf_keras as keras
with open(sys.argv[1] + "/random", "a") as file:
    numbers = [random.random(), np.random.rand(), float(tf.random.uniform(())), float(keras.backend.random_uniform(()))]
    print(*numbers, file=file)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse", steps_per_execution=5)
data = tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "f"), np.ones((64, 1), "f"))).repeat().batch(16)
backup = keras.callbacks.BackupAndRestore(sys.argv[1] + "/backup", save_freq=5)
class Slow(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):  # behind the backup's
        print(int(self.model.optimizer.iterations.numpy()), file=open(sys.argv[1] + "/begins", "a"), flush=True)
    def on_train_batch_end(self, batch, logs=None):
        tf.keras  # another Keras is loaded as well
        __import__("time").sleep(0.02)
model.fit(data, epochs=4, steps_per_epoch=50, validation_data=data, validation_steps=2, callbacks=[backup, Slow()],
          verbose=0)
print("iterations", int(model.optimizer.iterations.numpy()))
"""

KERAS3 = """
import sys
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
data = tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "f"), np.ones((64, 1), "f"))).repeat().batch(16)
model.fit(data, epochs=2, steps_per_epoch=6, verbose=0)
model.evaluate(data, steps=3, verbose=0)
model.fit(data, epochs=3, initial_epoch=2, steps_per_epoch=4, validation_data=data, validation_steps=2, verbose=0)
"""


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Harness]:
    # AutoGraph's files outlive a program that is killed.
    monkeypatch.setitem(ENVIRONMENT, "TMPDIR", str(tmp_path))
    harness = Harness(tmp_path)
    yield harness
    await harness.close()


WHICH_KERAS = """
import os
import tensorflow as tf
asked = "TF_USE_LEGACY_KERAS=1" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "no request"
print(f"{tf.keras.layers.Dense.__module__.partition('.')[0]}, {asked}, {os.environ.get('TFTRAINING_KERAS', 'patched')}")
"""


def script(harness: Harness, text: str) -> str:
    path = harness.directory / "train.py"
    path.write_text(text)
    return str(path)


async def reached(program: Program, step: int) -> Snapshot:
    await until(lambda: (program.snapshot().step or 0) >= step, f"step {step}", PATIENCE)
    return program.snapshot()


async def stacks_shown(program: Program, file: Path) -> None:
    with stderr(file):
        program.dump_stacks()
        await until(lambda: 'train.py", line' in file.read_text(), "stacks")


async def test_forks_train_resume_and_differ(harness: Harness) -> None:
    command = (sys.executable, script(harness, LEGACY), str(harness.directory))
    program = harness.make(*command, warm=True)
    await program.prepare(ENVIRONMENT)
    firsts = []
    for target in (70, 120):
        await program.start(ENVIRONMENT, harness.on_exit)
        assert program.mode == "warm"
        now = await reached(program, target)
        firsts.append(now.first_step)
        assert program.gpu_count == GPUS
        await stacks_shown(program, harness.directory / f"stderr-{target}")
        await program.kill()
    harness.ended.clear()
    await program.start(ENVIRONMENT, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    end = program.snapshot()
    # Resumed in the middle of an epoch, tf_keras may repeat up to `steps_per_execution` steps.
    assert (ended.code, ended.lines[-1]) == (0, f"iterations {end.step}")
    assert 200 <= (end.step or 0) <= 210
    assert (end.epoch, end.epochs, end.steps_per_epoch) == (4, 4, 50)
    assert {"loss", "val_loss"} == set(end.metrics)
    assert 0 < (end.steps_per_second or 0) < 250
    firsts.append(end.first_step)
    assert firsts == [int(line) for line in (harness.directory / "begins").read_text().split()]
    assert 0 == (firsts[0] or 0) < (firsts[1] or 0) < (firsts[2] or 0)
    lines = [line.split() for line in (harness.directory / "random").read_text().splitlines()]
    assert [len(set(column)) for column in zip(*lines, strict=True)] == [3, 3, 3, 3]


# What a program sees of the patches: that of the trainer, and that of the CallbackList, which others extend, too.
PATCHED = """
import sys, keras
from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from keras.src.callbacks.callback_list import CallbackList
print([hasattr(each, "__wrapped__") for each in (TensorFlowTrainer._make_function, CallbackList.on_test_begin)])
"""


async def test_keras_3_trains_in_a_plain_start(harness: Harness) -> None:
    program = harness.make(sys.executable, script(harness, KERAS3 + PATCHED))
    await program.start(ENVIRONMENT, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    assert (ended.code, ended.lines[-1]) == (0, "[True, True]")
    assert program.gpu_count == GPUS
    end = program.snapshot()
    assert (end.epoch, end.epochs, end.step, end.steps_per_epoch) == (3, 3, 16, 4)
    assert (end.first_epoch, end.first_step) == (0, 0)
    assert {"loss", "mae", "val_loss", "val_mae"} == set(end.metrics)


# Its own `compile`, and two optimizers: Keras' own one makes no step.
TWO_OPTIMIZERS = """
import numpy as np, tensorflow as tf, tf_keras as keras
class Two(keras.Model):
    def compile(self, *optimizers):
        super().compile()
        self.optimizers = optimizers
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((data[1] - self(data[0])) ** 2)
        for optimizer, pair in zip(self.optimizers, zip(tape.gradient(loss, self.weights), self.weights)):
            optimizer.apply_gradients([pair])
        return {"loss": loss}
entry = keras.Input((4,))
model = Two(entry, keras.layers.Dense(1)(entry))
model.compile(keras.optimizers.SGD(), keras.optimizers.Adam())
for epochs, batch in ((2, 8), (3, 4)):
    model.fit(np.ones((64, 4), "f"), np.ones((64, 1), "f"), batch_size=batch, epochs=epochs, verbose=0)
"""


async def test_each_fit_counts_its_own_steps(harness: Harness) -> None:
    program = harness.make(sys.executable, script(harness, TWO_OPTIMIZERS))
    await program.start(ENVIRONMENT, harness.on_exit)
    assert (await harness.end(program, PATIENCE)).code == 0
    end = program.snapshot()
    assert (end.epoch, end.epochs, fit_step(end), end.steps_per_epoch) == (3, 3, 48, 16)
    assert (end.step, end.first_step) == (16 + 48, 0), "the steps of the program rise"


@pytest.mark.slow_fault
@pytest.mark.parametrize(("keras", "ended"), [("Unpatched", (1, "Keras3Fit")), ("", (0, ""))])
async def test_fit_of_keras_3_with_two_workers(harness: Harness, keras: str, ended: tuple[int, str]) -> None:
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(2)]
    both = f'TF_CONFIG="$PEER" {sys.executable} $0 & exec {sys.executable} $0'
    program = harness.make("sh", "-c", both, script(harness, KERAS3))
    variables = {"PEER": configs[1], "TF_CONFIG": configs[0], patches.VARIABLE: keras}
    await program.start({**ENVIRONMENT, **variables}, harness.on_exit)
    told = await harness.end(program, PATIENCE)
    assert (told.code, told.kind) == ended


async def test_keras_3_is_patched_in_a_warm_start_as_in_a_plain_one(harness: Harness) -> None:
    program = harness.make(sys.executable, script(harness, PATCHED), warm=True)
    await program.prepare(ENVIRONMENT)
    await program.start(ENVIRONMENT, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    assert (program.mode, ended.lines[-1]) == ("warm", "[True, True]")


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", ["reduce_per_replica", "_all_reduce_sum_gradients", "_moments", "_save_model"])
async def test_a_keras_3_that_is_not_known_is_not_patched(
    harness: Harness, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert changed_package.make(harness.directory / "packages", "keras", rf"\b{name}\b", f"{name}_of_later")
    text = f"import sys; sys.path.insert(0, {str(harness.directory / 'packages')!r})\n{PATCHED}"
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    program = harness.make(sys.executable, script(harness, text))
    await program.start({**ENVIRONMENT, "TF_CONFIG": config}, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    assert ended.lines[-1] == "[False, False]"
    await harness.close()
    told = [line for line in capfd.readouterr().err.splitlines() if patches.SURFACE.lost in line]
    assert len(told) == 1
    assert name in told[0]


@pytest.mark.slow_fault
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("Own", "keras, no request, patched"),
        ("Legacy", "tf_keras, TF_USE_LEGACY_KERAS=1, Unpatched"),
        ("Unpatched", "keras, no request, Unpatched"),
    ],
)
def test_the_programs_of_a_gang_get_the_keras_of_their_job(tmp_path: Path, kind: str, found: str, warm: bool) -> None:
    gang = LocalGang(tmp_path, {"worker": 2}, keras=kind, warmStart=warm)
    program = tmp_path / "train.py"
    program.write_text(WHICH_KERAS)
    gang.command = [sys.executable, str(program)]
    with gang:
        gang.start()
        assert set(gang.wait(PATIENCE).values()) == {0}, gang.describe()
    for name in gang.names:
        assert found in gang.log(name).splitlines()
        assert (legacy_keras.APPLIED in gang.log(name)) == (kind == "Legacy")


@pytest.mark.parametrize("warm", [False, True])
async def test_tensorflow_finds_a_tf_config_too_long_for_the_environment(harness: Harness, warm: bool) -> None:
    text = """
import subprocess, sys
import tensorflow as tf
from tensorflow.python.eager.context import Context
spec = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
child = subprocess.run([sys.executable, "-c", "import os; print('TF_CONFIG' in os.environ)"], capture_output=True)
print(spec.num_tasks("worker"), hasattr(Context.enable_collective_ops, "__wrapped__"), child.stdout.decode().strip())
"""
    config = tf_config.text((("worker", 5000, "j-worker-%d.j.n.svc:2222"),), "worker", 1)
    assert tf_config.size(config) > tf_config.LONGEST
    environment = {**ENVIRONMENT, "TF_CONFIG": config}
    program = harness.make(sys.executable, script(harness, text), warm=warm)
    await program.prepare(environment)
    await program.start(environment, harness.on_exit)
    assert (await harness.end(program, PATIENCE)).lines[-1] == "5000 True False"
    assert program.mode.startswith("warm" if warm else "plain")


FOLLOWED = """
import tensorflow as tf, tf_keras as keras, numpy as np
from tensorflow.python.eager.context import Context
print(hasattr(Context.enable_collective_ops, "__wrapped__"), flush=True)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(np.ones((64, 4), "f"), np.ones((64, 1), "f"), epochs=2, batch_size=16, verbose=0)
"""


@pytest.mark.parametrize(
    "name", ["as conda run", *(pytest.param(name, marks=pytest.mark.slow_fault) for name in ("execv", "subprocess"))]
)
async def test_the_program_behind_a_wrapper_reports_progress(harness: Harness, name: str) -> None:
    wrapper = harness.directory / "wrapper.py"
    wrapper.write_text(WRAPPERS[name])
    program = harness.make(sys.executable, str(wrapper), script(harness, FOLLOWED))
    await program.start({**ENVIRONMENT, "TF_CONFIG": "{}"}, harness.on_exit)
    ended = await harness.end(program, PATIENCE)
    assert ended.code == 0 and "True" in ended.lines  # TensorFlow's own words may come after it
    end = program.snapshot()
    assert (end.epoch, end.epochs, end.step, end.first_step, set(end.metrics)) == (2, 2, 8, 0, {"loss"})
    assert program.gpu_count == GPUS

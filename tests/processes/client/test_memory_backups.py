"""Backups in memory of `tftj run`, with the real TensorFlow: what a kill costs with them and without them."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.client.local_run import Run, manifest
from tests.support.repository import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "multi-worker-digits.yaml"
SHORTER = 'spec.template.spec.containers.0.args=[--epochs, "4", --steps-per-epoch, "100"]'


def run_example(tmp_path: Path, *options: str) -> str:
    """The log of the example with a kill in the middle of its third epoch."""
    job = yaml.safe_load(EXAMPLE.read_text())
    with Run(tmp_path, job, "--set", SHORTER, "--kill", "worker-1@step=250", *options) as run:
        assert run.wait() == 0
        log = run.log
    assert "  trained   epoch 4 of 4, step 400" in log
    return log


@pytest.mark.slow_fault
def test_a_kill_costs_the_steps_since_the_newest_copy(tmp_path: Path) -> None:
    # With any share of the time a busy machine copies often enough, too.
    log = run_example(tmp_path, "--set", "spec.launcher.memoryBackup.maxOverheadPercent=100")
    found = re.search(r"worker-1 was killed \(SIGKILL\), resumed from memory at step (\d+), .* lost(.*)$", log, re.M)
    assert found and int(found[1]) > 200, log
    assert re.search(r"^tftj +\| backups in memory: the first at step \d+$", log, re.MULTILINE), log
    assert re.search(r"^  backups   in memory, the last at step \d+", log, re.MULTILINE), log


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    "option", ['spec.launcher.memoryBackup.mode="Off"', "spec.launcher.memoryBackup.sizeLimit=1k"], ids=["off", "small"]
)
def test_without_them_a_kill_costs_the_epoch(tmp_path: Path, option: str) -> None:
    log = run_example(tmp_path, "--set", option)
    assert re.search(r"^ +worker-1 was killed \(SIGKILL\), resumed from epoch 2, ", log, re.MULTILINE), log
    assert ("  backups   none in memory: two copies need" in log) == ("sizeLimit" in option), log


# The first `fit` is repeated, the second resumes: it dies with the 13th step of its second epoch, the 33rd of its own.
TWO_FITS = """
import os
import tensorflow as tf
import {keras} as keras
directory = os.environ["TFTRAINING_DIR"]
class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if model.optimizer.iterations == 33 and not os.path.exists(directory + "/killed"):
            open(directory + "/killed", "w").close()
            os.kill(os.getpid(), 9)
def fit(*callbacks):
    model.compile("sgd", "mse")
    model.fit(data, epochs=2, callbacks=callbacks, verbose=0)
data = tf.data.Dataset.from_tensor_slices((tf.ones((160, 4)), tf.ones((160, 1)))).batch(8)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
fit()
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
fit(keras.callbacks.BackupAndRestore(directory + "/backup"), Kill())
"""


@pytest.mark.slow_fault
@pytest.mark.parametrize("keras", ["tf_keras", "keras"])
def test_a_fit_that_is_trained_again_is_done_again_and_the_next_one_resumes(tmp_path: Path, keras: str) -> None:
    (tmp_path / "work").mkdir()
    program = tmp_path / "work" / "train.py"
    program.write_text(TWO_FITS.format(keras=keras))
    job = manifest(workers=1)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", str(program)]
    with Run(tmp_path, job) as run:
        assert run.wait() == 0
        log = run.log
    assert "  trained   fit 2, epoch 2 of 2, step 40" in log
    found = re.search(r"\(SIGKILL\), resumed from (memory at step|epoch) (\d+), .* (\d+) steps lost", log)
    assert found, log
    step = int(found[2]) * (20 if found[1] == "epoch" else 1)
    assert step >= 20 and int(found[3]) - (40 - step) in (32, 33), log

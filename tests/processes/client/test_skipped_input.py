"""A gang of TensorFlow whose input takes long to be skipped: until the first step `tftj run` says what it waits for."""

import re
from pathlib import Path

import pytest

from tests.support.client.local_run import Run, manifest

# Each batch takes some 15 ms to make, and a resumed program makes again those that it skips.
PROGRAM = """
import os
import tensorflow as tf
import tf_keras as keras
strategy = tf.distribute.MultiWorkerMirroredStrategy()
def heavy(number):
    matrix = tf.fill((600, 600), tf.cast(number, tf.float32) * 1e-3)
    for _ in range(3):
        matrix = tf.tanh(tf.matmul(matrix, matrix))
    return matrix[0, :4], matrix[0, :1]
data = tf.data.Dataset.range(4000).map(heavy).batch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
options.threading.private_threadpool_size = 1
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
backup = keras.callbacks.BackupAndRestore(os.environ["TFTRAINING_DIR"] + "/backup")
model.fit(data.with_options(options), epochs=1, steps_per_epoch=1500, callbacks=[backup], verbose=0)
"""


@pytest.mark.slow_fault
def test_a_gang_that_skips_its_input_says_so_until_its_first_step(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program = tmp_path / "work" / "train.py"
    program.write_text(PROGRAM)
    job = manifest(workers=2)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", str(program)]
    with Run(tmp_path, job, "--kill", "worker-1@step=1400") as run:
        assert run.wait() == 0
        log = run.log
    told = re.search(r"^tftj +\| .*; skipping (\d+) batches of input", log, re.MULTILINE)
    resumed = re.search(r"worker-1 was killed \(SIGKILL\), resumed from memory at step (\d+)", log)
    assert told and resumed and told[1] == resumed[1], log
    assert int(resumed[1]) > 1000, log
    assert "  trained   epoch 1 of 1, step 1500" in log

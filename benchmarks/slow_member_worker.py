"""A member of a training whose input can be slowed: `python -m benchmarks.slow_member_worker FOLDER`.

KERAS names the module. The file `pause-MEMBER` in the folder has the seconds for which the input sleeps before each
batch.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

UNITS, FEATURES = 1024, 1024
BATCH = int(os.environ.get("BATCH", "96"))
STEPS = 200  # an epoch


def batches(pause: Path) -> Iterator[Any]:
    """The same batch for ever, each after the pause."""
    examples = tf.random.stateless_uniform((BATCH, FEATURES), (1, 2)), tf.zeros(BATCH, tf.int32)
    while True:
        if pause.exists():
            time.sleep(float(pause.read_text() or 0))
        yield examples


def main() -> None:
    """Train until the launcher ends this process."""
    keras = importlib.import_module(os.environ["KERAS"])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        layers = [keras.layers.Dense(UNITS, "relu") for _ in range(3)]
        model = keras.Sequential([keras.layers.Input((FEATURES,)), *layers, keras.layers.Dense(10)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    pause = Path(sys.argv[1]) / f"pause-{task['type']}-{task['index']}"
    shapes = tf.TensorSpec((BATCH, FEATURES)), tf.TensorSpec((BATCH,), tf.int32)
    data = tf.data.Dataset.from_generator(lambda: batches(pause), output_signature=shapes).prefetch(1)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    model.fit(data.with_options(options), epochs=10**6, steps_per_epoch=STEPS, verbose=0)


if __name__ == "__main__":
    main()

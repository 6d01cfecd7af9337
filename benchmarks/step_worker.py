"""A training that runs on demand: for each line on stdin, one `fit` of as many small steps as the line says.

    python step_worker.py [tf_keras | keras]

Prints `ready`, then for each line the steps per second of that `fit`. A step takes one or two milliseconds, so that a
small overhead per step shows. Where TF_CONFIG names several workers, the step is that of
MultiWorkerMirroredStrategy; all of them must then get the same lines.
"""

import importlib
import json
import os
import sys
import time

import numpy as np
import tensorflow as tf


def main() -> None:
    """Train on demand until stdin ends."""
    keras = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "tf_keras")
    several = len(json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}).get("worker", ())) > 1
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    examples = np.random.rand(512, 64).astype("float32"), np.random.randint(0, 10, 512)
    data = tf.data.Dataset.from_tensor_slices(examples).repeat().batch(64).prefetch(4)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    data = data.with_options(options)
    model.fit(data, steps_per_epoch=100, verbose=0)
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        began = time.perf_counter()
        model.fit(data, steps_per_epoch=steps, verbose=0)
        print(steps / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()

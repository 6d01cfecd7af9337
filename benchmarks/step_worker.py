"""A training that runs on demand: for each line on stdin, one `fit` of as many small steps as the line says.

Prints `ready`, then for each line the steps per second of that `fit`. A step takes one or two milliseconds, so that a
small overhead per step shows.
"""

import sys
import time

import numpy as np
import tensorflow as tf
import tf_keras as keras


def main() -> None:
    """Train on demand until stdin ends."""
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    examples = np.random.rand(512, 64).astype("float32"), np.random.randint(0, 10, 512)
    data = tf.data.Dataset.from_tensor_slices(examples).repeat().batch(64).prefetch(4)
    model.fit(data, steps_per_epoch=100, verbose=0)
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        began = time.perf_counter()
        model.fit(data, steps_per_epoch=steps, verbose=0)
        print(steps / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    main()

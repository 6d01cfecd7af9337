"""A training that goes on when it is told to: for each line on stdin, one `fit` of so many small steps.

Its answers on stdout: `ready`, then for each line the steps per second of that `fit`. A step takes a millisecond or
two, so that what is added to each step shows.
"""

import sys
import time

import numpy as np
import tensorflow as tf
import tf_keras as keras


def main() -> None:
    """Serve until stdin ends."""
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

"""A member of a training that measures, a step, how long it waits for the others and for its input, and its CPU time.

    python -m benchmarks.slow_member_worker PAUSE

Prints a line of JSON for each window of STEPS steps: means in seconds a step. The file PAUSE has the seconds for which
the input sleeps before each batch. `wait` is the time from the last gradient to the end of the all-reduce, by two
timestamps in the graph, which delay neither.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf_keras
from tensorflow.python.data.ops import iterator_ops
from tensorflow.python.distribute import cross_device_ops

STEPS = 20
UNITS, BATCH, FEATURES = 1024, 96, 1024


def measured(original: Callable[..., Any], seconds: Any) -> Callable[..., Any]:
    """The function of a graph, with the time from when its last argument is there to its end added to `seconds`."""

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if tf.executing_eagerly():
            return original(self, *arguments, **named)
        given = [each for each in tf.nest.flatten(arguments, expand_composites=True) if isinstance(each, tf.Tensor)]
        with tf.control_dependencies(given):
            began = tf.timestamp()
        # A function without arguments begins when the clock has been read.
        with tf.control_dependencies([] if given else [began]):
            result = original(self, *arguments, **named)
        with tf.control_dependencies(tf.nest.flatten(result, expand_composites=True)):
            seconds.assign_add(tf.timestamp() - began)
        return result

    return call


class Windows(tf_keras.callbacks.Callback):  # type: ignore[misc]
    """Prints the figures of each window."""

    def __init__(self, seconds: dict[str, Any]) -> None:
        super().__init__()
        self._seconds, self._before = seconds, (0.0, 0.0)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Print the window if it is over."""
        if (batch + 1) % STEPS:
            return
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now = time.perf_counter(), usage.ru_utime + usage.ru_stime
        step, cpu = (each - before for each, before in zip(now, self._before, strict=True))
        figures = {"step": step, "cpu": cpu} | {name: float(each) for name, each in self._seconds.items()}
        print(json.dumps({name: each / STEPS for name, each in figures.items()}), flush=True)
        self._before = now
        for each in self._seconds.values():
            each.assign(0.0)


def batches(pause: Path) -> Iterator[Any]:
    """The same batch for ever, each after the pause."""
    examples = tf.random.stateless_uniform((BATCH, FEATURES), (1, 2)), tf.zeros(BATCH, tf.int32)
    while True:
        time.sleep(float(pause.read_text() or 0))
        yield examples


def main() -> None:
    """Train until the parent ends this process."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    seconds = {name: tf.Variable(0.0, dtype=tf.float64, trainable=False) for name in ("wait", "input")}
    reduce = cross_device_ops.CollectiveAllReduce
    reduce._all_reduce = measured(reduce._all_reduce, seconds["wait"])
    for name in ("get_next", "get_next_as_optional"):
        own = measured(getattr(iterator_ops.OwnedIterator, name), seconds["input"])
        setattr(iterator_ops.OwnedIterator, name, own)
    with strategy.scope():
        layers = [tf_keras.layers.Dense(UNITS, "relu") for _ in range(3)]
        model = tf_keras.Sequential([tf_keras.layers.Input((FEATURES,)), *layers, tf_keras.layers.Dense(10)])
        model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    shapes = tf.TensorSpec((BATCH, FEATURES)), tf.TensorSpec((BATCH,), tf.int32)
    data = tf.data.Dataset.from_generator(lambda: batches(Path(sys.argv[1])), output_signature=shapes).prefetch(1)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    model.fit(data.with_options(options), steps_per_epoch=10**9, verbose=0, callbacks=[Windows(seconds)])


if __name__ == "__main__":
    main()

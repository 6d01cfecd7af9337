"""A training of MobileNetV2 that writes down the parts of its start, for `benchmarks.recovery --model mobilenet`.

    mobilenet_worker.py DIRECTORY STEPS-PER-EPOCH

Width 0.35, 64 x 64, batches of 8 for each worker, Adam, in a MultiWorkerMirroredStrategy. `parts-<task>-<pid>` in
DIRECTORY is a JSON object: the times (CLOCK_MONOTONIC) at which the process began, its first line ran, the imports were
done, and so on up to the end of the first step. It needs no launcher, and no other file of the repository.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PARTS = {"began": 0.0, "interpreter": time.monotonic()}

import tensorflow as tf  # noqa: E402  # the import is measured
import tf_keras as keras  # noqa: E402

PARTS["import"] = time.monotonic()
SIDE, BATCH, CLASSES, IMAGES = 64, 8, 10, 512


def began() -> float:
    """When this process was created (proc(5)), on the clock of the other times."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return since_boot - (time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic())


class Parts(keras.callbacks.Callback):  # type: ignore[misc]  # tf_keras has no types
    """Notes when `fit` has restored its state, and writes all parts after the first step. List it last."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def on_train_begin(self, logs: Any = None) -> None:
        """Note that the state is restored."""
        PARTS["restore"] = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Write the parts, once."""
        if "first step" not in PARTS:
            PARTS["first step"] = time.monotonic()
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(PARTS))
            new.rename(self._path)


class Begin(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes when the callbacks begin. List it first."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Note the time."""
        PARTS["model"] = time.monotonic()


def main() -> None:
    """Train until killed."""
    PARTS["began"] = began()
    directory, steps = Path(sys.argv[1]), int(sys.argv[2])
    task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    directory.mkdir(parents=True, exist_ok=True)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    PARTS["strategy"] = time.monotonic()
    keras.utils.set_random_seed(1)
    images = tf.random.stateless_uniform([IMAGES, SIDE, SIDE, 3], [1, 2])
    data = tf.data.Dataset.from_tensor_slices((images, tf.range(IMAGES) % CLASSES)).repeat().batch(2 * BATCH)
    with strategy.scope():
        model = keras.applications.MobileNetV2((SIDE, SIDE, 3), alpha=0.35, weights=None, classes=CLASSES)
        model.compile("adam", "sparse_categorical_crossentropy")
        model.optimizer.build(model.trainable_variables)  # BackupAndRestore would, and it is no part of a restore
    backup = keras.callbacks.BackupAndRestore(str(directory / "backup"))
    callbacks = [Begin(), backup, Parts(directory / f"parts-{task}-{os.getpid()}")]
    model.fit(data, epochs=100_000, steps_per_epoch=steps, callbacks=callbacks, verbose=0)


if __name__ == "__main__":
    main()

"""Two ways back to a position in an input, side by side: to skip up to it at a restart, and `tf.data`'s own checkpoint
of an iterator at each copy.

`python -m benchmarks.input_position` draws from inputs of digits and of images, and measures for each: the size of an
iterator checkpoint and the seconds in which writing it (into memory, /dev/shm) stops the training, which every copy
would pay; and the seconds to skip to the same position, which one restart pays. The last line is JSON. It must never
judge.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COPIES = 5
BATCH = 64


def inputs(tensorflow: Any) -> dict[str, tuple[Callable[[], Any], int]]:
    """Each input, and the batches that the training has drawn."""
    data = tensorflow.data.Dataset

    def digits() -> Any:
        return data.from_tensor_slices(tensorflow.zeros([1500, 64])).shuffle(1500, seed=1).repeat().batch(BATCH)

    def images() -> Any:
        return data.from_tensor_slices(tensorflow.zeros([60_000, 28, 28])).shuffle(60_000, seed=1).repeat().batch(BATCH)

    def resized() -> Any:
        def resize(image: Any) -> Any:
            return tensorflow.image.resize(image[..., None], [96, 96])

        return (
            data.from_tensor_slices(tensorflow.zeros([1500, 28, 28]))
            .shuffle(1500, seed=1)
            .repeat()
            .map(resize)
            .batch(32)
        )

    return {
        "digits, shuffle(1500)": (digits, 1500),
        "images, shuffle(60000)": (images, 1500),
        "resized images": (resized, 500),
    }


def measure(tensorflow: Any, make: Callable[[], Any], drawn: int) -> dict[str, float]:
    """One input: what a checkpoint of its iterator costs, and what skipping costs."""
    iterator = iter(make())
    for _ in range(drawn):
        next(iterator)
    begin = time.perf_counter()
    next(iter(make().skip(drawn)))
    skipped = time.perf_counter() - begin
    begin = time.perf_counter()
    next(iter(make()))
    first = time.perf_counter() - begin
    seconds, size = [], 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        for copy in range(COPIES):
            begin = time.perf_counter()
            path = tensorflow.train.Checkpoint(iterator=iterator).write(f"{place}/{copy}")
            seconds.append(time.perf_counter() - begin)
            size = sum(each.stat().st_size for each in Path(place).glob(f"{Path(path).name}.*"))
            next(iterator)
    return {
        "batches": drawn,
        "checkpointSeconds": round(statistics.median(seconds), 4),
        "checkpointBytes": size,
        "skipSeconds": round(max(0.0, skipped - first), 3),
    }


def main() -> int:
    """Measure each input, and print a line for it."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow  # noqa: PLC0415  # it reads the variables

    found = {}
    for name, (make, drawn) in inputs(tensorflow).items():
        told = found[name] = measure(tensorflow, make, drawn)
        size, seconds = told["checkpointBytes"] / 1e6, told["checkpointSeconds"]
        print(f"{name}: a checkpoint of the iterator {seconds:.3f} s and {size:.1f} MB a copy;", end=" ")
        print(f"to skip {drawn} batches {told['skipSeconds']:.2f} s a restart", flush=True)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

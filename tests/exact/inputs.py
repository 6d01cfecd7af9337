"""The inputs of the program: each yields (index of the example, target) in batches, for the model to count.

Never draws from NumPy's or Python's own generators before it is read: the same program starts the same each time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.exact.cells import BATCH, INPUTS, Cell
from tests.exact.library import keras

FILES = 4
AUTO = tf.data.AUTOTUNE


def targets(indices: Any) -> Any:
    """The target of each example."""
    return np.sin(np.asarray(indices, np.float32) * 0.37).astype(np.float32)


def arrays(count: int) -> tuple[Any, Any]:
    """All examples in order."""
    indices = np.arange(count, dtype=np.float32).reshape(-1, 1)
    return indices, targets(indices)


class Batches(keras.utils.Sequence):  # type: ignore[misc]
    """A Sequence; `shuffles`: in another order after each epoch."""

    def __init__(self, count: int, shuffles: bool) -> None:
        super().__init__()
        self.order, self.shuffles, self.random = np.arange(count), shuffles, np.random.default_rng(5)

    def __len__(self) -> int:
        return len(self.order) // BATCH

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        indices = self.order[place * BATCH : (place + 1) * BATCH].astype(np.float32).reshape(-1, 1)
        return indices, targets(indices)

    def on_epoch_end(self) -> None:
        if self.shuffles:
            self.random.shuffle(self.order)


def endless(count: int) -> Iterator[tuple[Any, Any]]:
    """A generator that goes on from epoch to epoch; its passes have no common length with the epochs."""
    place = 0
    while True:
        indices = (np.arange(place, place + BATCH) % (count - 4)).astype(np.float32).reshape(-1, 1)
        yield indices, targets(indices)
        place += BATCH


def files(cell: Cell, directory: Path) -> Any:
    """Files of text, an index a line."""
    names = [directory / f"part-{number}.txt" for number in range(FILES)]
    for number, name in enumerate(names):
        if not name.exists():
            new = name.with_suffix(f".{os.getpid()}")
            new.write_text("".join(f"{index}\n" for index in range(number, cell.examples, FILES)))
            new.rename(name)
    return tf.data.Dataset.from_tensor_slices(list(map(str, names)))


def _parsed(line: Any) -> tuple[Any, Any]:
    index = tf.reshape(tf.strings.to_number(line), [1])
    return index, tf.sin(index * 0.37)


def _noisy(index: Any, target: Any) -> tuple[Any, Any]:
    return index, target + tf.random.uniform([1], maxval=0.1)


def _stateless(index: Any, target: Any) -> tuple[Any, Any]:
    seed = tf.stack([tf.cast(index[0], tf.int32), 7])
    return index, target + tf.random.stateless_uniform([1], seed, maxval=0.1)


def _python(index: Any, target: Any) -> tuple[Any, Any]:
    return index, tf.ensure_shape(tf.numpy_function(lambda each: each, [target], tf.float32), [1])


def datasets(cell: Cell, directory: Path) -> dict[str, Any]:
    """A function that makes each dataset of the cell's examples; without those that are no dataset."""
    count = cell.examples
    plain = tf.data.Dataset.from_tensor_slices(arrays(count))
    even = plain.filter(lambda index, target: index[0] >= 0)
    sloppy = tf.data.Options()
    sloppy.deterministic = False
    return _of_files(cell, directory) | {
        "repeat": lambda: plain.batch(BATCH, True).repeat(),
        "repeat-shuffled": lambda: plain.shuffle(count, seed=3).batch(BATCH, True).repeat(),
        "repeat-first": lambda: plain.repeat().shuffle(count // 2, seed=3).batch(BATCH, True),
        "finite": lambda: plain.batch(BATCH),
        "finite-uneven": lambda: plain.batch(BATCH),
        "finite-steps": lambda: plain.batch(BATCH),
        "finite-long": lambda: plain.batch(BATCH),
        "shuffled": lambda: plain.shuffle(count, seed=3).batch(BATCH, True),
        "shuffled-once": lambda: plain.shuffle(count, seed=3, reshuffle_each_iteration=False).batch(BATCH),
        "unseeded": lambda: plain.shuffle(count).batch(BATCH),
        "unseeded-repeat": lambda: plain.shuffle(count).batch(BATCH).repeat(),
        "cache-before": lambda: plain.cache().shuffle(count, seed=3).batch(BATCH),
        "cache-behind": lambda: plain.shuffle(count, seed=3).cache().batch(BATCH),
        "cache-behind-unseeded": lambda: plain.shuffle(count).cache().batch(BATCH),
        "cache-file": lambda: plain.cache(str(directory / f"cache-{os.getpid()}")).batch(BATCH),
        "parallel-map": lambda: plain.map(_stateless, num_parallel_calls=AUTO).batch(BATCH).prefetch(AUTO),
        "stateless-map": lambda: plain.map(_stateless).batch(BATCH),
        "random-map": lambda: plain.map(_noisy).batch(BATCH),
        "python-map": lambda: plain.map(_python).batch(BATCH),
        "filter": lambda: even.batch(BATCH),
        "filter-repeat": lambda: even.batch(BATCH, True).repeat(),
        "flat-map": lambda: tf.data.Dataset.range(count // BATCH).flat_map(
            lambda number: plain.skip(number * BATCH).take(BATCH).batch(BATCH)
        ),
        "from-generator": lambda: tf.data.Dataset.from_generator(
            lambda: zip(*arrays(count), strict=True),
            output_signature=(tf.TensorSpec([1], tf.float32), tf.TensorSpec([1], tf.float32)),
        ).batch(BATCH),
        "mixed": lambda: tf.data.Dataset.sample_from_datasets(
            [plain.repeat(), plain.shuffle(count, seed=3).repeat()], [0.5, 0.5], seed=4
        ).batch(BATCH, True),
        "zipped": lambda: tf.data.Dataset.zip(
            (plain.shuffle(count, seed=3).map(lambda index, _: index), plain.shuffle(count, seed=4).map(lambda _, y: y))
        ).batch(BATCH),
        "options": lambda: (
            plain.shuffle(count, seed=3).map(_stateless, num_parallel_calls=4).batch(BATCH).with_options(sloppy)
        ),
    }


def _of_files(cell: Cell, directory: Path) -> dict[str, Any]:
    """Those of the same examples in files."""
    lines = tf.data.TextLineDataset
    return {
        "interleave": lambda: (
            files(cell, directory).interleave(lines, cycle_length=2).map(_parsed).batch(BATCH, True).repeat()
        ),
        "interleave-parallel": lambda: (
            files(cell, directory)
            .interleave(lines, cycle_length=2, num_parallel_calls=2)
            .map(_parsed)
            .batch(BATCH, True)
            .repeat()
        ),
        "interleave-sloppy": lambda: (
            files(cell, directory)
            .interleave(lines, cycle_length=4, num_parallel_calls=4, deterministic=False)
            .map(_parsed)
            .batch(BATCH, True)
            .repeat()
        ),
        "files": lambda: files(cell, directory).interleave(lines, cycle_length=2).map(_parsed).batch(BATCH),
        "file-shards": lambda: (
            files(cell, directory).interleave(lines, cycle_length=1).map(_parsed).batch(BATCH).repeat()
        ),
    }


def fit_arguments(cell: Cell, directory: Path) -> dict[str, Any]:
    """The arguments of `fit` for the cell's input and its validation."""
    validation = _validation(cell)
    if cell.input.startswith("split"):
        again = cell.input == "split"
        whole = tf.data.Dataset.from_tensor_slices(arrays(cell.examples))
        whole = whole.shuffle(cell.examples, seed=3, reshuffle_each_iteration=again).batch(BATCH, True)
        return {"x": whole.skip(4), "validation_data": whole.take(4)} | (
            {} if cell.validation != "second" else validation
        )
    if cell.input.startswith("arrays"):
        x, y = arrays(cell.examples)
        shuffle = cell.input == "arrays-shuffled"
        return {"x": x, "y": y, "batch_size": BATCH, "shuffle": shuffle} | validation
    if cell.input.startswith("sequence"):
        return {"x": Batches(cell.examples, cell.input == "sequence-shuffled"), "shuffle": False} | validation
    if cell.input == "generator":
        return {"x": endless(cell.examples), "steps_per_epoch": cell.steps} | validation
    dataset = _options(cell, datasets(cell, directory)[cell.input]())
    told = {} if INPUTS[cell.input].finite else {"steps_per_epoch": cell.steps}
    return {"x": dataset} | told | validation


def _options(cell: Cell, dataset: Any) -> Any:
    """In a gang the batches are of all members: by examples, or by files."""
    policy = tf.data.experimental.AutoShardPolicy
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy.FILE if cell.input == "file-shards" else policy.DATA
    return dataset.with_options(options)


def _validation(cell: Cell) -> dict[str, Any]:
    if cell.validation not in ("each", "second"):
        return {}
    data = _options(cell, validation_data())
    return {"validation_data": data} | ({"validation_freq": 2} if cell.validation == "second" else {})


def validation_data() -> Any:
    """A small dataset of its own."""
    return tf.data.Dataset.from_tensor_slices(arrays(4 * BATCH)).batch(BATCH)

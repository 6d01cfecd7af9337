"""The order of the data: each example once an epoch over all workers, and the same from wherever a training goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute

from tftraining.lib.data import Examples
from tftraining.lib.input_pipeline import Order, endless_batches, epoch_batches, plain_batches, sharded
from tftraining.lib.record_files import read_records, write_records

COUNT = 50
EXAMPLES = Examples(np.zeros((COUNT, 2, 2, 1), np.float32), np.arange(COUNT))


def labels(dataset: tf.data.Dataset) -> list[int]:
    return [int(label) for _, part in dataset for label in part]


def test_an_epoch_has_each_example_once_in_another_order() -> None:
    order = Order(8, seed=1)
    epochs = [labels(epoch_batches(EXAMPLES, order, epoch)) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert epochs[1] == labels(epoch_batches(EXAMPLES, order, 1))
    assert epochs[1] != labels(epoch_batches(EXAMPLES, Order(8, seed=2), 1))


def test_epochs_of_fixed_steps_go_on_where_the_last_one_ended() -> None:
    """Three epochs of five steps are the same 120 examples as one stream."""
    order = Order(8, seed=1, steps_per_epoch=5)
    epochs = [label for epoch in range(3) for label in labels(epoch_batches(EXAMPLES, order, epoch))]
    assert len(epochs) == 120
    assert sorted(epochs[:COUNT]) == sorted(epochs[COUNT : 2 * COUNT]) == list(range(COUNT))
    assert labels(endless_batches(EXAMPLES, order).take(15)) == epochs
    assert labels(endless_batches(EXAMPLES, order, 40).take(10)) == epochs[40:]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_workers_share_an_epoch_without_overlap(workers: int) -> None:
    """By the two steps that MultiWorkerMirroredStrategy does with a data set, for each worker as if it were there."""
    batch_size = 8 * workers
    dataset = sharded(epoch_batches(EXAMPLES, Order(batch_size, seed=1), 0), "data")
    seen: list[int] = []
    for index in range(workers):
        sizes = distribute.batch_sizes_for_worker(batch_size, workers, 1, index)
        rebatched = dataset.rebatch(sizes)
        seen += labels(distribute._AutoShardDataset(rebatched, workers, index, workers))
    assert sorted(seen) == list(range(COUNT))


def test_the_workers_share_the_files(tmp_path: Path) -> None:
    """By AutoShardPolicy.FILE: each example in one worker only, and each worker reads whole files."""
    for _ in range(2):  # as two workers do
        write_records(EXAMPLES, tmp_path / "records", 4)
    assert [path.name for path in tmp_path.iterdir()] == ["records"]
    dataset = sharded(read_records(tmp_path / "records", (2, 2, 1)).batch(5), "file")
    seen = [labels(distribute._AutoShardDataset(dataset, 2, index, 2)) for index in range(2)]
    assert sorted(seen[0] + seen[1]) == list(range(COUNT))
    # File n has every fourth example from n; the worker 0 has the files 0 and 2.
    assert {label % 2 for label in seen[0]} == {0}
    images, _ = next(iter(dataset))
    assert (images.shape, images.dtype) == ((5, 2, 2, 1), tf.float32)


def test_two_replicas_share_each_batch() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    seen: list[int] = []
    for _, parts in strategy.experimental_distribute_dataset(epoch_batches(EXAMPLES, Order(8, seed=1), 0)):
        values = strategy.experimental_local_results(parts)
        assert len(values) == 2
        seen += [int(label) for part in values for label in part]
    assert sorted(seen) == list(range(COUNT))


def test_test_data_keep_their_order() -> None:
    assert labels(plain_batches(EXAMPLES, 8)) == list(range(COUNT))

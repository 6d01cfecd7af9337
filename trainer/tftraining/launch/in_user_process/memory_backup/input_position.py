"""The position of a `fit` of tf_keras in its input: which iterator it draws from, how far; and how to get there again.

`fit` starts the dataset anew, so without this a training that is killed again and again would see only the first part
of its data. The datasets of TensorFlow's strategies and `tf.data` skip elements by themselves. A shuffled dataset gives
each iterator another order, so the iterators of earlier epochs are made, and dropped, before the first one. Must never
import TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Where DistributedDataset and DistributedDatasetsFromFunction keep the datasets of this process.
_LOCAL = ("_cloned_datasets", "_datasets")
# The most iterators that are made and dropped: each takes some milliseconds. Beyond it, the order is another one.
MOST_DROPPED = 500


def supported(handler: Any) -> bool:
    """Whether the input of this DataHandler can be skipped."""
    return _local_name(handler) != "" or _is_plain(handler)


def _local_name(handler: Any) -> str:
    return next((name for name in _LOCAL if isinstance(getattr(handler._dataset, name, None), list)), "")


def _is_plain(handler: Any) -> bool:
    return isinstance(handler._dataset, sys.modules["tensorflow"].data.Dataset)


def examples_in_a_step(handler: Any, replicas: int) -> int | None:
    """The examples in a step of all `replicas` together; None if `tf.data` cannot tell. Never raises."""
    try:
        dataset = handler._dataset
        compute = sys.modules["tensorflow.python.data.experimental.ops.distribute"].compute_batch_size
        if isinstance(of_function := getattr(dataset, "_datasets", None), list):  # each replica takes an element
            size = int(compute(of_function[0])) * replicas
        else:
            size = int(compute(getattr(dataset, "_original_dataset", dataset)))
        return size if size > 0 else None
    except Exception:
        return None


@contextmanager
def skipping(handler: Any, batches: int, replicas: int) -> Iterator[None]:
    """Every iterator made in here begins behind so many batches; each takes one element for each local replica."""
    dataset, name = handler._dataset, _local_name(handler)
    owner, field, whole = (dataset, name, getattr(dataset, name)) if name else (handler, "_dataset", dataset)
    skipped = [each.skip(batches * replicas) for each in whole] if name else whole.skip(batches)
    setattr(owner, field, skipped)
    try:
        yield
    finally:
        setattr(owner, field, whole)


def drop_iterators(handler: Any, count: int) -> None:
    """Make so many iterators, for the state that a shuffled dataset keeps."""
    name = _local_name(handler)
    for dataset in getattr(handler._dataset, name) if name else [handler._dataset]:
        for _ in range(count):
            iter(dataset)


class Position:
    """Where one training draws from its input: `drawn` batches of the iterator number `made`.

    A resumed training begins with what its last process had reached; any other one with 0 and 0.
    """

    def __init__(self, drawn: int, made: int, replicas: int) -> None:
        self.drawn = drawn
        self.made = made
        self._replicas = replicas
        self._handler: Any = None
        self._iterator: Any = None

    def follows(self, handler: Any) -> bool:
        """Whether this is the handler of the training: the first one that begins, validation comes later."""
        if self._handler is None:
            self._handler = handler
            return True
        return False

    def epochs(self, original: Callable[[Any], Iterator[tuple[int, Any]]], handler: Any) -> Iterator[tuple[int, Any]]:
        """Keras' epochs and iterators; the first iterator begins at the position."""
        found = original(handler)
        own = 2 if self.begins_anew() else 1  # the first of two is never used
        if 0 < self.made - own <= MOST_DROPPED:
            drop_iterators(handler, self.made - own)
        self.made = max(self.made, own)
        if self.drawn:
            with skipping(handler, self.drawn, self._replicas):
                first = next(found, None)
        else:
            first = next(found, None)
        if first is None:
            return
        self._iterator = first[1]
        yield first
        for epoch, iterator in found:
            if iterator is not self._iterator:
                self._iterator, self.drawn, self.made = iterator, 0, self.made + 1
            yield epoch, iterator

    def begins_anew(self) -> bool:
        """Whether each epoch has an iterator of its own."""
        return bool(self._handler._adapter.should_recreate_iterator())

    def now(self) -> dict[str, int]:
        """The present position, for a copy."""
        return {"drawn": self.drawn, "made": self.made}

    def next_epoch(self) -> dict[str, int]:
        """The position at which the next epoch begins."""
        return {"drawn": 0, "made": self.made + 1} if self.begins_anew() else self.now()

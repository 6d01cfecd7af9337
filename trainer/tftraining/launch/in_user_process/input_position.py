"""The position of a `fit` of tf_keras in its input: how many batches it has drawn, and how a restart gets there.

`fit` starts the dataset anew, so without this a training that is killed again and again would see only the first part
of its data. The datasets of TensorFlow's strategies and `tf.data` skip elements by themselves. Must never import
TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Where DistributedDataset and DistributedDatasetsFromFunction keep the datasets of this process.
_LOCAL = ("_cloned_datasets", "_datasets")


def supported(handler: Any) -> bool:
    """Whether the input of this DataHandler can be skipped."""
    return _local_name(handler) != "" or _is_plain(handler)


def _local_name(handler: Any) -> str:
    return next((name for name in _LOCAL if isinstance(getattr(handler._dataset, name, None), list)), "")


def _is_plain(handler: Any) -> bool:
    return isinstance(handler._dataset, sys.modules["tensorflow"].data.Dataset)


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


class Position:
    """Counts the batches drawn from the present iterator of one training; `drawn` at its begin is what is skipped."""

    def __init__(self, drawn: int, replicas: int) -> None:
        self.drawn = drawn
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
                self._iterator, self.drawn = iterator, 0
            yield epoch, iterator

    def next_epoch(self) -> int:
        """The position at which the next epoch begins."""
        return 0 if self._handler._adapter.should_recreate_iterator() else self.drawn

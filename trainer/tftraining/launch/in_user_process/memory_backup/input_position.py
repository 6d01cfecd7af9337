"""Where a `fit` is in its input: which iterator it draws from, how far; and how to get there again.

`fit` starts the dataset anew, so without this a training that is killed again and again would see only the first part
of its data. The datasets of TensorFlow's strategies and `tf.data` skip elements by themselves. A shuffled dataset gives
each iterator another order, so the iterators of earlier epochs are made, and dropped, before the first one. When
Keras makes an iterator is known to legacy_fit.py and keras3_fit.py. Must never import TensorFlow.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Protocol

from ..import_hook import after_import
from ..surface import Part, Surface
from .input_kind import Kind, reads_any

# Where DistributedDataset and DistributedDatasetsFromFunction keep the datasets of this process.
_LOCAL = ("_cloned_datasets", "_datasets")
_DISTRIBUTED = "tensorflow.python.distribute.input_lib"
_ITERATORS = "tensorflow.python.data.ops.iterator_ops"
SURFACE = Surface(
    "no backups in memory",
    (
        Part(_ITERATORS, "OwnedIterator.__init__", "self dataset components element_spec"),
        Part(_DISTRIBUTED, "DistributedDataset", uses="_cloned_datasets _original_dataset"),
        Part(_DISTRIBUTED, "DistributedDatasetsFromFunction", uses="_datasets"),
    ),
)
_DATASETS = "tensorflow.python.data.ops.dataset_ops"  # it imports the iterators, whose import iterator_release follows
UNKNOWN = -1
_MARK, _COUNT = "_tftraining_watches", "_tftraining_iterators"
_watching: Position | None = None  # the position whose input is watched, one in this process


class Input(Protocol):
    """The input of a `fit`."""

    @property
    def dataset(self) -> Any:
        """The dataset, which may be set."""

    @dataset.setter
    def dataset(self, dataset: Any) -> None: ...

    @property
    def anew(self) -> bool:
        """Whether each epoch has an iterator of its own."""

    @property
    def several(self) -> bool:
        """Whether there may be more than one iterator."""


def _local_name(dataset: Any) -> str:
    return next((name for name in _LOCAL if isinstance(getattr(dataset, name, None), list)), "")


def _local(dataset: Any) -> list[Any] | None:
    """The datasets of this process in a distributed one."""
    return getattr(dataset, _local_name(dataset), None)


def readers_of(dataset: Any, kind: Kind) -> list[int]:
    """How many iterators this process has made of each dataset that knows which order comes next; UNKNOWN where they
    do not tell."""
    return [int(vars(each).get(_COUNT, 0)) for each in _with_orders(dataset, kind)]


def _with_orders(dataset: Any, kind: Kind) -> Iterable[Any]:
    """The datasets that know which order comes next: a distributed dataset has some of its own."""
    return (_local(dataset) if kind.orders else None) or kind.orders


def pass_over(dataset: Any, kind: Kind, iterators: int) -> None:
    """Make so many iterators, with which an earlier process has trained: another `fit` may read the input."""
    if kind.drops:
        return drop_iterators(dataset, iterators)
    for each in _with_orders(dataset, kind):  # an iterator that repeats the input draws more than one
        vars(each)[_COUNT] = UNKNOWN
    return None


def can_skip(dataset: Any) -> bool:
    """Whether the batches of this input can be skipped."""
    return _local_name(dataset) != "" or isinstance(dataset, sys.modules["tensorflow"].data.Dataset)


def examples_in_a_step(dataset: Any, replicas: int) -> int | None:
    """The examples in a step of all `replicas` together; None if `tf.data` cannot tell. Never raises."""
    try:
        compute = sys.modules["tensorflow.python.data.experimental.ops.distribute"].compute_batch_size
        if isinstance(of_function := getattr(dataset, "_datasets", None), list):  # each replica takes an element
            size = int(compute(of_function[0])) * replicas
        else:
            size = int(compute(getattr(dataset, "_original_dataset", dataset)))
        return size if size > 0 else None
    except Exception:
        return None


@contextmanager
def skipping(source: Input, batches: int, replicas: int) -> Iterator[None]:
    """Every iterator made in here begins behind so many batches; each takes one element for each local replica."""
    dataset, name = source.dataset, _local_name(source.dataset)
    owner, field, whole = (dataset, name, getattr(dataset, name)) if name else (source, "dataset", dataset)
    skipped = [each.skip(batches * replicas) for each in whole] if name else whole.skip(batches)
    setattr(owner, field, skipped)
    try:
        yield
    finally:
        setattr(owner, field, whole)


def drop_iterators(dataset: Any, count: int) -> None:
    """Make so many iterators, for the state that a shuffled dataset keeps."""
    for each in _local(dataset) or [dataset]:
        for _ in range(count):
            iter(each)


class Position:
    """Where one training draws from its input: `drawn` batches of the iterator number `made`.

    A resumed training begins with what its last process had reached; any other one with 0 and 0. `on_other_reader` is
    called if the program reads the input elsewhere, too, where that changes the order of the training.
    """

    def __init__(self, source: Input, kind: Kind, replicas: int, on_other_reader: Callable[[], None]) -> None:
        self.drawn = 0
        self.made = 0
        self._source = source
        self._kind = kind
        self._replicas = replicas
        self._on_other_reader = on_other_reader

    @contextmanager
    def first(self, own: int) -> Iterator[None]:
        """The iterator that is made in here begins at the position, if it is number `own` of this process."""
        if self._kind.drops and self.made > own:
            drop_iterators(self._source.dataset, self.made - own)
        self.made = max(self.made, own)
        with skipping(self._source, self.drawn, self._replicas) if self.drawn else nullcontext():
            yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice other readers of the input while an epoch runs, if they would change its order."""
        global _watching  # noqa: PLW0603  # one process, one training at a time
        _watching = self if self._kind.orders else None
        try:
            yield
        finally:
            _watching = None

    def notice_iterator(self, dataset: Any) -> None:
        """An iterator of this dataset is made. Never raises."""
        with suppress(Exception):  # a dataset that is not of tf.data
            if dataset is not None and reads_any(dataset, self._kind.orders):
                self._on_other_reader()

    def now(self) -> dict[str, int]:
        """The present position, for a copy."""
        return {"drawn": self.drawn, "made": self.made}


def install() -> None:
    """Extend TensorFlow, now or when it is imported: the program may read its input before `fit`."""
    after_import(frozenset({_DATASETS}), lambda _: watch_iterators())


def watch_iterators() -> None:
    """Extend TensorFlow, once, to notice each iterator that is made."""
    if SURFACE.parts[0].missing(sys.modules, {}) or _MARK in (cls := sys.modules[_ITERATORS].OwnedIterator).__dict__:
        return
    begin = cls.__init__

    @functools.wraps(begin)
    def initialize(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        if _watching is not None:
            _watching.notice_iterator(dataset)
        begin(self, dataset, *args, **kwargs)
        _count_iterator(dataset)

    setattr(cls, _MARK, True)
    cls.__init__ = initialize


def _count_iterator(dataset: Any) -> None:
    """Count it at each dataset of the graph that draws an order. Never raises."""
    with suppress(Exception):
        pending = [dataset] if dataset is not None else []
        for each in pending:
            if type(each).__name__ == "_ShuffleDataset":
                known = vars(each).get(_COUNT, 0)
                vars(each)[_COUNT] = known + (known != UNKNOWN)
            pending += each._inputs()

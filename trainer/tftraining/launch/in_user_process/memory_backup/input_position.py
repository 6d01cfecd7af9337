"""Where a `fit` of tf_keras is in its input: which iterator it draws from, how far; and how to get there again.

`fit` starts the dataset anew, so without this a training that is killed again and again would see only the first part
of its data. The datasets of TensorFlow's strategies and `tf.data` skip elements by themselves. A shuffled dataset gives
each iterator another order, so the iterators of earlier epochs are made, and dropped, before the first one. Must never
import TensorFlow.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

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


def _local_name(handler: Any) -> str:
    return next((name for name in _LOCAL if isinstance(getattr(handler._dataset, name, None), list)), "")


def _local(handler: Any) -> list[Any] | None:
    """The datasets of this process in a distributed one."""
    return getattr(handler._dataset, _local_name(handler), None)


def readers_of(handler: Any, kind: Kind) -> list[int]:
    """How many iterators this process has made of each dataset that knows which order comes next; UNKNOWN where they
    do not tell."""
    return [int(vars(each).get(_COUNT, 0)) for each in _with_orders(handler, kind)]


def _with_orders(handler: Any, kind: Kind) -> Iterable[Any]:
    """The datasets that know which order comes next: a distributed dataset has some of its own."""
    return (_local(handler) if kind.orders else None) or kind.orders


def pass_over(handler: Any, kind: Kind, epochs: int) -> None:
    """Make the iterators of so many epochs, which an earlier process has trained: another `fit` may read the input."""
    if kind.drops:
        return _drop_iterators(handler, epochs)
    for each in _with_orders(handler, kind):  # an iterator that repeats the input draws more than one
        vars(each)[_COUNT] = UNKNOWN
    return None


def can_skip(handler: Any) -> bool:
    """Whether the input of this DataHandler can be skipped."""
    return _local_name(handler) != "" or isinstance(handler._dataset, sys.modules["tensorflow"].data.Dataset)


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
def _skipping(handler: Any, batches: int, replicas: int) -> Iterator[None]:
    """Every iterator made in here begins behind so many batches; each takes one element for each local replica."""
    dataset, name = handler._dataset, _local_name(handler)
    owner, field, whole = (dataset, name, getattr(dataset, name)) if name else (handler, "_dataset", dataset)
    skipped = [each.skip(batches * replicas) for each in whole] if name else whole.skip(batches)
    steps = handler._inferred_steps
    setattr(owner, field, skipped)
    try:
        yield
    finally:
        setattr(owner, field, whole)
        handler._inferred_steps = steps  # Keras counts those of the skipped dataset


def _drop_iterators(handler: Any, count: int) -> None:
    """Make so many iterators, for the state that a shuffled dataset keeps."""
    for dataset in _local(handler) or [handler._dataset]:
        for _ in range(count):
            iter(dataset)


class Position:
    """Where one training draws from its input: `drawn` batches of the iterator number `made`.

    A resumed training begins with what its last process had reached; any other one with 0 and 0. `on_other_reader` is
    called if the program reads the input elsewhere, too, where that changes the order of the training.
    """

    def __init__(self, handler: Any, kind: Kind, replicas: int, on_other_reader: Callable[[], None]) -> None:
        self.drawn = 0
        self.made = 0
        self._handler = handler
        self._kind = kind
        self._replicas = replicas
        self._on_other_reader = on_other_reader
        self._iterator: Any = None

    def trace(self, train_function: Any) -> Any:
        """The function of a step as it is traced for the present iterator; None if it runs eagerly. No step is run."""
        trace = getattr(train_function, "get_concrete_function", None)
        return trace(self._iterator) if trace is not None else None

    def begins_anew(self) -> bool:
        """Whether each epoch has an iterator of its own."""
        return bool(self._handler._adapter.should_recreate_iterator())

    def epochs(self, original: Callable[[Any], Iterator[tuple[int, Any]]]) -> Iterator[tuple[int, Any]]:
        """Keras' epochs and iterators; the first iterator begins at the position."""
        found = original(self._handler)
        own = 2 if self.begins_anew() else 1  # the first of two is never used
        if self._kind.drops and self.made > own:
            _drop_iterators(self._handler, self.made - own)
        self.made = max(self.made, own)
        with _skipping(self._handler, self.drawn, self._replicas) if self.drawn else nullcontext():
            present = next(found, None)
        while present is not None:
            self._iterator = iterator = present[1]
            with self._watched():
                yield present
            present = next(found, None)
            if present is not None and present[1] is not iterator:
                self.drawn, self.made = 0, self.made + 1

    @contextmanager
    def _watched(self) -> Iterator[None]:
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

    def next_epoch(self) -> dict[str, int]:
        """The position at which the next epoch begins."""
        return {"drawn": 0, "made": self.made + 1} if self.begins_anew() else self.now()


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

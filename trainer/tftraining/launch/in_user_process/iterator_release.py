"""Releases the iterators of `tf.data` beside the program, for their destructor may wait for up to a minute.

The destructor of an iterator ends the thread that tunes its pipeline (Model::OptimizeLoop). TensorFlow notifies that
thread before it marks the iterator as cancelled; a thread that wakes up in between sleeps on until its next tuning, and
the time between two tunings doubles up to 60 s. `fit` drops an iterator when it returns, and at each epoch that makes a
new one, and waits there: 0 to 37 s were seen. So the last reference is dropped in a thread of its own, which waits in
TensorFlow without the interpreter's lock. The buffers are free before that wait.

Only where nobody can notice when an iterator ends: while it lives, a `cache(filename)` is locked, a generator has not
run its `finally`, and a Python function of the input may be running. The next epoch would meet these. So each dataset
and each of its functions is looked at when it is made. From the first one on that is not known to be harmless
(input_kind.py), the iterators of this process die as they would without us.

The process waits at its end for these threads, for TensorFlow should not be torn down under them: behind the program's
own exit handlers (hooks.py), and not for long, because it may have been told to stop and have a few seconds in all. A
thread that still waits then may come back while the interpreter ends. Python ends a thread that asks for its lock at
that time, and a destructor of C++ that is ended so aborts the process. A destructor asks for the lock where it frees
the last copy of a function of the dataset, with a stack trace. So TensorFlow's context keeps the functions that the
program lets go of meanwhile, until the threads that wait at that time are done.

This module must never fail, and must not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .import_hook import after_import
from .memory_backup import input_kind
from .surface import Part, Surface

# The class in each module, and its attribute that keeps an iterator alive.
_LOST = "the end of an epoch may wait for its input"
_FUNCTIONS = Part("tensorflow.python.eager.context", "Context.remove_function", takes="self name")
SURFACES = {
    each.module: Surface(_LOST, (each, _FUNCTIONS))
    for each in (
        Part("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", uses="_iterator_resource"),
        Part(
            "tensorflow.python.data.ops.multi_device_iterator_ops",
            "OwnedMultiDeviceIterator",
            uses="_multi_device_iterator_resource",
        ),
    )
}
_DATASETS = "tensorflow.python.data.ops.dataset_ops"
WATCHED = Surface(
    _LOST,
    (
        Part(_DATASETS, "DatasetV2.__init__", "self variant_tensor"),
        Part("tensorflow.python.data.ops.structured_function", "StructuredFunctionWrapper.function"),
    ),
)
# Beside those of input_kind.py: what a strategy puts around a dataset.
_OF_STRATEGIES = frozenset({"AutoShardDataset", "PerDeviceGenerator", "ReincarnatedPerDeviceGenerator"})
NAME = "tftraining-release"  # of the threads
_MARK = "_tftraining_keeps_functions"  # of the class of contexts that is extended
PATIENCE_SECONDS = 5.0  # for the other holders of a handle, such as the functions of a dataset that dies with it
PAUSE_SECONDS = 0.02
END_SECONDS = 2.0  # for which the end of the process waits; launcher.terminationGraceSeconds is 5 by default
_HOLDERS = 2  # of a reference that nobody else holds: a list, and the call that counts


class Release:
    """Drops references in threads of its own. `take` may be called by a destructor, at any time and in any thread."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()  # the one that a destructor may use
        self._dispatcher: threading.Thread | None = None
        self._threads: list[threading.Thread] = []
        self._held: set[int] = set()  # the identity of each handle in the queue or in a thread
        self._waiting: dict[int, list[Any]] = {}  # what each thread drops: its handle at last, functions before it
        self._ending = threading.Event()
        self._unnoticed = False  # nobody can notice when an iterator of this process ends

    def allow(self) -> None:
        """Take references: all datasets are looked at from now on."""
        self._unnoticed = True

    def forbid(self) -> None:
        """Take no more references: somebody may notice the end of an iterator."""
        self._unnoticed = False

    def start(self) -> None:
        """Take references from now on; the end of the process waits for them. A second call does nothing."""
        if self._dispatcher is None and not self._ending.is_set():
            dispatcher = threading.Thread(target=self._dispatch, name=NAME, daemon=True)
            with contextlib.suppress(RuntimeError):  # the limit of threads: iterators die as they would without us
                dispatcher.start()
                self._dispatcher = dispatcher

    def take(self, reference: Any) -> None:
        """Drop a reference later. The caller drops its own at once, in a process that has forked or ends, too."""
        if not self._unnoticed or id(reference) in self._held:
            return
        if self._dispatcher is not None and self._pid == os.getpid():
            self._held.add(id(reference))
            held = [reference]
            self._waiting[id(held)] = held
            self._queue.put(held)

    def keep(self, removal: Callable[[], None]) -> None:
        """Call a function when all threads are done that hold a handle now; at once if there are none."""
        last = _Last(removal)
        if self._pid == os.getpid():
            for held in [*self._waiting.values()]:
                held.insert(0, last)

    def finish(self) -> None:
        """Take no more, and wait until all references are dropped, for END_SECONDS at most."""
        dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None and self._pid == os.getpid():
            self._ending.set()
            self._queue.put(None)
            deadline = time.monotonic() + END_SECONDS
            dispatcher.join(END_SECONDS)
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _dispatch(self) -> None:
        """Start a thread for each reference: one that waits must not keep the buffers of the next one."""
        while (held := self._queue.get()) is not None:
            thread = threading.Thread(target=self._drop, args=(held,), name=NAME, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the limit of threads
                self._drop(held)
            else:
                self._threads = [*(each for each in self._threads if each.is_alive()), thread]

    def _drop(self, held: list[Any]) -> None:
        """Drop the handle at the end of the list, as its last holder if the others let go of it soon, then the rest."""
        deadline, identity = time.monotonic() + PATIENCE_SECONDS, id(held[-1])
        while sys.getrefcount(held[-1]) > _HOLDERS and time.monotonic() < deadline:
            if self._ending.wait(PAUSE_SECONDS):
                break
        self._held.discard(identity)  # while it is held, for another one may have its identity afterwards
        while held:  # by now, more may be in it
            held.pop()
        self._waiting.pop(id(held), None)


class _Last:
    """Calls a function when its last holder lets go of it."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


_release: Release | None = None  # of this process


def install() -> None:
    """Extend TensorFlow, now or when it is imported."""
    global _release  # noqa: PLW0603  # one process
    _release = Release()
    after_import(frozenset(SURFACES), functools.partial(_extend, _release))
    after_import(frozenset({_DATASETS}), functools.partial(_watch, _release))


def finish() -> None:
    """Wait for the threads; at the end of the process."""
    if _release is not None:
        _release.finish()


def _extend(release: Release, module: Any) -> None:
    surface = SURFACES[module.__name__]
    try:
        if surface.holds({**sys.modules, module.__name__: module}):
            iterators, _ = surface.parts
            _wrap(release, getattr(module, iterators.path), iterators.uses)
            _keep_functions(release, sys.modules[_FUNCTIONS.module].Context)
    except Exception as error:
        sys.stderr.write(f"tftraining: {_LOST}: {type(error).__name__}: {error}\n")


def _wrap(release: Release, cls: Any, attribute: str) -> None:
    """Make objects of `cls` hand over their handle when they die."""
    if "__del__" in cls.__dict__:
        raise AttributeError(f"{cls.__name__} has a destructor of its own")
    begin: Callable[..., None] = cls.__init__

    @functools.wraps(begin)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        release.start()
        begin(self, *args, **kwargs)

    def end(self: Any) -> None:
        handle = self.__dict__.get(attribute)
        if hasattr(handle, "_numpy_internal"):  # not the symbol of a handle in a graph
            release.take(handle)

    cls.__init__ = initialize
    cls.__del__ = end


def _keep_functions(release: Release, cls: Any) -> None:
    """Let contexts keep a function for as long as a thread waits that may be the last holder of it. Once a process."""
    if _MARK in cls.__dict__:
        return
    remove: Callable[..., None] = cls.remove_function

    @functools.wraps(remove)
    def remove_later(self: Any, name: str) -> None:
        release.keep(functools.partial(remove, self, name))

    cls.remove_function = remove_later
    setattr(cls, _MARK, True)


def _watch(release: Release, module: Any) -> None:
    """Look at each dataset and each function of one when it is made."""
    try:
        if WATCHED.holds({**sys.modules, _DATASETS: module}):
            functions = sys.modules[WATCHED.parts[1].module].StructuredFunctionWrapper
            _look_behind(release, module.DatasetV2, _is_harmless)
            _look_behind(release, functions, _is_harmless_function)
            release.allow()
    except Exception as error:
        sys.stderr.write(f"tftraining: {_LOST}: {type(error).__name__}: {error}\n")


def _look_behind(release: Release, cls: Any, is_harmless: Callable[[Any], bool]) -> None:
    """Look at each object of a class behind its `__init__`, which may be that of a class derived from it."""
    begin: Callable[..., None] = cls.__init__

    @functools.wraps(begin)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        try:
            harmless = is_harmless(self)
        except Exception:  # the symbol of a tensor in a graph, another version
            harmless = False
        if not harmless:
            release.forbid()

    cls.__init__ = initialize


def _is_harmless(dataset: Any) -> bool:
    kind = type(dataset)
    name = kind.__name__.strip("_")
    if not kind.__module__.startswith("tensorflow.python.data."):
        return False
    if name == "CacheDataset":
        return not dataset._filename.numpy()
    return name in input_kind.DATASETS or name in _OF_STRATEGIES


def _is_harmless_function(wrapper: Any) -> bool:
    """Whether the operations of a function leave nothing behind, and run no Python."""
    nodes = input_kind.nodes_of(wrapper.function.graph.as_graph_def())
    return not any("PyFunc" in op or input_kind.is_unknown(op) for op in {node.op for node in nodes})

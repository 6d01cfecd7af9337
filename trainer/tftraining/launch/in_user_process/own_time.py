"""Measures the own time of a member of a gang in Keras' `fit`: the part of each step in which it does not wait for the
others.

All members of a synchronous training make equally many steps a second. The one that the others wait for shows in how
long each waits between its last gradient and the end of the gradients' all-reduce; also in the all-reduce before, by
which the members agree that all have input, and in those of the metrics behind. Timestamps in the graph measure these
waits, and the wait for the own input. They delay neither, and change no value.

Only where it is known what they measure: in `fit` of a MultiWorkerMirroredStrategy on CPUs (a GPU has not computed a
gradient when its kernel is queued), outside of XLA (which has no clock), with one all-reduce of gradients a step. The
first step of each epoch, callbacks and evaluations do not count. With deterministic operations TensorFlow refuses its
clock, so there is none. It must never fail, and must not import TensorFlow.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .import_hook import after_import
from .surface import Part, Surface

REDUCTION, ITERATOR = (
    "tensorflow.python.distribute.cross_device_ops",
    "tensorflow.python.data.ops.iterator_ops",
)
_XLA, _CONFIG = "tensorflow.python.ops.control_flow_util", "tensorflow.python.framework.config"
_LOST = "no search for a slow member"
SURFACES = {
    REDUCTION: Surface(
        _LOST,
        (
            Part(
                REDUCTION,
                "CollectiveAllReduce.batch_reduce_implementation",
                "self reduce_op value_destination_pairs options",
                "_all_reduce_per_replica_values",
            ),
            Part(REDUCTION, "CollectiveAllReduce._all_reduce_per_replica_values", uses="_all_reduce"),
            Part(REDUCTION, "CollectiveAllReduce._all_reduce", "self reduce_op value replica_id options", "_devices"),
            Part(_XLA, "GraphOrParentsInXlaContext", "graph"),
            Part(_CONFIG, "is_op_determinism_enabled", ""),
        ),
    ),
    ITERATOR: Surface(
        _LOST,
        (
            Part(ITERATOR, "OwnedIterator.get_next", "self"),
            Part(ITERATOR, "OwnedIterator.get_next_as_optional", "self"),
        ),
    ),
}
LOOK_SECONDS = 0.25  # between two looks at the clocks of the graph, of which each costs 0.1 ms
_WAIT, _INPUT, _NAME = 0, 1, "tftraining_own_time"


class OwnTime:
    """The clocks of this process. `totals`: the steps that were measured, the seconds of own time in them, and those of
    these in which the process waited for its input."""

    def __init__(self) -> None:
        self.totals = (0, 0.0, 0.0)
        self._in_step = False  # of `fit`: only functions that are traced there are measured
        self._handle: Any = None  # of seconds and counts in the graph: [wait, input, waits, inputs]
        self._before = [0.0] * 4
        self._is_broken = False
        self._is_fresh = True  # the next step is the first one of an epoch
        self._first, self._began = 0, 0.0
        self._steps, self._seconds, self._next_look = 0, 0.0, 0.0

    # In `fit`.

    def begin_fit(self, model: Any) -> None:
        """A `fit` of this model begins. A function with clocks that was traced before the program has asked for
        deterministic operations would fail: the model gets another one."""
        self._is_fresh = True
        try:
            if self._handle is not None and _is_deterministic():
                model.make_train_function(force=True)
        except Exception as error:
            self._stop(error)

    def end_fit(self) -> None:
        """Functions that are traced from now on are those of the program."""
        self._in_step = False

    def begin_epoch(self) -> None:
        """Forget what has not been added up: an evaluation may follow the last step of an epoch."""
        self._is_fresh = True

    def begin_step(self, batch: int) -> None:
        """A step begins, behind all callbacks."""
        self._first, self._began, self._in_step = batch, time.perf_counter(), True

    def end_step(self, batch: int) -> None:
        """The steps up to this one are done, before any callback."""
        self._in_step = False
        if self._handle is None:
            return
        now = time.perf_counter()
        self._steps += batch - self._first + 1
        self._seconds += now - self._began
        if self._is_fresh or now >= self._next_look:
            try:
                self._add_up()
            except Exception as error:
                self._stop(error)
            self._next_look = now + LOOK_SECONDS

    def _add_up(self) -> None:
        counters = self._read()
        wait, waited, waits, inputs = (now - before for now, before in zip(counters, self._before))
        steps, own = self._steps, self._seconds - wait
        is_known = not self._is_fresh and waits == steps and inputs >= steps and own > 0 <= min(wait, waited)
        if is_known:
            total, seconds, of_input = self.totals
            self.totals = total + steps, seconds + own, of_input + min(waited, own)
        self._before, self._is_fresh, self._steps, self._seconds = counters, False, 0, 0.0

    def _read(self) -> list[float]:
        tensorflow = sys.modules["tensorflow"]
        value = tensorflow.raw_ops.ReadVariableOp(resource=self._handle, dtype=tensorflow.float64)
        return [float(each) for each in value.numpy()]

    def _stop(self, error: Exception) -> None:
        self._handle, self._is_broken = None, True
        sys.stderr.write(f"tftraining: {_LOST}: {type(error).__name__}: {error}\n")

    # In the graph.

    def timed(self, place: int, given: Any, call: Callable[[], Any], counts: bool = True) -> Any:
        """The result of a call that adds to a graph, with the time from when all `given` tensors are there to its end
        added to the counters at `place`. A call without any begins when the clock has been read. TensorFlow reads the
        clocks of a function in the order in which they were added, so no wait begins before the last one's end.
        All-reduces of metrics are no steps: only one that `counts` is."""
        try:
            began, tensors = self._begin(given)
        except Exception as error:
            self._stop(error)
            began = None
        if began is None:
            return call()
        tensorflow = sys.modules["tensorflow"]
        with tensorflow.control_dependencies([] if tensors else [began]):
            result = call()
        try:
            with tensorflow.control_dependencies(_tensors(result)), tensorflow.device("/device:CPU:0"):
                now = tensorflow.timestamp()
                seconds, count = [0.0] * 4, [0.0] * 4
                seconds[place], count[place + 2] = 1.0, float(counts)
                kind = tensorflow.float64
                value = (now - began) * tensorflow.constant(seconds, kind) + tensorflow.constant(count, kind)
                tensorflow.raw_ops.AssignAddVariableOp(resource=self._handle, value=value)
        except Exception as error:
            self._stop(error)
        return result

    def _begin(self, given: Any) -> tuple[Any, list[Any]]:
        """The time when all `given` tensors are there, and these; None where nothing is measured."""
        tensorflow = sys.modules["tensorflow"]
        if not self._in_step or self._is_broken or tensorflow.executing_eagerly() or _is_deterministic():
            return None, []
        graph = tensorflow.compat.v1.get_default_graph()
        if not graph.building_function or sys.modules[_XLA].GraphOrParentsInXlaContext(graph):
            return None, []
        if not self._make_counters(tensorflow):
            return None, []
        tensors = _tensors(given)
        with tensorflow.control_dependencies(tensors), tensorflow.device("/device:CPU:0"):
            return tensorflow.timestamp(), tensors

    def _make_counters(self, tensorflow: Any) -> bool:
        """Whether there are counters: without eager execution nobody would initialize them. Not a tf.Variable: those
        are counted, copied and saved."""
        if self._handle is None:
            with tensorflow.init_scope(), tensorflow.device("/device:CPU:0"):
                if not tensorflow.executing_eagerly():
                    return False
                kind, shape = tensorflow.float64, [4]
                handle = tensorflow.raw_ops.VarHandleOp(dtype=kind, shape=shape, shared_name=_NAME)
                tensorflow.raw_ops.AssignVariableOp(resource=handle, value=tensorflow.zeros(shape, kind))
                self._handle = handle
        return True


def _is_deterministic() -> bool:
    return bool(sys.modules[_CONFIG].is_op_determinism_enabled())


def _tensors(nested: Any) -> list[Any]:
    tensorflow = sys.modules["tensorflow"]
    found = tensorflow.nest.flatten(nested, expand_composites=True)
    return [each for each in found if isinstance(each, tensorflow.Tensor)]


def install(clock: OwnTime) -> None:
    """Extend TensorFlow, now or when it is imported: both modules, or none."""
    awaited = set(SURFACES)

    def extend(module: Any) -> None:
        awaited.discard(module.__name__)
        modules = {**sys.modules, module.__name__: module}
        if not awaited and all(each.holds(modules) for each in SURFACES.values()):
            _extend_reduction(clock, modules[REDUCTION].CollectiveAllReduce)
            _extend_iterator(clock, modules[ITERATOR].OwnedIterator)

    after_import(frozenset(SURFACES), extend)


def _extend_reduction(clock: OwnTime, cls: Any) -> None:
    batch_reduce, reduce = cls.batch_reduce_implementation, cls._all_reduce
    of_gradients = threading.local()  # `present` in the all-reduce of many values

    @functools.wraps(batch_reduce)
    def batch_reduce_implementation(self: Any, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        of_gradients.present = True
        try:
            return batch_reduce(self, reduce_op, value_destination_pairs, options)
        finally:
            of_gradients.present = False

    @functools.wraps(reduce)
    def _all_reduce(self: Any, reduce_op: Any, value: Any, replica_id: Any, options: Any) -> Any:
        call = functools.partial(reduce, self, reduce_op, value, replica_id, options)
        devices = [str(each) for each in self._devices]
        on_cpu = len(devices) == 1 and "CPU:" in devices[0].upper()
        return clock.timed(_WAIT, value, call, getattr(of_gradients, "present", False)) if on_cpu else call()

    cls.batch_reduce_implementation, cls._all_reduce = batch_reduce_implementation, _all_reduce


def _extend_iterator(clock: OwnTime, cls: Any) -> None:
    def wrap(name: str) -> None:
        method = getattr(cls, name)

        @functools.wraps(method)
        def timed(self: Any) -> Any:
            return clock.timed(_INPUT, (), functools.partial(method, self))

        setattr(cls, name, timed)

    wrap("get_next")
    wrap("get_next_as_optional")

"""The random numbers of Dropout and its like in `fit`: the same as TensorFlow's own, from a position that is known.

TensorFlow keeps how far a stateful random operation has come inside its kernel, where nothing can read or set it, so
after a restart Dropout would begin its sequence anew. While a train function is traced, such an operation is replaced
by the stateless one of the same generator (Philox) with the same key, and a counter in a variable: the numbers are the
same, to the last bit, and the counter can be saved. Only operations with a seed are replaced, because the numbers of
others differ from start to start anyway. Must never import TensorFlow, nor change anything outside a train function.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

from ..surface import Part, Surface
from . import variable_count
from .input_kind import RANDOM, nodes_of
from .variable_values import seeds_of

_OPS = "tensorflow.python.ops.gen_random_ops"
_STATELESS = "tensorflow.python.ops.gen_stateless_random_ops_v2"
_VARIABLES = "tensorflow.python.ops.resource_variable_ops"
# Each stateful operation, and the stateless one with the same numbers.
PAIRS = {
    "random_uniform": "stateless_random_uniform_v2",
    "random_standard_normal": "stateless_random_normal_v2",
    "truncated_normal": "stateless_truncated_normal_v2",
}
# Operations that are not replaced: at a restart their numbers begin anew, and the user is told.
OTHERS = ("random_uniform_int", "random_shuffle", "multinomial", "random_gamma", "random_poisson_v2")
SURFACE = Surface(
    "random numbers such as those of Dropout begin anew at a restart",
    (
        *(Part(_OPS, each, "shape dtype seed seed2 name") for each in PAIRS),
        *(Part(_OPS, each) for each in OTHERS),
        *(Part(_STATELESS, each, "shape key counter alg dtype name") for each in PAIRS.values()),
        Part(_VARIABLES, "ResourceVariable"),
    ),
)
PHILOX = 1
SAMPLES = 256  # of 128 bits, which the kernels of stateful operations reserve for each number
MOST = 1000  # counters that a copy has room for
_GRAPH = "train_function"  # the name that tf_keras gives to the function of a step
_CONTROL_FLOW = ("CondBranchFuncGraph", "WhileBodyFuncGraph", "WhileCondFuncGraph")
OF_PROGRAM = "the random numbers of Python and NumPy"
_SEED = "seed-"  # the begin of a key: the state of a generator of Keras 3, which its own backups do not have
_TRIAL = "tmp"  # the graph in which AutoGraph tries the body of a loop, and which it drops
_MARK = "_tftraining_counts"
_EARLIER = "an earlier fit without copies has traced the step"
_ONLY = "only seeded uniform and normal numbers of the step itself can go on"

_present: RandomNumbers | None = None  # of the `fit` that runs
_of_models: weakref.WeakKeyDictionary[Any, RandomNumbers] = weakref.WeakKeyDictionary()


def of_model(model: Any) -> RandomNumbers:
    """The counters of this model; none without one."""
    if model is None:
        return RandomNumbers()
    return _of_models.setdefault(model, RandomNumbers(weakref.ref(model)))


def of_program() -> int:
    """Changes when the program draws from Python's or NumPy's own generator, whose state no backup has."""
    found = sys.modules.get("numpy.random")
    kind, keys, *place = found.get_state() if found is not None else ("", b"")
    return hash((random.getstate(), kind, bytes(keys), *place))


class RandomNumbers:
    """The counters of one model: its train function keeps them from one `fit` to the next."""

    def __init__(self, model: Callable[[], Any] = lambda: None) -> None:
        self._model = model
        self._counters: list[tuple[str, Any]] = []
        self._waiting: dict[str, list[int]] = {}  # places that are known, and that no trace has asked for yet
        self._function: weakref.ref[Any] | None = None  # the train function that has the counters
        self._input = ""
        self._resumes = self._restored = False
        self.depends_on_batch = False  # a member may draw more numbers than another one
        self._uncounted = ""  # why the random operations of this step cannot be counted
        self.begins_anew = self.why = ""  # an operation of the training whose numbers begin anew at a restart

    def begin(self, function: Any = None, element_spec: object = "", *, counts: bool = True) -> None:
        """Count from now on, in this train function and for an input of this kind, which has a trace of its own.
        `counts`: it is one of tf_keras. Keras 3 keeps the seeds of its own layers in variables."""
        global _present  # noqa: PLW0603  # one process, one training at a time
        known = self._function is not None and self._function() is function
        traced = getattr(function, "experimental_get_tracing_count", int)() > 0
        self._uncounted = "" if counts and (known or not traced) else _EARLIER if counts else _ONLY
        if self._function is not None and not known:  # it was compiled anew, and counts from 0
            self._counters = []
            self._waiting = self._waiting if self._restored else {}
        self._function = None if function is None else weakref.ref(function)
        self._input = str(element_spec)
        self._restored = False
        _present = self

    def end(self) -> None:
        """The operations that are traced from now on are left alone."""
        global _present  # noqa: PLW0603
        self._resumes = False
        if _present is self:
            _present = None

    def look_at(self, step: Any) -> None:
        """Note a seeded operation in the traced `step` that nothing counts."""
        if not self._uncounted:
            return
        for node in nodes_of(step.graph.as_graph_def()):
            if node.op in RANDOM and (node.attr["seed"].i or node.attr["seed2"].i):
                self.begins_anew, self.why = node.op, self._uncounted

    def variables(self) -> list[Any]:
        """The variables of the counters."""
        return [counter for _, counter in self._counters]

    def offsets(self) -> list[list[Any]]:
        """The key of each operation, in the order of the traces, and how far it has come; also of those that the copy
        had and no trace has asked for yet."""
        waiting = [[key, offset] for key, offsets in self._waiting.items() for offset in offsets]
        seeds = [
            [f"{_SEED}{place}-{number}", int(value)]
            for place, seed in enumerate(seeds_of(self._model()))
            for number, value in enumerate(seed.numpy().ravel())
        ]
        return [*([key, int(counter.numpy())] for key, counter in self._counters), *waiting, *seeds]

    def draws(self) -> list[float]:
        """How far each operation has come: small whole numbers."""
        return [float(counter.numpy()) / SAMPLES for _, counter in self._counters]

    def begins_elsewhere(self) -> None:
        """The copy or the backup says how many numbers another member has drawn, and not how many this one has."""
        self.begins_anew = "the step"
        self.why = "the copy or backup has the place of another worker, whose part of a batch may have another size"

    def resume(self, offsets: list[list[Any]], *, within: bool = True) -> None:
        """Let operations begin where those of the copy had come to. `within`: inside a `fit`, so the copy has each of
        them."""
        self._waiting = {}
        self._resumes, self._restored = within, True
        seeds = {str(key): int(value) for key, value in offsets if str(key).startswith(_SEED)}
        for place, seed in enumerate(seeds_of(self._model())):
            told = [seeds.get(f"{_SEED}{place}-{number}", value) for number, value in enumerate(seed.numpy().ravel())]
            seed.assign(told)
        for key, offset in offsets:
            if str(key) in seeds:
                continue
            self._waiting.setdefault(str(key), []).append(int(offset))
        for key, counter in self._counters:  # an earlier `fit` of this process has traced them
            if waiting := self._waiting.get(key):
                counter.assign(waiting.pop(0))

    def has_room(self) -> bool:
        """Whether a copy has room for one more counter."""
        return len(self._counters) + sum(map(len, self._waiting.values())) < MOST

    def counter(self, operation: str, seeds: tuple[int, int], scope: str) -> Any:
        """A new counter for an operation: its place in the code is told by the names of the layers, and the input."""
        tensorflow = sys.modules["tensorflow"]
        told = f"{operation} {seeds} {scope} {self._input}"
        key = hashlib.sha256(told.encode()).hexdigest()[:16]
        waiting = self._waiting.get(key)
        if not waiting and self._resumes:
            self.begins_anew, self.why = operation, "the training of the copy had another step or input"
        begin = waiting.pop(0) if waiting else 0
        with tensorflow.init_scope(), tensorflow.device("CPU:0"):
            # Not tf.Variable: the strategy would make it a variable of all members.
            variable = sys.modules[_VARIABLES].ResourceVariable(
                tensorflow.constant(begin, tensorflow.int64), trainable=False, name="tftraining_random"
            )
        variable_count.forget_one()
        self._counters.append((key, variable))
        return variable


def extend() -> None:
    """Extend TensorFlow, once. SURFACE holds."""
    module = sys.modules[_OPS]
    if hasattr(module, _MARK):
        return
    setattr(module, _MARK, True)
    for stateful, stateless in PAIRS.items():
        setattr(module, stateful, _counted(getattr(module, stateful), getattr(sys.modules[_STATELESS], stateless)))
    for other in OTHERS:
        setattr(module, other, _noticed(getattr(module, other)))


def _noticed(stateful: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stateful)
    def numbers(*args: Any, **kwargs: Any) -> Any:
        _notice(stateful, kwargs.get("seed") or kwargs.get("seed2"))
        return stateful(*args, **kwargs)

    return numbers


def _notice(stateful: Callable[..., Any], seeded: object) -> None:
    """Note that a training uses numbers that begin anew. Those without a seed differ from start to start anyway."""
    if _present is not None and seeded and _graph_name() != _TRIAL:
        full = stateful.__name__ in PAIRS and not _present.has_room()
        _present.begins_anew = stateful.__name__
        _present.why = f"the step has more than {MOST} of them" if full else _ONLY


def _counted(stateful: Callable[..., Any], stateless: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stateful)
    def numbers(shape: Any, dtype: Any, seed: int = 0, seed2: int = 0, name: Any = None) -> Any:
        if _present is None or not (seed or seed2) or not _in_train_function() or not _present.has_room():
            _notice(stateful, seed or seed2)
            return stateful(shape, dtype, seed, seed2, name)
        tensorflow = sys.modules["tensorflow"]
        shape = tensorflow.convert_to_tensor(shape)
        scope = tensorflow.compat.v1.get_default_graph().get_name_scope()
        counter = _present.counter(stateful.__name__, (seed, seed2), scope)
        fixed = tensorflow.get_static_value(shape) is not None and _graph_name() == _GRAPH
        _present.depends_on_batch |= not fixed
        count = tensorflow.reduce_prod(tensorflow.cast(shape, tensorflow.int64)) * SAMPLES
        begin = counter.assign_add(count, read_value=True) - count
        keys = tensorflow.constant([seed % 2**64], tensorflow.uint64)
        place = tensorflow.stack(
            [tensorflow.cast(begin, tensorflow.uint64), tensorflow.constant(seed2 % 2**64, tensorflow.uint64)]
        )
        return stateless(shape=shape, key=keys, counter=place, alg=PHILOX, dtype=dtype, name=name)

    return numbers


def _graph_name() -> str:
    return str(getattr(sys.modules["tensorflow"].compat.v1.get_default_graph(), "name", ""))


def _in_train_function() -> bool:
    """Whether operations are being added to Keras' train function itself, or to a loop or branch of it."""
    graph = sys.modules["tensorflow"].compat.v1.get_default_graph()
    while type(graph).__name__ in _CONTROL_FLOW:
        graph = graph.outer_graph
    return getattr(graph, "name", "") == _GRAPH

"""Decides from the graph of an input whether a restarted training can return to its position in it.

A graph is followed only through datasets and operations that are known to give the same elements in the same order
after each start. What is not in these lists is not trusted: such a training resumes at the begin of an epoch. Must
never import TensorFlow, and never read an element.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..surface import Part, Surface
from .shuffle_seed import OWN_SEED

STEP, DRAWN_ANEW, EPOCH, STORAGE = "Step", "StepDrawnAnew", "Epoch", "Storage"  # where a `fit` resumes

# Datasets whose iterator makes the iterators of its inputs at once, one of each.
_SIMPLE = frozenset(
    {
        "BatchDataset",
        "ParallelBatchDataset",
        "PaddedBatchDataset",
        "MapDataset",
        "ParallelMapDataset",
        "FilterDataset",
        "PrefetchDataset",
        "OptionsDataset",
        "TakeDataset",
        "SkipDataset",
        "ShardDataset",
        "ZipDataset",
        "UnbatchDataset",
        "RebatchDataset",
        "RestructuredDataset",  # beneath the two before: the same elements, with another structure
        "FlatMapDataset",
        "InterleaveDataset",
        "ParallelInterleaveDataset",
    }
)
# Those that make an iterator of an input when they come to it, perhaps several times.
_LATE = frozenset({"RepeatDataset", "ConcatenateDataset"})
_FILES = frozenset(
    {
        "TFRecordDataset",
        "TFRecordDatasetV2",
        "TextLineDataset",
        "TextLineDatasetV2",
        "FixedLengthRecordDataset",
        "FixedLengthRecordDatasetV2",
    }
)
_SOURCES = _FILES | {"TensorSliceDataset", "TensorDataset", "RangeDataset", "SparseTensorSliceDataset"}
_SHUFFLE, _CACHE = "ShuffleDataset", "CacheDataset"
DATASETS = _SIMPLE | _LATE | _SOURCES | {_SHUFFLE, _CACHE}
_CUTS = frozenset({"TakeDataset"})  # they may end before their input does
_FUNCTIONS = ("_map_func", "_predicate")
_OPS = "tensorflow.python.data.ops"
# What is looked up in a dataset, and would be taken for absent under another name.
SURFACE = Surface(
    "a restart resumes at the begin of an epoch",
    (
        Part(f"{_OPS}.shuffle_op", "_ShuffleDataset", uses="_seed _seed2 _reshuffle_each_iteration"),
        Part(f"{_OPS}.map_op", "_MapDataset", uses="_map_func"),
        Part(f"{_OPS}.map_op", "_ParallelMapDataset", uses="_map_func _deterministic"),
        Part(f"{_OPS}.batch_op", "_ParallelBatchDataset", uses="_deterministic"),
        Part(f"{_OPS}.filter_op", "_FilterDataset", uses="_predicate"),
        Part(f"{_OPS}.flat_map_op", "_FlatMapDataset", uses="_map_func"),
        Part(f"{_OPS}.interleave_op", "_InterleaveDataset", uses="_map_func"),
        Part(f"{_OPS}.interleave_op", "_ParallelInterleaveDataset", uses="_map_func"),
        Part(f"{_OPS}.from_tensor_slices_op", "_TensorSliceDataset", uses="_tensors"),
    ),
)
_PARTS = {part.path: part for part in SURFACE.parts}
# Operations that TensorFlow calls stateful, and whose result depends on their inputs alone.
_HARMLESS = frozenset(
    {
        "StatefulPartitionedCall",
        "If",
        "While",
        "Assert",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "TensorSliceDataset",
        "TensorDataset",
        "RangeDataset",
        "TFRecordDataset",
        "TFRecordDatasetV2",
        "TextLineDataset",
        "FixedLengthRecordDatasetV2",
    }
)
RANDOM = frozenset(
    {
        "RandomUniform",
        "RandomUniformInt",
        "RandomStandardNormal",
        "TruncatedNormal",
        "RandomShuffle",
        "Multinomial",
        "RandomGamma",
        "SampleDistortedBoundingBox",
        "SampleDistortedBoundingBoxV2",
        "ParameterizedTruncatedNormal",
        "RandomPoissonV2",
    }
)
BY_PROGRAM = "the program shares out the input itself"
_DIGESTED = 1 << 16  # elements of a tensor: of a larger one so many are compared


@dataclass(frozen=True)
class Kind:
    """Where a training with this input resumes, and why not at the step ("" if it does).

    `drops`: each iterator shuffles anew, so those of earlier epochs have to be made again. `digest` is equal for equal
    graphs. `orders`: the datasets that draw an order from a seed each time they are read. `shared_out`: why another
    number of workers reads other examples up to a step; "" if it does not.
    """

    at: str
    reason: str = ""
    drops: bool = False
    digest: str = ""
    orders: tuple[Any, ...] = ()
    shared_out: str = ""


class _Unknown(Exception):
    """The message says what in the input is not known to be reproducible."""


def kind_of(dataset: Any, several: bool) -> Kind:
    """The kind of an input, whose epochs may have `several` iterators. Never raises."""
    try:
        walks = [_Walk(each, several) for each in _roots(dataset)]
    except _Unknown as unknown:
        return Kind(EPOCH, str(unknown))
    except Exception as error:
        return Kind(EPOCH, f"the input cannot be examined: {type(error).__name__}: {error}".splitlines()[0])
    told = json.dumps([walk.told for walk in walks], default=str)
    drawn = next((walk.drawn for walk in walks if walk.drawn), "")
    drops = any(walk.drops for walk in walks)
    orders = tuple(each for walk in walks for each in walk.orders)
    by_function = isinstance(getattr(dataset, "_datasets", None), list)
    digest, shared_out = hashlib.sha256(told.encode()).hexdigest(), BY_PROGRAM if by_function else _shared_out(walks)
    return Kind(DRAWN_ANEW if drawn else STEP, drawn, drops, digest, orders, shared_out)


def _shared_out(walks: list[_Walk]) -> str:
    """Why another number of workers reads other examples up to a step. A strategy shares out batches, or files where
    the input reads files; with any other policy the program does it."""
    policies = sys.modules["tensorflow"].data.experimental.AutoShardPolicy
    for walk in walks:
        if "ShardDataset" in walk.names or walk.policy not in (policies.AUTO, policies.DATA, policies.FILE):
            return BY_PROGRAM
        if walk.policy == policies.FILE or (walk.policy == policies.AUTO and walk.names & _FILES):
            return "the files of the input are shared out"
    return ""


def reads_any(dataset: Any, orders: tuple[Any, ...]) -> bool:
    """Whether a dataset reads one of these datasets."""
    pending = [dataset]
    for each in pending:
        if any(each is order for order in orders):
            return True
        pending += each._inputs()
    return False


def _roots(dataset: Any) -> list[Any]:
    """The datasets of the program behind an input."""
    if isinstance(of_function := getattr(dataset, "_datasets", None), list):
        return of_function
    root = getattr(dataset, "_original_dataset", dataset)
    if not isinstance(root, sys.modules["tensorflow"].data.Dataset):
        raise _Unknown(f"{type(root).__name__} is no tf.data.Dataset")
    return [root]


class _Walk:
    """The examination of one graph. `several`: epochs may have iterators of their own."""

    def __init__(self, root: Any, several: bool) -> None:
        self.told: list[object] = []
        self.drawn = ""  # what is drawn anew at each start
        self.drops = False
        self.orders: list[Any] = []
        self.names: set[str] = set()
        self.policy = root.options().experimental_distribute.auto_shard_policy
        self._several = several
        self._below_cache = False  # a dataset that shuffles anew for each iterator is filled into a cache
        if root.options().deterministic is False:
            raise _Unknown("the option `deterministic` of the input is False")
        self._visit(root, ())
        if self.orders and _is_shared(root, self.orders):
            raise _Unknown("another dataset reads the same `shuffle`, so its order depends on both")
        if self.drops and self._below_cache:
            raise _Unknown("the input shuffles both before and behind `cache`")

    def _visit(self, dataset: Any, above: tuple[str, ...]) -> None:
        """Examine a dataset and its inputs; `above` are the kinds of those that read it."""
        name = _name(dataset)
        part = _PARTS.get(type(dataset).__name__)
        if part is not None and (missing := part.missing(sys.modules, {})):
            raise _Unknown(f"this TensorFlow is not known: {missing}")
        if name == _SHUFFLE:
            self._shuffle(dataset, above)
        elif name not in DATASETS:
            raise _Unknown(f"{name} is not known to be reproducible")
        if _is_sloppy(name, dataset):
            raise _Unknown(f"{name} is not deterministic")
        self.names.add(name)
        self.told.append([name, *_values(dataset)])
        for function in _functions(dataset):
            self._function(name, function, above)
        for each in _inputs(dataset):
            self._visit(each, (*above, name))

    def _shuffle(self, dataset: Any, above: tuple[str, ...]) -> None:
        if not (int(dataset._seed) or int(dataset._seed2)):
            self.drawn = "`shuffle` has no seed"
        if dataset._reshuffle_each_iteration is False:
            return
        self.orders.append(dataset)
        if not self._several:
            return
        if _CACHE in above:
            self._below_cache = True
            if _CUTS.intersection(above):
                raise _Unknown("`cache` behind a `shuffle` may never be complete")
        elif _SHUFFLE in above:
            raise _Unknown("a `shuffle` behind a `shuffle` lets the first one draw its order later")
        elif late := next((each for each in above if each in _LATE), ""):
            raise _Unknown(f"{late} behind a `shuffle` draws an order more than once in an epoch")
        else:
            self.drops = True

    def _function(self, name: str, function: Any, above: tuple[str, ...]) -> None:
        """Examine the operations of a function that is called for each element."""
        graph = function.function.graph.as_graph_def()
        nodes = nodes_of(graph)
        self.names.update(node.op for node in nodes)
        if sloppy := next((node.op for node in nodes if _may_reorder(node)), ""):
            raise _Unknown(f"a function of {name} has a {sloppy} that may not be deterministic")
        for op in sorted({node.op for node in nodes}):
            if op in RANDOM:
                self._random(name, [node for node in nodes if node.op == op], above)
            elif is_unknown(op):
                raise _Unknown(f"a function of {name} uses {op}")
        self.told.append(sorted(node.op for node in nodes))

    def _random(self, name: str, nodes: list[Any], above: tuple[str, ...]) -> None:
        """A function that draws random numbers: their sequence goes on only with the iterator, one call at a time."""
        if name not in ("MapDataset", "FlatMapDataset", "ParallelMapDataset"):
            raise _Unknown(f"a function of {name} draws random numbers")
        if _CACHE in above:
            raise _Unknown("`cache` keeps random numbers of `map`")
        seeded = all(node.attr["seed"].i or node.attr["seed2"].i for node in nodes)
        if self._several or not seeded or name == "ParallelMapDataset":
            self.drawn = "`map` draws random numbers"


def _is_shared(root: Any, orders: list[Any]) -> bool:
    """Whether a dataset that is not of the graph of `root` reads a dataset of it that leads to one of the `orders`."""
    graph = [root]
    for each in graph:
        graph += _inputs(each)
    own = {id(part) for each in graph for part in (each, vars(each))}
    kind = sys.modules["tensorflow"].data.Dataset
    for each in graph:
        if each is root or not reads_any(each, tuple(orders)):
            continue
        for other in gc.get_referrers(each):
            is_dataset = isinstance(other, kind) or (isinstance(other, dict) and "_variant_tensor_attr" in other)
            if is_dataset and id(other) not in own:
                return True
    return False


def _name(dataset: Any) -> str:
    kind = type(dataset)
    if not kind.__module__.startswith("tensorflow.python.data."):
        raise _Unknown(f"{kind.__name__} is not of tf.data")
    return kind.__name__.strip("_")


def is_unknown(op: str) -> bool:
    """Whether an operation has a state, and is not known to give the same result each time but for RANDOM."""
    definition = sys.modules["tensorflow.python.framework.op_def_registry"].get(op)
    return definition is not None and definition.is_stateful and op not in _HARMLESS and op not in RANDOM


def nodes_of(graph: Any) -> list[Any]:
    """The operations of a GraphDef, and of all functions in it."""
    return [*graph.node, *(node for each in graph.library.function for node in each.node_def)]


def _is_sloppy(name: str, dataset: Any) -> bool:
    """Whether elements may come in another order each time."""
    if name != "ParallelInterleaveDataset":
        return getattr(dataset, "_deterministic", "") == "false"
    tensorflow = sys.modules["tensorflow"]  # the Python object does not keep it
    serialized = tensorflow.raw_ops.DatasetToGraphV2(input_dataset=dataset._variant_tensor, external_state_policy=1)
    graph = tensorflow.compat.v1.GraphDef.FromString(serialized.numpy())
    nodes = nodes_of(graph)
    return any(_may_reorder(node) for node in nodes if "Interleave" in node.op)


def _may_reorder(node: Any) -> bool:
    """Whether a dataset in a graph may have its elements in another order each time."""
    options = node.op == "OptionsDataset" or node.op.startswith("LegacyParallel") or "sloppy" in node.attr
    return options or node.attr["deterministic"].s == b"false"


def _inputs(dataset: Any) -> list[Any]:
    return list(dataset._inputs())


def _functions(dataset: Any) -> list[Any]:
    found = (getattr(dataset, name, None) for name in _FUNCTIONS)
    return [each for each in found if each is not None]


def _values(dataset: Any) -> Iterator[object]:
    """What tells a dataset from another one of its kind: counts, seeds, names of files, and the shapes of its data."""
    tensor = sys.modules["tensorflow"].Tensor
    for name, value in sorted(vars(dataset).items()):
        if name in ("_seed", "_seed2") and hasattr(dataset, OWN_SEED):
            continue  # it differs from member to member, and a copy may be of another one
        if name == "_filename":
            continue  # of `cache`: another file has the same elements
        if name == "_tensors":
            yield [[str(each.dtype), str(each.shape), _content(each)] for each in value]
        elif isinstance(value, tensor) and name != "_variant_tensor_attr":
            yield [name, str(value.dtype), str(value.shape), _content(value)]
        elif isinstance(value, (bool, int, str)) and not name.startswith("_tftraining"):
            yield [name, value]


def _content(tensor: Any) -> str:
    """A digest of a tensor's values, or of many of them; "" for one without raw bytes."""
    if tensor.dtype.name in ("variant", "resource") or not hasattr(tensor, "numpy"):
        return ""
    array = sys.modules["numpy"].asarray(tensor._numpy() if hasattr(tensor, "_numpy") else tensor.numpy())
    if array.size > _DIGESTED:
        array = array.reshape(-1)[:: array.size // _DIGESTED]
    data = json.dumps(array.tolist(), default=str).encode() if tensor.dtype.name == "string" else array.tobytes()
    return hashlib.sha256(data).hexdigest()

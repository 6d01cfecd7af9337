"""What tells whether the replicas of a training hold equal variables, made from a copy of them.

A digest of the bytes goes with each report. Where digests differ, the chief's launcher asks for a summary: variables
are cut into cells of equal length, and each cell is told by the sum of its values with fixed random signs and by how
far two such sums may lie apart. One changed value changes the sum by as much; what many values differ in their last
bits, as those of two kinds of processors do, adds up to the square root of their number, as their norm does. So the
sums are compared with a share of the norm (TOLERANCE). docs/memory-backups.md has the figures.

Must never import NumPy or TensorFlow: the program has imported them.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .variable_values import LAYERS, is_of, plain

COLUMNS = 509  # of 8 bytes: a prime, or rows of a matrix could change places unnoticed
CELLS = 1024  # in all replicas of a member; up to twice as many, because each variable begins a new piece
# Of the norm of a cell; by the type, for what differs from 1 in 1,000. Rounding errors of so many steps lie below it.
TOLERANCE, COARSE = 1e-3, {"float16": 0.06, "bfloat16": 0.5}
NOTHING = 1e-30  # a value below it is as good as 0: processors treat such numbers differently
NAMES = 16_384  # characters for the names of the cells
_METRIC, _SEEDS = "keras.src.metrics.metric", "keras.src.random.seed_generator"
_EXACT = 0xFFFFFF  # what a number of 4 bytes holds exactly

Variables = Sequence[tuple[str, Sequence[Any]]]  # a name, and an array for each local replica, or one for all of them


class ReplicaDigests:
    """The variables in one buffer that all replicas hold alike."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self.count = max((len(arrays) for _, arrays in variables), default=0)
        self.step = 0  # of the copy in the buffer
        self._words = [[_in_words(array) for array in _of(variables, replica)] for replica in range(self.count)]

    def digests(self) -> list[str]:
        """A digest of the bytes of each local replica."""
        return [_digest(words) for words in self._words]

    def summary(self) -> dict[str, Any]:
        """The step, the cells of all local replicas, and their names, as JSON types. Whole numbers come last: they
        share no cell with others."""
        length = max(1, -(-sum(arrays[0].size for _, arrays in self._variables) * self.count // CELLS))
        whole = [[each for each in self._variables if _is_whole(each[1][0]) == kind] for kind in (False, True)]
        owners = [[name for name, arrays in part for _ in _pieces(arrays[0], length)] for part in whole]
        together = -(-sum(map(len, owners)) * self.count // (2 * CELLS))  # so many pieces make a cell
        with sys.modules["numpy"].errstate(all="ignore"):
            cells = [
                cell
                for replica in range(self.count)
                for part in whole
                for cell in _cells(_of(part, replica), length, max(1, together))
            ]
        names = "\n".join(each.replace("\n", " ") for part in owners for each in part[:: max(1, together)])
        told = base64.b64encode(zlib.compress(names.encode(), 9)).decode()
        packed = base64.b64encode(b"".join(map(_pack, cells))).decode()
        names = told if len(told) <= NAMES else ""
        return {"step": self.step, "replicas": self.count, "values": packed, "names": names}


def _of(variables: Variables, replica: int) -> Iterator[Any]:
    return (arrays[min(replica, len(arrays) - 1)] for _, arrays in variables)


def _cells(arrays: Iterable[Any], length: int, together: int) -> Iterator[tuple[float, ...]]:
    """The sum of each cell, and how far it may lie from that of another replica."""
    signs = _signs(length)
    told = [_summarize(piece, signs) for array in arrays for piece in _pieces(array, length)]
    for begin in range(0, len(told), together):
        yield tuple(map(sum, zip(*told[begin : begin + together])))


def _in_words(array: Any) -> tuple[Any, Any]:
    """The bytes of an array as rows of words, and the rest of them."""
    data = array.reshape(-1).view("uint8")
    whole = data.size - data.size % (8 * COLUMNS)
    return data[:whole].view("uint64").reshape(-1, COLUMNS), data[whole:]


def _digest(parts: Iterable[tuple[Any, Any]]) -> str:
    """A digest by the sums of the columns: it reads as fast as memory does, where a cryptographic one takes longer than
    the copy."""
    digest, add = hashlib.blake2b(digest_size=8), sys.modules["numpy"].add.reduce
    for rows, rest in parts:
        if len(rows):
            digest.update(add(rows, axis=0))
        digest.update(rest)
    return digest.hexdigest()


def _pieces(array: Any, length: int) -> Iterator[Any]:
    flat = array.reshape(-1)
    return (flat[begin : begin + length] for begin in range(0, max(1, flat.size), length))


def _is_whole(array: Any) -> bool:
    return array.dtype.kind not in "fc" and "float" not in array.dtype.name  # bfloat16 is of no kind that NumPy knows


def _summarize(values: Any, signs: Any) -> tuple[float, float]:
    """The sum of the values with signs, and how far that of another replica may lie from it. Of whole numbers, which
    no processor rounds, a checksum."""
    numpy, kind = sys.modules["numpy"], values.dtype
    if kind.kind == "c":
        values = values.view(f"float{4 * kind.itemsize}")
        signs = numpy.resize(signs, values.size)
    elif _is_whole(values):
        return float(zlib.crc32(values.tobytes()) & _EXACT), 0.0
    if values.dtype.name not in ("float32", "float64"):
        values = values.astype("float32")
    signs, dot = signs[: values.size].astype(values.dtype), numpy.einsum  # not BLAS, which starts threads of its own
    norm = float(dot("i,i->", values, values)) ** 0.5
    apart = COARSE.get(kind.name, TOLERANCE) * norm + NOTHING * values.size
    return float(dot("i,i->", values, signs)), apart


def _signs(length: int) -> Any:
    """Random signs, the same in each program."""
    numpy = sys.modules["numpy"]
    data = hashlib.shake_256(b"tftraining").digest(length // 8 + 1)
    return numpy.unpackbits(numpy.frombuffer(data, "uint8"))[:length].astype("float32") * 2 - 1


def _pack(cell: Sequence[float]) -> bytes:
    """Two numbers of 4 bytes; one that these cannot hold is infinite."""
    largest = 3.4e38
    return struct.pack("<ff", *(each if abs(each) < largest else float("inf") for each in cell))


def apart(root: Any) -> set[int]:
    """The identities of the variables that each member may hold with values of its own: those of metrics, the states
    of random numbers, and of Keras 3's layers all that no gradient changes, such as moving statistics. Those that
    TensorFlow itself keeps apart (ON_READ) show by themselves."""
    tensorflow = sys.modules["tensorflow"]
    found: list[Any] = []
    trained: list[Any] = []
    for each in tensorflow.train.TrackableView(root).descendants():
        if isinstance(each, tensorflow.random.Generator) or is_of(_SEEDS, "SeedGenerator", each):
            found.append(each.state)
        elif is_of(_METRIC, "Metric", each):
            found += each.variables
        elif is_of(LAYERS, "Layer", each):
            found += each.variables
            trained += each._trainable_variables
    return {id(each) for each in plain(found)} - {id(each) for each in plain(trained)}

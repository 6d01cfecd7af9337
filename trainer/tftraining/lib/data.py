"""The data sets of the examples: small images of ten classes, as arrays in memory.

Images come as float32 of shape (n, height, width, 1) with values from 0 to 1, labels as int64 of shape (n,) with values
from 0 to 9. The same call returns the same arrays in every process. This module must never use the network if a
directory is given, and must never return an incomplete data set: missing or damaged files raise a DataError of one
line.
"""

from __future__ import annotations

import gzip
import importlib.util
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tftraining.lib.options import UsageError

CLASSES = 10
DIGITS_FOR_TRAINING = 1500  # of 1,797; the rest is for the test

# The IDX format of the MNIST files: magic number and sizes as big-endian 32-bit integers, then the bytes.
# http://yann.lecun.com/exdb/mnist/
IDX_IMAGES_MAGIC = 2051
IDX_LABELS_MAGIC = 2049


class DataError(UsageError):
    """A data set is unavailable; the message is one line that says what is missing, where, and what to do."""


@dataclass(frozen=True)
class Examples:
    """Images and their labels, in the same order."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Data:
    """A data set: its training part and its test part."""

    train: Examples
    test: Examples


def load(name: str, directory: str | None = None) -> Data:
    """The data set `name`: from the IDX files in `directory` if one is given, from scikit-learn or Keras otherwise."""
    if name == "digits":
        if directory is not None:
            raise DataError("the data set digits comes with scikit-learn, without files: remove --data-dir")
        return _digits()
    if directory is not None:
        return Data(_from_idx(Path(directory), "train"), _from_idx(Path(directory), "t10k"))
    return _from_keras(name)


def _digits() -> Data:
    images, labels = read_digits()
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order].reshape(-1, 8, 8, 1) / 16, labels[order]
    split = DIGITS_FOR_TRAINING
    return Data(_examples(images[:split], labels[:split]), _examples(images[split:], labels[split:]))


def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The result of scikit-learn's `load_digits(return_X_y=True)`, read from its file; DataError without that file.

    Importing scikit-learn would delay every restart of a training by half a second or more.
    """
    package = importlib.util.find_spec("sklearn")
    places = (package.submodule_search_locations or []) if package is not None else []
    files = [file for place in places if (file := Path(place, "datasets", "data", "digits.csv.gz")).exists()]
    if not files:
        raise DataError("the data set digits comes with scikit-learn, which is not installed: pip install scikit-learn")
    table = np.loadtxt(files[0], delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64)


def _from_keras(name: str) -> Data:
    from tf_keras import datasets  # noqa: PLC0415  imports TensorFlow

    try:
        train, test = getattr(datasets, name).load_data()
    except Exception as error:  # urllib, ssl and Keras each raise their own errors
        reason = " ".join(str(error).split())
        raise DataError(f"cannot download {name} ({reason}): give a folder with its IDX files by --data-dir") from error
    return Data(_from_bytes(*train), _from_bytes(*test))


def _from_idx(directory: Path, part: str) -> Examples:
    image_file = directory / f"{part}-images-idx3-ubyte.gz"
    label_file = directory / f"{part}-labels-idx1-ubyte.gz"
    images, labels = _read_idx(image_file, IDX_IMAGES_MAGIC), _read_idx(label_file, IDX_LABELS_MAGIC)
    if len(images) != len(labels):
        raise DataError(f"{image_file} holds {len(images)} images but {label_file} holds {len(labels)} labels")
    if len(labels) == 0 or labels.max() >= CLASSES:
        raise DataError(f"{label_file} does not hold labels from 0 to {CLASSES - 1}")
    return _from_bytes(images, labels)


def _read_idx(path: Path, magic: int) -> NDArray[np.uint8]:
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"no file {path.name} in {path.parent}: --data-dir needs the four gzipped IDX files") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    dimensions = magic & 0xFF
    header = struct.Struct(f">{1 + dimensions}I")
    if len(content) < header.size or header.unpack_from(content)[0] != magic:
        raise DataError(f"{path} is not an IDX file of {dimensions} dimensions")
    shape = header.unpack_from(content)[1:]
    values = np.frombuffer(content, np.uint8, offset=header.size)
    if values.size != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f"{path} is damaged: it has {values.size} bytes of data, and its header has the shape {shape}")
    return values.reshape(shape)


def _from_bytes(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Examples:
    return _examples(images[..., np.newaxis].astype(np.float32) / 255, labels)


def _examples(images: NDArray[Any], labels: NDArray[Any]) -> Examples:
    return Examples(images.astype(np.float32, copy=False), labels.astype(np.int64))

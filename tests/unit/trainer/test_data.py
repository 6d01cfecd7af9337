"""The data sets are whole and as promised, and what is missing or damaged is named in one line."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest

from tftraining.lib import data
from tftraining.lib.data import DataError, Examples

SIZES = {"train": 30, "t10k": 20}


def idx(magic: int, *shape: int, values: bytes | None = None) -> bytes:
    count = int(np.prod(shape))
    content = bytes(number % 10 for number in range(count)) if values is None else values
    return gzip.compress(struct.pack(f">{1 + len(shape)}I", magic, *shape) + content, mtime=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small data set in the format of MNIST."""
    for part, size in SIZES.items():
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(2051, size, 4, 5))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(2049, size))
    return tmp_path


def check(examples: Examples, shape: tuple[int, ...]) -> None:
    assert examples.images.shape == shape
    assert examples.labels.shape == shape[:1]
    assert examples.images.dtype == np.float32
    assert examples.labels.dtype == np.int64
    assert examples.images.min() >= 0
    assert examples.images.max() <= 1
    assert set(examples.labels) == set(range(10))


def test_digits_come_with_the_package() -> None:
    digits = data.load("digits")
    check(digits.train, (1500, 8, 8, 1))
    check(digits.test, (297, 8, 8, 1))
    assert digits.train.images.max() == 1


def test_digits_are_what_scikit_learn_says() -> None:
    # Imported here: the import takes seconds of each process that collects the tests.
    theirs = importlib.import_module("sklearn.datasets").load_digits(return_X_y=True)
    for ours, expected in zip(data.read_digits(), theirs, strict=True):
        assert ours.dtype == expected.dtype
        assert np.array_equal(ours, expected)


def test_digits_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="scikit-learn, which is not installed"):
        data.load("digits")


def test_every_process_gets_the_same_digits() -> None:
    first, second = data.load("digits"), data.load("digits")
    assert np.array_equal(first.train.images, second.train.images)
    assert np.array_equal(first.test.labels, second.test.labels)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_idx_files_are_read(folder: Path, name: str) -> None:
    loaded = data.load(name, str(folder))
    check(loaded.train, (30, 4, 5, 1))
    check(loaded.test, (20, 4, 5, 1))
    assert loaded.train.images[0, 1, 2, 0] == np.float32(7 / 255)
    assert list(loaded.test.labels[:12]) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def damage(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", None, "no file train-images-idx3-ubyte.gz in "),
        ("t10k-labels-idx1-ubyte.gz", None, "no file t10k-labels-idx1-ubyte.gz in "),
        ("train-images-idx3-ubyte.gz", b"plain", "cannot read "),
        ("train-images-idx3-ubyte.gz", idx(2051, 30, 4, 5)[:-12], "cannot read "),
        ("train-images-idx3-ubyte.gz", idx(2051, 30, 4, 5)[:20] + b"\xff" * 9, "cannot read "),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"", mtime=0), "not an IDX file of 3 dimensions"),
        ("train-images-idx3-ubyte.gz", idx(2049, 30), "not an IDX file of 3 dimensions"),
        ("train-labels-idx1-ubyte.gz", idx(2051, 30, 4, 5), "not an IDX file of 1 dimension"),
        ("train-images-idx3-ubyte.gz", idx(2051, 30, 4, 5, values=b"x"), "is damaged: it has 1 bytes"),
        ("train-labels-idx1-ubyte.gz", idx(2049, 29), "holds 30 images but"),
        ("t10k-labels-idx1-ubyte.gz", idx(2049, 20, values=b"\x0a" * 20), "labels from 0 to 9"),
    ],
)
def test_a_missing_or_damaged_file_is_named(folder: Path, name: str, content: bytes | None, message: str) -> None:
    damage(folder / name, content)
    with pytest.raises(DataError, match=message) as error:
        data.load("mnist", str(folder))
    assert str(folder) in str(error.value)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*train-images"):
        data.load("mnist", str(tmp_path))


def test_digits_have_no_files(folder: Path) -> None:
    with pytest.raises(DataError, match="remove --data-dir"):
        data.load("digits", str(folder))

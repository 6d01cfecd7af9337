"""The files of caches that the program makes, as the launcher hears of them."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import cache_hook
from tftraining.launch.in_user_process.leftovers import Record


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record"
    path.touch()
    return path


def test_another_cache_of_tensorflow_is_left_alone(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class CacheDataset:
        def __init__(self, source: object, directory: str) -> None:
            """As it may be one day."""

    before = CacheDataset.__init__
    cache_hook._extend(Record(str(record)), types.SimpleNamespace(CacheDataset=CacheDataset))
    assert CacheDataset.__init__ is before
    assert "the lock of a cache in a file may stay after a kill" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("filename", "noted"),
    [("/c", b"c/c\0"), (Path("/c"), b"c/c\0"), (b"/c", b"c/c\0"), ("", b""), ("gs://b/c", b""), (object(), b"")],
)
def test_a_cache_in_a_file_is_noted(record: Path, filename: object, noted: bytes) -> None:
    made = []

    class CacheDataset:
        def __init__(self, input_dataset: object, filename: object, name: object = None) -> None:
            made.append(filename)

    cache_hook._extend(Record(str(record)), types.SimpleNamespace(CacheDataset=CacheDataset))
    CacheDataset(None, filename)
    assert made == [filename]
    assert record.read_bytes() == noted

"""Whose child is whose: by the kernel's list, and without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tftraining.launch import reaper


def test_children_with_and_without_the_kernels_list(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        assert child in reaper.children()

        def refuse(path: Path) -> None:
            raise FileNotFoundError(path)

        monkeypatch.setattr(Path, "iterdir", lambda path: refuse(path) if path.name == "task" else _entries(path))
        assert child in reaper.children()
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)
    assert child not in reaper.children()


def _entries(path: Path) -> list[Path]:
    return [path / name for name in os.listdir(path)]  # noqa: PTH208  # iterdir is what is replaced here

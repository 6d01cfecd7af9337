"""The digest of the program: of its own modules, not of the launcher's."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

from tftraining.launch.in_user_process.memory_backup.program_digest import program_digest


def test_a_module_of_the_program_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = program_digest()
    module = types.ModuleType("model_of_the_program")
    module.__file__ = str(tmp_path / "model_of_the_program.py")
    Path(module.__file__).write_text("WIDTH = 3")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert program_digest() != before


@pytest.mark.parametrize("name", ["claim", "memory_backup.interval"])
def test_a_module_of_the_launcher_does_not_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher of the next version restores a copy of the same program."""
    module = importlib.import_module(f"tftraining.launch.in_user_process.{name}")
    monkeypatch.delitem(sys.modules, module.__name__)
    without = program_digest()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert program_digest() == without

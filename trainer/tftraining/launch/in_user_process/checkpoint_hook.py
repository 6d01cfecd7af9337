"""Says where a restarted program saves checkpoints beside those of an earlier start, and has restored none of them.

Such a program begins anew after each kill, and nothing else tells its user: one that reports its progress is told by
the launcher. This module must never fail a save, and must not import TensorFlow.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from .import_hook import after_import
from .surface import Part, Surface

MODULE = "tensorflow.python.checkpoint.checkpoint"
SURFACE = Surface(
    "a program that restores none of its checkpoints is not told",
    (
        Part(MODULE, "Checkpoint._write", "self file_prefix options"),
        Part(MODULE, "Checkpoint.save", uses="_write"),
        Part(MODULE, "Checkpoint.read", "self save_path options"),
        Part(MODULE, "Checkpoint.restore", uses="read"),
    ),
)
STARTS = ("TFTRAINING_ATTEMPT", "TFTRAINING_ROUND")  # each 1 at the first start of a program
TOLD = (
    "tftraining: this program was started again, and saves checkpoints in {} beside those of an earlier start: it has "
    "restored none of them, and begun anew\n"
)


def install(reports: Callable[[], bool]) -> None:
    """Extend TensorFlow, now or when it is imported. `reports`: whether this process reports its progress."""
    after_import(frozenset({MODULE}), functools.partial(_extend, reports))


def _extend(reports: Callable[[], bool], module: Any) -> None:
    if not SURFACE.holds({MODULE: module}):
        return
    cls = module.Checkpoint
    write, read = cls._write, cls.read
    used: list[Any] = []  # not empty once `write` or `read` was called

    @functools.wraps(write)
    def _write(self: Any, file_prefix: Any, options: Any = None) -> Any:
        if not used:
            used.append(write)
            _tell(os.path.dirname(str(file_prefix)), reports)
        return write(self, file_prefix, options)

    @functools.wraps(read)
    def read_noted(self: Any, save_path: Any, options: Any = None) -> Any:
        used.append(read)
        return read(self, save_path, options)

    cls._write, cls.read = _write, read_noted


def _tell(directory: str, reports: Callable[[], bool]) -> None:
    try:
        again = any(os.environ.get(each, "1") != "1" for each in STARTS)
        if again and not reports() and sys.modules["tensorflow"].train.latest_checkpoint(directory) is not None:
            sys.stderr.write(TOLD.format(directory or "."))
    except Exception:  # of the storage: the save itself says so
        return

"""Notes the files of tf.data's `cache(filename)`, whose lock a killed program leaves behind.

The launcher removes the lock before a restart (process/leftovers.py). This module must never fail, and must not import
TensorFlow.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from .import_hook import after_import
from .leftovers import CACHE, SUFFIX, Record
from .surface import Part, Surface

MODULE = "tensorflow.python.data.ops.cache_op"
SURFACE = Surface(
    "the lock of a cache in a file may stay after a kill",
    (Part(MODULE, "CacheDataset.__init__", "self input_dataset filename name"),),
)


def install(page: str) -> None:
    """Extend TensorFlow, now or when it is imported. `page` is the progress page."""
    after_import(frozenset({MODULE}), functools.partial(_extend, Record(page + SUFFIX)))


def _extend(record: Record, module: Any) -> None:
    if not SURFACE.holds({MODULE: module}):
        return
    begin = module.CacheDataset.__init__

    @functools.wraps(begin)
    def initialize(self: Any, input_dataset: Any, filename: Any, name: Any = None) -> None:
        _note(record, filename)
        begin(self, input_dataset, filename, name)

    module.CacheDataset.__init__ = initialize


def _note(record: Record, filename: Any) -> None:
    """Note a cache in a file of a directory; its name may be a tensor."""
    try:
        path = os.fsencode(filename.numpy() if hasattr(filename, "numpy") else filename)
        if path and b"://" not in path:
            record.note(CACHE, os.path.abspath(path))
    except Exception:  # a symbol in a graph
        return

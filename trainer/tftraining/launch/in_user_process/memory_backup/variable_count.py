"""Counts the variables that this process creates: those of a training that appear late are in none of its copies.

A walk through all that a model tracks takes milliseconds, and does not find a variable that the program keeps
elsewhere. Must never import TensorFlow, nor change a variable.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..surface import Part, Surface

_MODULE, _CLASS = "tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable"
SURFACE = Surface("no backups in memory", (Part(_MODULE, f"{_CLASS}.__init__"),))
_UNREAD = "_UnreadVariable"  # TensorFlow's handle of an assigned variable, which is none of its own
_MARK = "_tftraining_counts"
_count = 0


def extend() -> None:
    """Extend TensorFlow, once. SURFACE holds."""
    cls = getattr(sys.modules[_MODULE], _CLASS)
    if _MARK in cls.__dict__:
        return
    begin = cls.__init__

    @functools.wraps(begin)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        global _count  # noqa: PLW0603
        _count += type(self).__name__ != _UNREAD
        begin(self, *args, **kwargs)

    setattr(cls, _MARK, True)
    cls.__init__ = initialize


def created() -> int:
    """How many variables this process has created since `extend`."""
    return _count


def forget_one() -> None:
    """The last variable is our own."""
    global _count  # noqa: PLW0603
    _count -= 1

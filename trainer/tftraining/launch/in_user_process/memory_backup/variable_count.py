"""Counts the variables that this process creates.

A variable that the training creates after its copies have begun is in none of them, so a new one must be noticed. A
walk through all that a model tracks would take milliseconds at each step, and would not find a variable that the
program keeps elsewhere. Must never import TensorFlow, nor change a variable.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..surface import Part, Surface

_MODULE, _CLASS = "tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable"
SURFACE = Surface("no backups in memory", (Part(_MODULE, f"{_CLASS}.__init__"),))
_UNREAD = "_UnreadVariable"  # what an assignment returns: another handle of the same variable
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
    """Do not count the last variable, which the launcher's code has created, not the program."""
    global _count  # noqa: PLW0603
    _count -= 1

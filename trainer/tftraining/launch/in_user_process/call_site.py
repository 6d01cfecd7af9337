"""Identifies a call of `fit`, to recognise the same call by an earlier process of the program.

Counting calls is not enough: a program that skips finished work makes another call first. So the identity consists of
the program's arguments, its environment variables and the stack of user code lines. In a loop the same lines make many
calls, and only the program can tell them apart: such a call has no identity.
"""

from __future__ import annotations

import ast
import hashlib
import json
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from types import FrameType

LIBRARIES = ("tf_keras", "keras", "tensorflow")
_OWN = os.path.dirname(os.path.abspath(__file__))
# These variables differ between starts, or do not affect the program's work.
_IGNORED_VARIABLES = frozenset({"TF_CONFIG", "PYTHONPATH", "HOSTNAME", "SHLVL", "OLDPWD", "_"})


def environment_fingerprint(environment: Mapping[str, str]) -> str:
    """A digest of the environment variables that may affect the program's work."""
    relevant = {
        name: value
        for name, value in environment.items()
        if name not in _IGNORED_VARIABLES and not _is_launcher_variable(name)
    }
    return _digest(sorted(relevant.items()))


def identity(frame: FrameType | None, *more: object) -> str:
    """The identity of the call that runs in `frame`, including the values in `more`; "" if it cannot be determined."""
    frames = list(_user_frames(frame))
    if not frames or any(_in_a_loop(each) for each in frames):
        return ""
    lines = [(each.f_code.co_name, os.path.basename(each.f_code.co_filename), each.f_lineno) for each in frames]
    return _digest([sys.argv, os.getcwd(), lines, more])


def _is_launcher_variable(name: str) -> bool:
    return name.startswith("TFTRAINING_") and name != "TFTRAINING_DIR"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of user code, from the innermost to the main module, without those of libraries and the launcher."""
    libraries = tuple(filter(None, map(_directory_of, LIBRARIES)))
    while frame is not None:
        path = os.path.abspath(frame.f_code.co_filename)
        if not path.startswith((*libraries, _OWN + os.sep)) and not frame.f_code.co_filename.startswith("<frozen"):
            yield frame
            if frame.f_globals.get("__name__") == "__main__" and frame.f_code.co_name == "<module>":
                return
        frame = frame.f_back


def _directory_of(library: str) -> str:
    path = getattr(sys.modules.get(library), "__file__", None)
    return os.path.dirname(os.path.abspath(path)) + os.sep if path else ""


def _in_a_loop(frame: FrameType) -> bool:
    """Whether the frame's current line is inside a loop; also True if its source cannot be read."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return True
    loops = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    return not lines or any(node.lineno <= frame.f_lineno <= (node.end_lineno or 0) for node in loops)


_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

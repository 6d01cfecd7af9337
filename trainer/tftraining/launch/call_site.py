"""Tells whether a call of `fit` is the one that an earlier process of the same program has made.

The n-th call is not enough: a program that skips the work it finds done makes another call first. So a call is known by
the program's arguments and variables and by the lines of the user's code that lead to it. In a loop the same lines make
many calls, of which nobody but the program knows which one this is: such a call is never recognised.
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
# They change from one start to the next, or say nothing of what is to be done.
_UNTOLD = frozenset({"TF_CONFIG", "PYTHONPATH", "HOSTNAME", "SHLVL", "OLDPWD", "_"})


def fingerprint_of(environment: Mapping[str, str]) -> str:
    """Of the variables that a program may take its orders from."""
    told = {name: value for name, value in environment.items() if name not in _UNTOLD and not _is_ours(name)}
    return _digest(sorted(told.items()))


def identity(frame: FrameType | None, *more: object) -> str:
    """Of the call that is under way in `frame`; `more` is what else has to be the same. "" if it cannot be known."""
    frames = list(_user_frames(frame))
    if not frames or any(_in_a_loop(each) for each in frames):
        return ""
    lines = [(each.f_code.co_name, os.path.basename(each.f_code.co_filename), each.f_lineno) for each in frames]
    return _digest([sys.argv, os.getcwd(), lines, more])


def _is_ours(name: str) -> bool:
    return name.startswith("TFTRAINING_") and name != "TFTRAINING_DIR"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """From the innermost to that of the program itself, without those of the libraries and of the launcher."""
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
    """Whether the line that runs in the frame is inside a loop, or cannot be looked at."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return True
    loops = [node for node in ast.walk(tree) if isinstance(node, _LOOPS)]
    return not lines or any(node.lineno <= frame.f_lineno <= (node.end_lineno or 0) for node in loops)


_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

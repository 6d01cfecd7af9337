"""Identifies a call of `fit`, to recognise the same call by an earlier process of the program.

Counting calls is not enough: a program that skips finished work makes another call first. So the identity consists of
the instructions that lead to the call, and of the values of the targets of the loops around them. Without such values a
call has no identity; it must never be that of another call.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import itertools
import json
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

LIBRARIES = ("tf_keras", "keras", "tensorflow")
_PYTHON_FIRE = ("fire",)  # reads the arguments in a loop, in which it calls the program once
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
# These variables differ between starts, or do not affect the program's work.
_IGNORED_VARIABLES = frozenset({"TF_CONFIG", "PYTHONPATH", "HOSTNAME", "SHLVL", "OLDPWD", "_"})
_COLUMNS = sys.version_info >= (3, 11)  # an instruction knows its column
_INLINED = (ast.ListComp, ast.SetComp, ast.DictComp) if sys.version_info >= (3, 12) else ()
_LOOPS = (ast.For, ast.AsyncFor, ast.While, *_INLINED)
_COMPREHENSION_FRAMES = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_given: set[str] = set()  # the identities that this process has asked for


class UnknownCallError(Exception):
    """Why a call has no identity."""


class CallPlace(NamedTuple):
    """Where a call is. In an edited program `functions` often stay the same, `digest` never does if lines move."""

    functions: str
    digest: str


def environment_fingerprint(environment: Mapping[str, str]) -> str:
    """A digest of the environment variables that may affect the program's work."""
    relevant = {
        name: value
        for name, value in environment.items()
        if name not in _IGNORED_VARIABLES and (name == "TFTRAINING_DIR" or not name.startswith("TFTRAINING_"))
    }
    return digest(sorted(relevant.items()))


def identity(frame: FrameType | None, *more: object) -> str:
    """The identity of the call that runs in `frame`, with the values in `more`; "" if there is none.

    Ask once a call: a second call with the same identity, by a library's loop or `map`, cannot be told from the first.
    """
    try:
        found = digest([place(frame).digest, program_arguments(), more])
    except UnknownCallError:
        return ""
    if found in _given:
        return ""
    _given.add(found)
    return found


def objection(frame: FrameType | None) -> str:
    """Why the call that runs in `frame` has no identity; "" if it has one, or only another call has the same."""
    try:
        place(frame)
    except UnknownCallError as error:
        return str(error)
    return ""


def place(frame: FrameType | None) -> CallPlace:
    """The place of the call that runs in `frame`; UnknownCallError if it is not the only one there."""
    frames = list(_user_frames(frame))
    functions = [(each.f_code.co_name, os.path.basename(each.f_code.co_filename)) for each in frames]
    at = [(each.f_lineno, each.f_lasti, _loop_values(each)) for each in frames]
    if not frames:
        raise UnknownCallError("no code of the program calls it")
    return CallPlace(digest(functions), digest([functions, at]))


def program_arguments() -> list[object]:
    """The arguments and the working directory of the program."""
    return [sys.argv, os.getcwd()]


def digest(value: object) -> str:
    """A digest of a value of JSON types."""
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of user code, from the innermost to the main module, without those of Keras and the launcher."""
    libraries = (*filter(None, map(_directory_of, LIBRARIES)), _OWN)
    while frame is not None:
        name = frame.f_code.co_filename
        if not os.path.abspath(name).startswith(libraries) and not name.startswith("<frozen"):
            yield frame
            if frame.f_globals.get("__name__") == "__main__" and frame.f_code.co_name == "<module>":
                return
        frame = frame.f_back


def _directory_of(library: str) -> str:
    path = getattr(sys.modules.get(library), "__file__", None)
    return os.path.dirname(os.path.abspath(path)) + os.sep if path else ""


def _loop_values(frame: FrameType) -> list[object]:
    """The values of the targets of the loops around the frame's place."""
    code = frame.f_code
    if str(frame.f_globals.get("__name__")).partition(".")[0] in _PYTHON_FIRE:
        return []
    names = [name for name in (*code.co_varnames, *code.co_cellvars) if name != ".0"]
    if code.co_name not in _COMPREHENSION_FRAMES:
        names = [name for loop in _loops_around(frame) for name in _targets(loop)]
    if not names:
        return []
    values = frame.f_locals
    found = [_plain(values.get(name, frame.f_globals.get(name, ...)), name) for name in names]
    if code.co_flags & inspect.CO_OPTIMIZED and isinstance(values, dict):
        values.clear()  # before Python 3.13 a copy, which would keep in memory what the program deletes
    return found


def _loops_around(frame: FrameType) -> list[ast.AST]:
    """The loops of the frame's own code around its place."""
    code = frame.f_code
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        lines = []
    if not lines:
        raise UnknownCallError(f"{code.co_filename} has no source")
    column = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))[2] if _COLUMNS else None
    return _descend(tree, (frame.f_lineno, column), [])


def _descend(node: Any, at: tuple[int, int | None], loops: list[ast.AST]) -> list[ast.AST]:
    """`loops` and those from `node` on that contain the place; a function in a loop has a frame of its own."""
    found = [] if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) else loops
    fields = [(field, value if isinstance(value, list) else [value]) for field, value in ast.iter_fields(node)]
    inner = {child: field for field, children in fields for child in children if _contains(child, at)}
    is_loop = isinstance(node, _LOOPS)
    if is_loop and (not inner or "iter" in inner.values()):
        raise UnknownCallError(f"it is in the head of the loop in line {node.lineno}")
    for child, field in inner.items():
        found = _descend(child, at, [*found, node] if is_loop and field != "orelse" else found)
    return found


def _contains(node: Any, at: tuple[int, int | None]) -> bool:
    """Whether the node contains the place or, without a column, its line; a node without a position may."""
    line, column = at
    if column is None or not hasattr(node, "lineno"):
        return isinstance(node, ast.AST) and getattr(node, "lineno", line) <= line <= getattr(node, "end_lineno", line)
    return bool((node.lineno, node.col_offset) <= (line, column) < (node.end_lineno, node.end_col_offset))


def _targets(loop: Any) -> list[str]:
    """The names that the loop sets in each pass."""
    targets = [each.target for each in getattr(loop, "generators", [loop]) if hasattr(each, "target")]
    names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    if not names:
        raise UnknownCallError(f"nothing tells the passes of the loop in line {loop.lineno} apart")
    return names


def _plain(value: Any, name: str) -> object:
    """A loop's value as JSON types: equal for equal values in another process."""
    numpy = sys.modules.get("numpy")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(each, name) for each in value]
    if isinstance(value, dict):
        return [_plain(each, name) for each in value.items()]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)) or value.dtype.hasobject:
        raise UnknownCallError(f"the value of {name} in its loop is no plain value")
    return [str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()]

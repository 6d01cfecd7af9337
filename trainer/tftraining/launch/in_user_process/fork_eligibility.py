"""Decides from the source code alone whether a program can be forked from a warm interpreter or needs a plain start.

A fork has TensorFlow imported before the program's first line. That equals a plain start, unless the program sets an
environment variable before its own import of TensorFlow; only variables known to be read later (late_variables.py) are
harmless. withheld_modules.py finds at run time what source code does not show: a write in an installed package, through
a function's argument or in C. Pure: sources come in as text. A write to an unknown variable must give a plain start,
which is always correct, only slower.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .late_variables import is_read_later

TENSORFLOW = frozenset({"tensorflow", "keras", "tf_keras"})
MAX_MODULES = 300  # the most modules of the program that are examined


@dataclass(frozen=True)
class SourceEffect:
    """A relevant effect of a statement: it sets an environment variable, or imports a module."""

    line: int
    sets: str = ""
    module: str = ""
    level: int = 0
    certain: bool = False  # at module level, where it always runs


@dataclass(frozen=True)
class ModuleSource:
    """A module of the program: its text, and `find` for the program's own modules that it imports."""

    text: str
    find: Callable[[str, int], Sequence[ModuleSource]]


class UnparsableSource(Exception):
    """The source cannot be parsed; a plain start shows the user the error."""


def reason_for_plain_start(sources: Sequence[ModuleSource]) -> str:
    """Why the program needs a plain start, "" if it can be forked. `sources` run one after the other."""
    budget = [MAX_MODULES]
    for source in sources:
        reason, imported = _examine(source, budget)
        if reason or imported:
            return reason
    return ""


def _examine(source: ModuleSource, budget: list[int]) -> tuple[str, bool]:
    """The reason for a plain start, and whether running the module certainly imports TensorFlow."""
    budget[0] -= 1
    if budget[0] < 0:
        return "it has too many modules to analyse", False
    for event in find_effects(source.text):
        if event.sets:
            return f"it sets {event.sets} before importing TensorFlow", False
        root = event.module.partition(".")[0]
        if root in TENSORFLOW and not event.level:
            if event.certain:
                return "", True
            continue
        for module in source.find(event.module, event.level):
            reason, imported = _examine(module, budget)
            if reason or (imported and event.certain):
                return reason, imported
    return "", False


def find_effects(text: str) -> list[SourceEffect]:
    """The events of a module in line order; those inside functions count as if they ran at their line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the source: the program itself prints them
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnparsableSource(str(error)) from error
    certain, environ = set(map(id, _certain(tree.body))), _names_of_environ(tree)
    found = [event for node in ast.walk(tree) for event in _effects_of(node, id(node) in certain, environ)]
    return sorted(found, key=lambda event: event.line)


def _names_of_environ(tree: ast.AST) -> frozenset[str]:
    """The names of the environment in this module: `environ`, `environb` and their aliases."""
    names = {"environ", "environb"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in ("environ", "environb")}
        elif isinstance(node, ast.Assign) and _last_name(node.value) in names:
            names |= {_last_name(target) for target in node.targets}
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value and _last_name(node.value) in names:
            names.add(_last_name(node.target))
        elif isinstance(node, ast.arguments):
            names |= {argument.arg for argument, default in _defaults(node) if _last_name(default) in names}
    return frozenset(names - {""})


def _defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.AST]]:
    plain = [*arguments.posonlyargs, *arguments.args]
    yield from zip(reversed(plain), reversed(arguments.defaults))  # no strict= in 3.9; the first may have no default
    yield from ((arg, value) for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value)


def _certain(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that always run when the module runs as the program."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.Try, ast.With)) or _is_main_guard(statement):
            yield from _certain(statement.body)  # type: ignore[attr-defined]


def _is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test)


def _effects_of(node: ast.AST, certain: bool, environ: frozenset[str]) -> Iterator[SourceEffect]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield SourceEffect(node.lineno, module=alias.name, certain=certain)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        yield SourceEffect(node.lineno, module=base, level=node.level, certain=certain)
        for alias in node.names:  # a name may be a module of the package
            name = f"{base}.{alias.name}".lstrip(".")
            yield SourceEffect(node.lineno, module=name, level=node.level, certain=certain)
    elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield from _target(node, environ)
    elif isinstance(node, ast.AugAssign) and _last_name(node.target) in environ:
        yield from _set(node.lineno, _names_of_mapping(node.value))
    elif isinstance(node, ast.Call):
        yield from _call(node, environ)


def _target(node: ast.Subscript | ast.Attribute, environ: frozenset[str]) -> Iterator[SourceEffect]:
    """The events of an assignment target, or of a deletion."""
    if isinstance(node, ast.Subscript) and _last_name(node.value) in environ:
        yield from _set(node.lineno, [_constant(node.slice)])
    elif isinstance(node, ast.Attribute) and node.attr in ("environ", "environb"):
        yield from _set(node.lineno, [None])


def _call(node: ast.Call, environ: frozenset[str]) -> Iterator[SourceEffect]:
    name = _last_name(node.func)
    if name in ("putenv", "unsetenv"):
        yield from _set(node.lineno, [_constant(node.args[0]) if node.args else None])
    elif name == "load_dotenv":
        yield from _set(node.lineno, [None])
    elif isinstance(node.func, ast.Attribute) and _last_name(node.func.value) in environ:
        if name in ("setdefault", "pop", "__setitem__", "__delitem__"):
            yield from _set(node.lineno, [_constant(node.args[0]) if node.args else None])
        elif name == "update":
            names = [name for argument in node.args for name in _names_of_mapping(argument)]
            yield from _set(node.lineno, names + [keyword.arg for keyword in node.keywords])
        elif name in ("clear", "popitem"):
            yield from _set(node.lineno, [None])


def _set(line: int, names: Sequence[str | None]) -> Iterator[SourceEffect]:
    for name in names:
        if name is None:
            yield SourceEffect(line, sets="variables that static analysis cannot determine")
        elif not is_read_later(name):
            yield SourceEffect(line, sets=name)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.NamedExpr):
        node = node.target
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _constant(node: ast.AST) -> str | None:
    """The text of a string or bytes literal; None for any other expression."""
    node = getattr(node, "value", node) if type(node).__name__ == "Index" else node  # ast.Index of Python 3.8
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")
    return None


def _names_of_mapping(node: ast.AST) -> list[str | None]:
    if isinstance(node, ast.Dict):
        return [_constant(key) if key is not None else None for key in node.keys]
    if isinstance(node, ast.Call) and _last_name(node.func) == "dict" and not node.args:
        return [keyword.arg for keyword in node.keywords]
    return [None]

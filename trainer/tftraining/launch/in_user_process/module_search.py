"""What the import system has found for the import of TensorFlow, and whether it would find the same for the program.

A program may put directories of its own first in sys.path, install packages, add an import hook, or replace a module,
all before it imports TensorFlow. In a plain start TensorFlow's own imports follow that, too; the warm interpreter has
made them before. This module must never import what it looks for.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Collection, Iterable, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any, Optional

Found = Optional[tuple[object, ...]]  # what PathFinder found under a name, and the time and size of the file
_OURS = ("__main__", "_tftraining")


class _Misses:
    """The last finder: notes the names that no other one has found."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if path is None:
            self.names.add(name)


class ModuleSearch:
    """The searches of one import: create it before the import, and call `finish` behind it."""

    def __init__(self) -> None:
        self._misses = _Misses()
        sys.meta_path.append(self._misses)
        self._withheld: frozenset[str] = frozenset()
        #: The top-level modules that the import has looked for and not found.
        self.missed: frozenset[str] = frozenset()
        self._standard: dict[str, types.ModuleType] = {}
        self._found: dict[str, Found] = {}
        self._state: tuple[object, ...] = ()
        self._front: list[object] = []
        self._hooks: list[object] = []

    def finish(self, withheld: Mapping[str, types.ModuleType], before: Collection[str]) -> None:
        """Remember what was found. `withheld` are the modules that have left sys.modules; a plain start has those in
        `before`, too."""
        sys.meta_path.remove(self._misses)
        self._withheld = frozenset(withheld)
        self.missed = frozenset(self._misses.names - self._withheld - sys.modules.keys())
        self._standard = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in _OURS}
        modules = {name: module for name, module in {**sys.modules, **withheld}.items() if name not in before}
        self._found = _find(_searched(modules) | self.missed, sys.path)

    def watch(self) -> None:
        """Remember the state of the import system; for the program's process, before its first line."""
        self._state = _state()
        self._front, self._hooks = _front(), list(sys.path_hooks)

    def change(self, pending: Collection[str]) -> str:
        """What the program has changed since `watch`, so that an import of TensorFlow would find other modules; "" if
        it would find the same. `pending` are the withheld modules that it has not got yet."""
        if _front() != self._front:
            return "sys.meta_path"
        if sys.path_hooks != self._hooks:
            return "sys.path_hooks"
        if name := self._replaced(pending):
            return f"sys.modules[{name!r}]"
        if (state := _state()) != self._state:
            if name := self._found_elsewhere(pending):
                return f"the search for {name}"
            self._state = state
        return ""

    def _replaced(self, pending: Collection[str]) -> str:
        """A module that the program has replaced, removed or brought along."""
        for name, module in self._standard.items():
            if sys.modules.get(name) is not module:
                return name
        return next((name for name in (*pending, *self.missed) if sys.modules.get(name) is not None), "")

    def _found_elsewhere(self, pending: Collection[str]) -> str:
        """A module that is now found in another place, or in another version."""
        names = [name for name in self._found if name not in self._withheld or name in pending]
        now = _find(names, sys.path)
        return next((name for name in names if now[name] != self._found[name]), "")


def _searched(modules: Mapping[str, types.ModuleType]) -> set[str]:
    """The modules whose place depends on sys.path: those at the top, and those in namespace packages."""
    tops = {name.partition(".")[0] for name in modules}
    spaces = {name for name in tops if _is_namespace(sys.modules.get(name) or modules.get(name))}
    below = {".".join(name.split(".")[:2]) for name in modules if name.partition(".")[0] in spaces}
    return {name for name in tops | below if not name.startswith(_OURS)}


def _is_namespace(module: object) -> bool:
    return hasattr(module, "__path__") and not getattr(module, "__file__", None)


def _find(names: Iterable[str], path: list[str]) -> dict[str, Found]:
    return {name: _found(name, path) for name in names}


def _found(name: str, path: list[str]) -> Found:
    parent = name.rpartition(".")[0]
    spec = PathFinder.find_spec(parent or name, path)
    if parent and spec is not None:
        try:
            spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or ()))
        except KeyError:  # a namespace package, too, whose parent is not in sys.modules now
            return None
    return None if spec is None else (*_places(spec), *_stamp(spec.origin))


def _places(spec: ModuleSpec) -> tuple[object, ...]:
    return spec.origin, tuple(spec.submodule_search_locations or ())


def _stamp(path: str | None) -> tuple[int, ...]:
    with contextlib.suppress(OSError):
        found = os.stat(path or "")
        return found.st_mtime_ns, found.st_size
    return ()


def _state() -> tuple[object, ...]:
    """What a search depends on: sys.path, and the time of each of its directories. While it stays, a search finds the
    same."""
    return tuple((each, *_stamp(each)) for each in sys.path if isinstance(each, str))


def _front() -> list[object]:
    """The finders that are asked before sys.path is searched. One behind that is asked only for what nobody else
    finds."""
    finders: list[object] = list(sys.meta_path)
    return finders[: finders.index(PathFinder)] if PathFinder in finders else []

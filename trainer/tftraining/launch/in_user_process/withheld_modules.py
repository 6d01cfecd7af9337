"""Withholds the modules that the warm interpreter has imported until the program imports them, as in a plain start.

In a plain start the import reads the environment as the program has set it by then; the warm interpreter has read it
earlier. So when the program first imports one of these packages, its environment must still equal the one that the
import found. Otherwise the launcher starts the program again, plainly, before anything of TensorFlow has been used.
That finds every change, wherever it is made: in an installed package, under another name, in C. The import system must
find the same modules as then, too (module_search.py). This module must never take a module from the program, nor hand
one out twice.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Collection
from typing import Any

from .late_variables import is_read_later
from .module_search import ModuleSearch

TENSORFLOW = ("keras", "tensorflow", "tf_keras")


class WithheldModules:
    """The import finder of the withheld modules. `before` are the names of the modules that a plain start has too;
    `search` is that of the import."""

    def __init__(self, before: Collection[str], search: ModuleSearch) -> None:
        #: The searches of the import.
        self.search = search
        self._groups: dict[str, dict[str, types.ModuleType]] = {}
        self._environment: dict[str, tuple[str | None, str | None]] = {}
        self._on_change: Callable[[str], None] = _ignore_variable
        self._on_hand_out: Callable[[], None] = _do_nothing
        for name in list(sys.modules):
            root = _root(name, before)
            if root in sys.modules and _can_withhold(root, sys.modules[root]):
                self._groups.setdefault(root, {})[name] = sys.modules[name]
        for group in self._groups.values():
            for name in group:
                sys.modules.pop(name, None)
        search.finish({name: module for group in self._groups.values() for name, module in group.items()}, before)
        sys.meta_path.insert(0, self)

    def get(self, name: str) -> types.ModuleType | None:
        """A module, whether withheld or handed out."""
        return sys.modules.get(name) or self._groups.get(name.partition(".")[0], {}).get(name)

    def roots(self) -> dict[str, types.ModuleType]:
        """The withheld packages and modules, by name."""
        return {root: group[root] for root, group in self._groups.items()}

    def watch(self, changed: Callable[[str], None], given: Callable[[], None]) -> None:
        """Remember the present state for the comparison; for the program's process, before its first line.

        `changed` is called with a variable, or another thing, that differs, at most once; `given` when TensorFlow has
        been handed out.
        """
        self.search.watch()
        self._environment, self._on_change, self._on_hand_out = environment(), changed, given
        atexit.register(self._hand_out_all)  # at exit the interpreter must find all modules in sys.modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Called by the import system. A mere query (importlib.util.find_spec) gets the answer of a plain start."""
        if name not in self._groups:
            return None
        if change := self.search.change(self._groups):
            self._end(change)
        module = self._groups[name][name]
        own = module.__spec__
        assert own is not None
        spec = importlib.machinery.ModuleSpec(name, self, origin=own.origin, is_package=None)  # type: ignore[arg-type]
        spec.submodule_search_locations = own.submodule_search_locations
        spec.cached, spec.has_location = own.cached, own.has_location
        spec.loader_state = (module, own)  # another thread may import the module meanwhile
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Called when the program imports the module: compare the environment first."""
        if variable := self._changed_variable():
            self._end(variable)
        module: types.ModuleType = spec.loader_state[0]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Restore the module's own spec, which the import system has replaced; the module was executed long ago."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state[1]
        self._hand_out(spec.name)

    def _end(self, change: str) -> None:
        self._on_change(change)
        self._on_change = _ignore_variable

    def _changed_variable(self) -> str:
        """A variable that has changed since `watch`; "" if there is none."""
        before, now = self._environment, environment()
        changed = (name for name in {*before, *now} if before.get(name) != now.get(name) and not is_read_later(name))
        return min(changed, default="")

    def _hand_out(self, root: str) -> None:
        """Hand out a package: TensorFlow with all that it has imported, any other one alone."""
        if root in TENSORFLOW:
            self._hand_out_all()
            self._on_hand_out()
        else:
            sys.modules.update(self._groups.pop(root, {}))

    def _hand_out_all(self) -> None:
        for group in list(self._groups.values()):
            for name, module in group.items():
                sys.modules.setdefault(name, module)  # at exit the program may have one of its own
        self._groups.clear()


def environment() -> dict[str, tuple[str | None, str | None]]:
    """Each variable's value in Python and in C: a library may set one that Python does not see."""
    python, c = dict(os.environ), _environment_of_c()
    return {name: (python.get(name), c.get(name)) for name in {*python, *c}}


def _environment_of_c() -> dict[str, str]:
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    found, place = {}, 0
    while entries and (entry := entries[place]) is not None:
        name, _, value = os.fsdecode(entry).partition("=")
        found[name] = value
        place += 1
    return found


def _root(name: str, before: Collection[str]) -> str:
    """The outermost package of a module that a plain start lacks; "" if a plain start has the module."""
    parts = name.split(".")
    roots = (".".join(parts[: count + 1]) for count in range(len(parts)))
    return next((root for root in roots if root not in before), "")


def _can_withhold(root: str, module: object) -> bool:
    """Whether a module can be withheld. The standard library cannot: it hardly reads the environment and is used
    everywhere."""
    standard = root.partition(".")[0] in getattr(sys, "stdlib_module_names", ()) or _is_standard(module)
    return not standard and root != "__main__" and getattr(module, "__spec__", None) is not None


def _is_standard(module: object) -> bool:
    """Whether a module is of the standard library; for Python 3.9, which has no sys.stdlib_module_names."""
    path = getattr(module, "__file__", None) or ""
    standard = os.path.dirname(os.__file__) + os.sep
    return not (path or hasattr(module, "__path__")) or (
        path.startswith(standard) and "-packages" not in path[len(standard) :]
    )


def _ignore_variable(_: str) -> None:
    """The default of `changed`: ignores what has changed."""


def _do_nothing() -> None:
    """Do nothing."""

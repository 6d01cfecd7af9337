"""Keeps what the warm interpreter has imported back until the program imports it, as if it were imported only then.

In a plain start the import reads the environment as the program has made it by then. Here it has been read already. So
when the program first imports one of these packages, its environment must still be what the import found: otherwise the
launcher is told to start the program anew, plainly, before anything of TensorFlow has been used. That finds every
change, wherever it is made: in an installed package, under another name, in C. It must never take a module from the
program, nor give it one twice.
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

from .read_later import read_later

TENSORFLOW = ("keras", "tensorflow", "tf_keras")


class Withheld:
    """The finder of these modules. `before` are the names of those that a plain start has as well."""

    def __init__(self, before: Collection[str]) -> None:
        self._groups: dict[str, dict[str, types.ModuleType]] = {}
        self._environment: dict[str, tuple[str | None, str | None]] = {}
        self._changed: Callable[[str], None] = _no_one
        self._given: Callable[[], None] = _nothing
        for name in list(sys.modules):
            root = _root(name, before)
            if root in sys.modules and _can_wait(root, sys.modules[root]):
                self._groups.setdefault(root, {})[name] = sys.modules[name]
        for group in self._groups.values():
            for name in group:
                sys.modules.pop(name, None)
        sys.meta_path.insert(0, self)

    def get(self, name: str) -> types.ModuleType | None:
        """A module, given out or not."""
        return sys.modules.get(name) or self._groups.get(name.partition(".")[0], {}).get(name)

    def roots(self) -> dict[str, types.ModuleType]:
        """The packages and modules that are kept back, by their names."""
        return {root: group[root] for root, group in self._groups.items()}

    def watch(self, changed: Callable[[str], None], given: Callable[[], None]) -> None:
        """In the process of the program, before its first line: its environment is the one to compare with. `changed`
        is told of a variable that is not as it was, once if it returns; `given` when the program has got TensorFlow."""
        self._environment, self._changed, self._given = environment(), changed, given
        atexit.register(self._give_everything)  # the interpreter takes down what is in sys.modules, in its own order

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The import system asks. Whoever only asks whether there is such a module gets the answer of a plain start."""
        if name not in self._groups:
            return None
        module = self._groups[name][name]
        own = module.__spec__
        assert own is not None
        spec = importlib.machinery.ModuleSpec(name, self, origin=own.origin, is_package=None)  # type: ignore[arg-type]
        spec.submodule_search_locations = own.submodule_search_locations
        spec.cached, spec.has_location = own.cached, own.has_location
        spec.loader_state = (module, own)  # another thread may be given the module meanwhile
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The program imports it."""
        if variable := self._change():
            self._changed(variable)
            self._changed = _no_one
        module: types.ModuleType = spec.loader_state[0]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """It has been executed long ago; the import system has given it a new specification."""
        spec = module.__spec__
        assert spec is not None
        module.__spec__ = spec.loader_state[1]
        self._give(spec.name)

    def _change(self) -> str:
        """A variable that is not as it was; "" if there is none."""
        before, now = self._environment, environment()
        changed = (name for name in {*before, *now} if before.get(name) != now.get(name) and not read_later(name))
        return min(changed, default="")

    def _give(self, root: str) -> None:
        """TensorFlow with all that it has imported, anything else alone."""
        if root in TENSORFLOW:
            self._give_everything()
            self._given()
        else:
            sys.modules.update(self._groups.pop(root, {}))

    def _give_everything(self) -> None:
        for group in list(self._groups.values()):
            sys.modules.update(group)
        self._groups.clear()


def environment() -> dict[str, tuple[str | None, str | None]]:
    """Each variable as Python shows it and as C does: a library may set one that Python does not see."""
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
    """The outermost package of a module that a plain start does not have; "" if it has the module itself."""
    parts = name.split(".")
    roots = (".".join(parts[: count + 1]) for count in range(len(parts)))
    return next((root for root in roots if root not in before), "")


def _can_wait(root: str, module: object) -> bool:
    """Whether it is found by an import alone. The standard library reads next to nothing, and is used everywhere."""
    standard = root.partition(".")[0] in getattr(sys, "stdlib_module_names", ()) or _is_standard(module)
    return not standard and root != "__main__" and getattr(module, "__spec__", None) is not None


def _is_standard(module: object) -> bool:
    """For Python 3.9, which has no list of names."""
    path = getattr(module, "__file__", None) or ""
    standard = os.path.dirname(os.__file__) + os.sep
    return not (path or hasattr(module, "__path__")) or (
        path.startswith(standard) and "-packages" not in path[len(standard) :]
    )


def _no_one(_: str) -> None:
    """Nobody is to be told."""


def _nothing() -> None:
    """Nothing is to be done."""

"""The guard of every patch of TensorFlow and Keras: what a feature touches, checked before it changes anything.

A feature declares its Surface beside its patches, and asks `holds` before the first of them: all patches of a feature
are made, or none. An unknown surface is left alone, and one line names what is missing. docs/keras3.md has all
surfaces. This module must never raise, import what it looks at, or change it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any, NamedTuple

_VARIADIC = 0x04 | 0x08  # inspect.CO_VARARGS, CO_VARKEYWORDS
_told: set[str] = set()


class Part(NamedTuple):
    """A class, method or function that must be there: `path` in a module, whose name may have a `{package}` to fill in.

    `takes`: all names of its parameters, in order; None: any. `uses`: attribute names that its code must use. Those of
    a class may be used by any of its methods: so an attribute that only instances have is checked, too.
    """

    module: str
    path: str
    takes: str | None = None
    uses: str = ""

    def missing(self, modules: Mapping[str, Any], names: Mapping[str, str]) -> str:
        """What differs from the declaration; "" if nothing does."""
        module = self.module.format(**names)
        found = modules.get(module)
        if found is None:
            return f"the module {module} is not loaded"
        for name in self.path.split("."):
            if (found := getattr(found, name, None)) is None:
                return f"{module} has no {self.path}"
        if self.takes is not None and _parameters(found) != self.takes.split():
            return f"{self.path} of {module} does not take ({', '.join(self.takes.split())})"
        used = {name for code in _codes(found) for name in code.co_names} if self.uses else set()
        unused = [name for name in self.uses.split() if name not in used]
        return f"{self.path} of {module} does not use {unused[0]}" if unused else ""


class Surface(NamedTuple):
    """All that a feature touches. `lost`: what is lost where the surface is unknown, as the line begins."""

    lost: str
    parts: tuple[Part, ...]

    def missing(self, modules: Mapping[str, Any] | None = None, **names: str) -> str:
        """The first thing that differs from the declaration; "" if nothing does. `names`: such as the package."""
        try:
            told = (each.missing(sys.modules if modules is None else modules, names) for each in self.parts)
            return next(filter(None, told), "")
        except Exception as error:  # a strange class
            return f"{type(error).__name__}: {error}"

    def holds(self, modules: Mapping[str, Any] | None = None, **names: str) -> bool:
        """Whether all is as declared. Otherwise the feature must change nothing; one line a process says so."""
        if (missing := self.missing(modules, **names)) and self.lost not in _told:
            _told.add(self.lost)
            sys.stderr.write(f"tftraining: {self.lost}: {missing}\n")
        return not missing


def names_used(cls: Any) -> set[str]:
    """All attribute names that the methods of a class use; none without a class."""
    return {name for code in _codes(cls) for name in code.co_names} if isinstance(cls, type) else set()


def _parameters(method: Any) -> list[str] | None:
    """The names of all parameters of a Python function; None for anything else."""
    code = getattr(_unwrapped(method), "__code__", None)
    if not isinstance(code, CodeType) or code.co_flags & _VARIADIC:
        return None
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _codes(found: Any) -> Iterator[CodeType]:
    """The code of a function or property, or of all methods of a class, with all code within."""
    if isinstance(found, type):
        for cls in found.__mro__[:-1]:
            for each in vars(cls).values():
                if not isinstance(each, type):
                    yield from _codes(each)
        return
    function = _unwrapped(getattr(found, "fget", None) or found)
    pending = [getattr(function, "__code__", None)]
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield code
            pending += code.co_consts


def _unwrapped(function: Any) -> Any:
    """The function under its decorators, our own among them, and under a static or class method."""
    while (inner := getattr(function, "__wrapped__", None) or getattr(function, "__func__", None)) is not None:
        function = inner
    return function

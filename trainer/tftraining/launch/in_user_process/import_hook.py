"""Import hook: extends modules as soon as any code imports them, and already imported ones at once.

It must never import such a module itself, nor change anything else that the program can see.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Extend = Callable[[Any], None]


def after_import(names: frozenset[str], extend: Extend) -> None:
    """Call `extend` with each module of these names after its execution, behind those of earlier calls. `extend` must
    not raise."""
    for name in names:
        _finder.extends.setdefault(name, []).append(extend)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name in names & set(sys.modules):
        extend(sys.modules[name])


class _Finder:
    """Meta path finder: lets the other finders find the modules, and wraps their loaders to extend them. There is one:
    two that know the same name would call each other for ever."""

    def __init__(self) -> None:
        self.extends: dict[str, list[Extend]] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self.extends:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._wrap(spec.loader)
                return spec
        return None

    def _wrap(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: Any) -> None:
            execute(module)
            for extend in self.extends[module.__name__]:
                extend(module)

        loader.exec_module = exec_module


_finder = _Finder()

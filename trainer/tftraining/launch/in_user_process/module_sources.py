"""Finds the source texts of a program's own modules without importing any, in the interpreter that will run it.

Installed packages and the standard library are not the program's own, except for the package that the program belongs
to: a module run with `-m`, or a script, may be installed. It must never execute any code of the program.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import tokenize
from collections.abc import Sequence
from typing import Optional

from .fork_eligibility import ModuleSource, UnparsableSource

Path = Optional[Sequence[str]]


class SourceFinder:
    """Resolves names as the program would, its directory first; returns each module once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._package = ""  # the name of the program's top-level package
        #: The real paths of the files that were read.
        self.read_paths: set[str] = set()

    def script_sources(self, path: str) -> list[ModuleSource]:
        """The script's source. OSError if it cannot be read, UnparsableSource if it is no text."""
        self._package = outermost_package(path)
        return self._source(path, "")

    def module_sources(self, name: str) -> list[ModuleSource]:
        """The sources that `python -m name` executes: the parent packages, then the module; empty if not found."""
        sources, path, prefix = [], None, ""
        parts = name.split(".")
        self._package = parts[0]
        while parts:
            prefix = f"{prefix}.{parts.pop(0)}".lstrip(".")
            spec = find_spec(prefix, path, self._directory)
            if spec is None or not (spec.origin or spec.submodule_search_locations):
                return []
            path = spec.submodule_search_locations
            if path is not None and not parts:
                parts = ["__main__"]
            if spec.origin and os.path.isfile(spec.origin):
                sources += self._source(spec.origin, prefix if path is not None else prefix.rpartition(".")[0])
        return sources

    def _source(self, path: str, package: str) -> list[ModuleSource]:
        self.read_paths.add(os.path.realpath(path))
        return [ModuleSource(read_source(path), lambda name, level: self._imported(name, level, package))]

    def _imported(self, name: str, level: int, package: str) -> list[ModuleSource]:
        """The program's own modules that an import executes, except those read before."""
        if level:
            base = package.split(".")[: len(package.split(".")) - level + 1]
            name = ".".join(filter(None, [*base, name]))
        sources, path, prefix = [], None, ""
        for part in filter(None, name.split(".")):
            prefix = f"{prefix}.{part}".lstrip(".")
            spec = find_spec(prefix, path, self._directory)
            if spec is None or not self._is_own(spec):
                break
            path = spec.submodule_search_locations
            if spec.origin and spec.origin.endswith(".py") and os.path.realpath(spec.origin) not in self.read_paths:
                sources += self._source(spec.origin, prefix if path is not None else prefix.rpartition(".")[0])
            if path is None:
                break
        return sources

    def _is_own(self, spec: importlib.machinery.ModuleSpec) -> bool:
        places = list(spec.submodule_search_locations or [spec.origin or ""])
        if spec.name.partition(".")[0] == self._package:
            return all(place.startswith("/") for place in places)
        return all(place.startswith("/") and not self._is_installed(place) for place in places)

    def _is_installed(self, path: str) -> bool:
        """Whether a file is installed; the files beside an installed script count as the program's own."""
        standard, beside = os.path.dirname(os.__file__), os.path.join(self._directory, "")
        path = path[len(beside) - 1 :] if path.startswith(beside) else path
        return path.startswith(standard + os.sep) or f"{os.sep}site-packages{os.sep}" in path or "dist-packages" in path


def outermost_package(path: str) -> str:
    """The name of the outermost package that contains a script, "" if none does."""
    name, directory = "", os.path.dirname(os.path.realpath(path))
    while os.path.isfile(os.path.join(directory, "__init__.py")):
        directory, name = os.path.split(directory)
    return name


def find_spec(name: str, path: Path, directory: str) -> importlib.machinery.ModuleSpec | None:
    """The spec that the import system finds with `directory` first in sys.path; imports no parents."""
    if path is not None:
        return importlib.machinery.PathFinder.find_spec(name, path)
    if name in sys.builtin_module_names:
        return None
    found = importlib.machinery.PathFinder.find_spec(name, [directory])
    if found is not None and found.origin:
        return found
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec = find(name, None) if find is not None else None
        if spec is not None:
            return spec  # type: ignore[no-any-return]
    return found


def read_source(path: str) -> str:
    """The text of a module, decoded by its declared encoding; UnparsableSource if that fails."""
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UnparsableSource(str(error)) from error

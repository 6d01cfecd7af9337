"""A digest of the program that runs in this process: another version of it must not restore a copy of the state."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from types import FrameType

from ..call_site import LIBRARIES

_GENERATED = "__autograph_generated_file"  # another name in each process
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # in_user_process
_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = "-packages" + os.sep
_files: dict[str, bytes] = {}  # digests of files as they were when this process first asked: it runs no later edit


def program_digest() -> str:
    """A digest of the sources of the program's own modules, and the versions of TensorFlow and Keras.

    The packages of the functions that lead to the call are the program's own, even if they are installed.
    """
    found = hashlib.sha256()
    for name in LIBRARIES:
        found.update(str(getattr(sys.modules.get(name), "__version__", "")).encode())
    packages = set(_packages_of(sys._getframe())).difference((*LIBRARIES, "tftraining"))
    for path in sorted({path for name, path in _loaded() if _is_own(name, path, packages)}):
        found.update(_digest_of(path))
    return found.hexdigest()


def distributions_digest() -> str:
    """A digest of the installed distributions that loaded modules belong to: of their metadata's list of files."""
    paths = {path for _, path in _loaded() if _INSTALLED in path}
    places = {path[: path.index(_INSTALLED) + len(_INSTALLED)] for path in paths}
    found = hashlib.sha256()
    for record in sorted(each for place in places for each in _records(place)):
        place = os.path.dirname(os.path.dirname(record)) + os.sep
        with open(record, encoding="utf-8") as file:
            text = file.read()
        if any(place + line.partition(",")[0] in paths for line in text.splitlines()):
            found.update(text.encode())
    return found.hexdigest()


def _records(place: str) -> list[str]:
    found = [os.path.join(place, name, "RECORD") for name in os.listdir(place) if name.endswith(".dist-info")]
    return [each for each in found if os.path.isfile(each)]


def _loaded() -> Iterator[tuple[str, str]]:
    """The names and files of the loaded modules."""
    for name, module in list(sys.modules.items()):
        if path := getattr(module, "__file__", None):
            yield name, os.path.abspath(path)


def _packages_of(frame: FrameType | None) -> Iterator[str]:
    """The packages and modules of the functions that are running; `python -m company.train` is of `company`."""
    while frame is not None:
        for name in ("__package__", "__name__"):
            yield str(frame.f_globals.get(name)).partition(".")[0]
        frame = frame.f_back


def _is_own(name: str, path: str, packages: set[str]) -> bool:
    if path.startswith(_OWN) or os.path.basename(path).startswith(_GENERATED):
        return False
    if _INSTALLED in path:
        return name.partition(".")[0] in packages
    return not path.startswith(_STANDARD)


def _digest_of(path: str) -> bytes:
    """The digest of a file, or of the archive in which it is, as this process has first seen it; b"" if it is gone."""
    while not os.path.isfile(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    if path not in _files and os.path.isfile(path):
        with open(path, "rb") as file:
            _files[path] = hashlib.sha256(file.read()).digest()
    return _files.get(path, b"")

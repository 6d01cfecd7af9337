"""The names of a copy: what a side of `tftj cp` means, and where its files go. Pure.

A path in a job's storage is relative to the job's directory, or absolute as the job's programs see it. It stays below
the mount. What a copy makes of its two paths is what `cp -r` makes of them, but that missing directories are made.
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tftraining_client.errors import UserError
from tftraining_client.files.serve import DIRECTORY, FILE

_REMOTE = re.compile(r"(?:([a-z][a-z0-9.-]*)/)?([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?):(.*)", re.DOTALL | re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:([\\/]|$)")
SIDES = (
    "one side of a copy is JOB:PATH, the other a path of this machine (one with a colon: ./a:b); the namespace is "
    "named by -n"
)


class Remote(NamedTuple):
    """A path in the storage of a job."""

    job: str
    path: str


class Entry(NamedTuple):
    """A file or directory below a path, whose own entry has the name ""."""

    name: str
    kind: str
    size: int
    modified: int


@dataclass(frozen=True)
class Source:
    """A file to copy, and its place."""

    source: str
    target: str
    size: int


@dataclass(frozen=True)
class Plan:
    """A copy: directories to make, files, and what is left out, with the reason."""

    directories: tuple[str, ...]
    files: tuple[Source, ...]
    left_out: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(each.size for each in self.files)


REASONS = {
    "leaves": "its link leads out of the volume",
    "broken": "its link leads nowhere",
    "loop": "its link leads back to where it is",
    "special": "it is no regular file",
    "unreadable": "it cannot be read",
    "missing": "it is gone",
}


def remote(text: str, drives: bool = False) -> Remote | None:
    """The remote side in `digits:models` or `tftrainingjob/digits:models`; None for a path of this machine.
    `drives`: `C:` is one."""
    found = _REMOTE.fullmatch(text)
    if found is None or (drives and _DRIVE.match(text)):
        return None
    kind, job, path = found.groups()
    return Remote(f"{kind}/{job}" if kind else job, path)


def in_storage(path: str, directory: str, mount: str) -> str:
    """The absolute path in the pods of the job; UserError for one that leaves the volume."""
    root = posixpath.normpath(mount)
    whole = posixpath.normpath(posixpath.join(directory, path))
    # Two leading slashes stay two.
    whole = f"/{whole.lstrip('/')}"
    if "\0" in path or posixpath.commonpath([root, whole]) != root:
        raise UserError(
            f"{path} is not in the storage of the job: a path is relative to {directory}, or absolute below {root}"
        )
    return whole


def place(source: str, kind: str, target: str, target_kind: str) -> str:
    """Where a source of that kind goes: the target, or below it under the last name of the source."""
    name = posixpath.basename(source.rstrip("/"))
    below = posixpath.join(target, name) if name not in ("", ".", "..") else target
    if target_kind == DIRECTORY:
        return below
    if target_kind == FILE and (kind == DIRECTORY or target.endswith("/")):
        raise UserError(f"{target} is a file, not a directory")
    return below if target.endswith("/") and kind == FILE else target


def plan(source: str, entries: Sequence[Entry], target: str, forbidden: str = "") -> Plan:
    """The copy of a path with these entries. UserError if an entry has a name that leads elsewhere (`check`)."""
    directories, files, left_out = [], [], []
    for entry in entries:
        check(entry.name, forbidden)
        here, there = (posixpath.join(each, entry.name) if entry.name else each for each in (source, target))
        if entry.kind == FILE:
            files.append(Source(here, there, entry.size))
        elif entry.kind == DIRECTORY:
            directories.append(there)
        else:
            left_out.append(f"{here} is left out: {REASONS.get(entry.kind, entry.kind)}")
    return Plan(tuple(directories), tuple(files), tuple(left_out))


def check(name: str, forbidden: str) -> None:
    """UserError for a relative path that leads out of its directory: the other side may be hostile. `forbidden` are
    characters that mean something on the machine that writes."""
    parts = name.split("/") if name else []
    if set("\0" + forbidden) & set(name) or any(each in ("", ".", "..") for each in parts):
        raise UserError(f"the other side names a file that leads elsewhere: {name!r}; nothing of it is written")

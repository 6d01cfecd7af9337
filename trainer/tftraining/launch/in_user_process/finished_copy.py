"""Copies of the end of a `fit`: directories `<backup>.finished-<name>` with a mark file, kept until the job has ended.

A copy is valid only for the job that made it, and only with its mark. A list file names every copy, and every backup
set aside (backup_owner.py), so that the launcher can remove them; it must never remove another directory. Local paths
only, and only the standard library: the user's interpreter loads this module too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
LIST_NAME = ".tftraining-finished"
MARK = "finished.json"
STATE = "final"  # prefix of the files with the state
MAX_COPIES = 20  # the most copies of one backup
_NAME = re.compile(r".\.(finished|aside)-[0-9a-f]+$", re.DOTALL)


def list_file(directory: Path | None, scratch: Path, member: str) -> Path:
    """The list file of a member: in the job's directory if there is one, because that outlives the pod."""
    return (directory or scratch) / f"{LIST_NAME}-{member}"


def copy_path(backup: str, identity: str) -> str:
    """The path of the end of the `fit` with this identity, or one that begins with it."""
    return f"{backup}.finished-{identity[:10]}"


def copies(backup: str) -> list[str]:
    """All ends of `fit` beside a backup. OSError if the directory cannot be read."""
    directory, name = os.path.split(backup)
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    found = [os.path.join(directory, each) for each in names if each.startswith(f"{name}.finished-")]
    return list(filter(_NAME.search, found))


def read_mark(path: str, uid: str) -> dict[str, Any]:
    """The content of a copy's mark; {} without one of this job, or if the sizes of its files have changed."""
    mark = read_json(os.path.join(path, MARK))
    return mark if mark.get("uid") == uid and mark.get("sizes") == _sizes(path) else {}


def write_mark(path: str, content: Mapping[str, Any]) -> None:
    """Write the mark, which makes the copy valid."""
    os.makedirs(path, exist_ok=True)
    write_json(os.path.join(path, MARK), {**content, "sizes": _sizes(path)})


def read_json(path: str) -> dict[str, Any]:
    """The mapping in a file; {} if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: str, content: Mapping[str, Any]) -> None:
    """Write the mapping atomically, in a directory that this makes."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, default=plain)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def plain(value: Any) -> Any:
    """A NumPy number or a tensor as JSON types."""
    array = value.numpy() if hasattr(value, "numpy") else value
    return array.tolist() if hasattr(array, "tolist") else str(value)


def wait_until(look: Callable[[], T], seconds: float) -> T:
    """Wait for what another machine has done, which shared storage may show late; the last that `look` has seen."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def remove(path: str) -> None:
    """Remove a file or directory if it exists, without following a link. OSError if that fails."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def add_to_list(path: str, file: str) -> None:
    """Add a directory to the list file; call it before making the directory."""
    os.makedirs(os.path.dirname(file), exist_ok=True)
    if path not in _listed(file):
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(path) + "\n")


def remove_listed(file: Path) -> list[str]:
    """Remove all copies that are listed, then the list file; return one error line for each that remains.

    A backup set aside returns to its place: its call has not begun again, as if the backup had never been moved.
    """
    problems = []
    for path in _listed(str(file)):
        backup, aside, _ = path.rpartition(".aside-")
        try:
            if aside and os.path.isdir(path) and not os.path.lexists(backup):
                os.rename(path, backup)
            remove(path)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
    if not problems:
        with contextlib.suppress(OSError):
            file.unlink()
    return problems


def _listed(file: str) -> list[str]:
    """The plausible paths in the list file: absolute, with the name of a copy or of a backup set aside."""
    found = []
    with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            with contextlib.suppress(ValueError):
                found.append(str(json.loads(line)))
    return [each for each in found if os.path.isabs(each) and _NAME.search(each)]


def _sizes(path: str) -> dict[str, int]:
    names = [name for name in os.listdir(path) if name.startswith(STATE)]
    return {name: os.path.getsize(os.path.join(path, name)) for name in names}

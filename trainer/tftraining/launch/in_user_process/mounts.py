"""Which file system has a path, by the text of /proc/self/mountinfo (proc(5)). It changes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/")
POD_VOLUME = "/volumes/kubernetes.io~empty-dir/"  # in the path of an emptyDir on the node


class Mount(NamedTuple):
    """One mount: where it is, which directory of its file system is there, and the kind of that file system."""

    point: Path
    root: str
    kind: str

    @property
    def is_of_pod(self) -> bool:
        """Whether it lives and dies with the pod that sees it: the container's own disk, memory, or an emptyDir."""
        return self.point == ROOT or self.kind == "tmpfs" or POD_VOLUME in self.root


def mount_of(path: Path, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that has a path; the last one of several at the same place counts."""
    having = [each for each in mounts if each.point in (path, *path.parents)]
    return max(reversed(having), key=lambda each: len(each.point.parts), default=None)


def parse_mounts(text: str) -> list[Mount]:
    """The mounts in the text of /proc/self/mountinfo."""
    found = []
    for line in text.splitlines():
        fields, _, behind = line.partition(" - ")
        root, point = (_unescaped(each) for each in fields.split(" ")[3:5])
        found.append(Mount(Path(point), root, behind.split(" ")[0]))
    return found


def read_mounts() -> list[Mount]:
    """The mounts that this process sees; empty if they cannot be read."""
    try:
        return parse_mounts(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    except (OSError, ValueError):
        return []


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)

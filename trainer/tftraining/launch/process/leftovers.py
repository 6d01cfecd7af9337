"""Removes, before a restart, what the dead program has left and a new container would not have: its temporary files,
its segments of shared memory, and the locks of tf.data's caches.

The program names them (in_user_process/leftovers.py). Only what is this member's alone is removed: temporary files on
the disk of the container itself, and caches there or in a volume that lives and dies with the pod. This module must
never follow a link, nor touch what the program has not named, nor run while a process of the program lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tftraining.launch.in_user_process.leftovers import (
    CACHE,
    MOST_BYTES,
    SEGMENT,
    SHARED_MEMORY,
    SUFFIX,
    TEMPORARY,
    path_of,
)
from tftraining.launch.in_user_process.mounts import ROOT, Mount, mount_of, read_mounts

PATIENCE_SECONDS = 1.0  # for which a start waits; the removal of more goes on beside the program
SHARD = r"_\d+\.(lockfile|(data-\d+-of-\d+|index)(\.tempstate\d+)?)"  # of a cache that is not complete


@dataclass(frozen=True)
class OwnPlaces:
    """The places that no other member reaches. `temporary` is the directory for temporary files, None if it may be
    shared. `alone`: the member has a container for itself; else (`tftj run`) only that directory is its own."""

    temporary: Path | None
    alone: bool

    def has_temporary(self, path: Path, mounts: Sequence[Mount]) -> bool:
        """Whether this temporary file is on the container's own disk, and nothing else is mounted there."""
        if self.temporary is None or self.temporary not in path.parents:
            return False
        own, having = mount_of(self.temporary, mounts), mount_of(path, mounts)
        mounted_within = any(path in (each.point, *each.point.parents) for each in mounts)
        return own is not None and having == own and not mounted_within and (not self.alone or own.point == ROOT)

    def has_cache(self, path: Path, mounts: Sequence[Mount]) -> bool:
        """Whether only this member can have written the cache."""
        if not self.alone:
            return self.temporary is not None and self.temporary in path.parents
        mount = mount_of(path, mounts)
        return mount is not None and mount.is_of_pod


def own_places(environment: Mapping[str, str], secret_file: Path, local: bool) -> OwnPlaces:
    """The own places of this member. `local`: under `tftj run`, which makes the temporary directory of each replica
    beside the job's key."""
    told = (Path(environment[name]) for name in ("TMPDIR", "TEMP", "TMP") if environment.get(name))
    temporary = next((each for each in told if each.is_dir()), Path("/tmp"))
    if local and temporary.parent != secret_file.parent:
        return OwnPlaces(None, alone=False)
    return OwnPlaces(temporary.resolve(), alone=not local)


class Leftovers:
    """What the programs of one launcher leave. `log` logs a line for people."""

    def __init__(self, own: OwnPlaces, log: Callable[[str], None]) -> None:
        self._own = own
        self._log = log
        self._record: Path | None = None

    def begin(self, page: Path) -> None:
        """Create the record of the next program, whose progress page is `page`."""
        self._record = page.with_name(page.name + SUFFIX)
        with contextlib.suppress(OSError):
            self._record.touch(mode=0o600, exist_ok=False)

    async def remove(self) -> None:
        """Remove what the dead program has left; wait no longer than PATIENCE_SECONDS."""
        if entries := self._take():
            removal = asyncio.get_running_loop().run_in_executor(None, self._remove, entries)
            await asyncio.wait({removal}, timeout=PATIENCE_SECONDS)

    def close(self) -> None:
        """Forget the record; the leftovers of the last program stay."""
        self._take()

    def _take(self) -> list[bytes]:
        """The entries of the record, which is removed."""
        record, self._record = self._record, None
        entries: list[bytes] = []
        if record is not None:
            with contextlib.suppress(OSError):
                with record.open("rb") as file:
                    entries = file.read(2 * MOST_BYTES).split(b"\0")[:-1]
                record.unlink()
        return entries

    def _remove(self, entries: Sequence[bytes]) -> None:
        mounts = read_mounts()
        for entry in dict.fromkeys(entries):
            named = Path(os.fsdecode(path_of(entry)))
            if not named.is_absolute() or named.name in ("", ".."):
                continue
            path = named.parent.resolve() / named.name
            kind = entry[:1]
            temporary = kind == TEMPORARY and self._own.has_temporary(path, mounts)
            if temporary or (kind == SEGMENT and _is_segment(path, entry)):
                _remove_own(path)
            elif kind == CACHE and (shards := _incomplete_shards(path)):
                self._free_cache(path, shards, mounts)

    def _free_cache(self, path: Path, shards: Sequence[Path], mounts: Sequence[Mount]) -> None:
        if self._own.has_cache(path, mounts):
            for each in shards:
                _remove_own(each)
            self._log(f"tftraining: removed the lock and the incomplete shards of the cache {path}")
        else:
            self._log(
                f"tftraining: the lock of the cache {path} stays, for another member may hold it; if none does, "
                f"remove {shards[0]}, or put the cache on the container's own disk"
            )


def _incomplete_shards(cache: Path) -> list[Path]:
    """The lock and the shards of a cache, the lock first; none if it is complete or has no lock."""
    with contextlib.suppress(OSError):
        if not cache.with_name(f"{cache.name}.index").exists():
            found = [each for each in cache.parent.iterdir() if re.fullmatch(re.escape(cache.name) + SHARD, each.name)]
            found.sort(key=lambda each: each.suffix != ".lockfile")
            return found if found and found[0].suffix == ".lockfile" else []
    return []


def _is_segment(path: Path, entry: bytes) -> bool:
    """Whether this is the segment of shared memory that the entry tells of, and no later one of its name."""
    try:
        return (
            path.parent == Path(os.fsdecode(SHARED_MEMORY))
            and b"s%d/" % path.lstat().st_ino == entry[: entry.find(b"/") + 1]
        )
    except OSError:
        return False


def _remove_own(path: Path) -> None:
    """Remove a file or a directory of our user; leave a link alone."""
    with contextlib.suppress(OSError):
        found = path.lstat()
        if found.st_uid == os.geteuid() and not path.is_symlink():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.is_file():
                path.unlink()

"""Notes what a killed program would leave in its container and the next one would meet: temporary files and
directories, segments of shared memory, and the files of tf.data's `cache(filename)`.

The launcher reads the record and removes them before a restart (process/leftovers.py); a restarted container would not
have them either. Every Python of the program imports this module, which must import next to nothing, never fail, and
never remove anything.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes longer than this whole module
if TYPE_CHECKING:
    from typing import Any

SUFFIX = ".left"  # of the record, after the path of the progress page
# The first byte of an entry. An absolute path follows, behind the inode of a segment, and a NUL.
TEMPORARY, CACHE, SEGMENT = b"t", b"c", b"s"
SHARED_MEMORY = b"/dev/shm/"
LIMIT_BYTES, MOST_BYTES = 1 << 16, 1 << 20  # the record is shortened first at this size, and never grows beyond that
EVENTS = ("tempfile.mkdtemp", "tempfile.mkstemp")


class Record:
    """The record at `path`, which the launcher has created. Many processes append to it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._limit = LIMIT_BYTES

    def note(self, kind: bytes, path: bytes) -> None:
        """Append an entry; do nothing if the record is gone or full."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if (size := os.fstat(fd).st_size) > self._limit:
                size = _shorten(fd, size)
                self._limit = max(LIMIT_BYTES, 2 * size)
            if size < MOST_BYTES:
                os.write(fd, kind + path + b"\0")
        finally:
            os.close(fd)


def path_of(entry: bytes) -> bytes:
    """The path in an entry; a wrong entry has none."""
    return entry[entry.find(b"/") :] if b"/" in entry else b""


def _shorten(fd: int, size: int) -> int:
    """Drop what the program has removed itself; the size that is left. An entry that another process appends meanwhile
    may get lost."""
    entries = os.pread(fd, size, 0).split(b"\0")[:-1]
    kept = b"".join(each + b"\0" for each in entries if each[:1] == CACHE or os.path.lexists(path_of(each)))
    os.ftruncate(fd, 0)
    os.write(fd, kept)
    return len(kept)


class _Sys:
    """Stands for `sys` in the module tempfile, which announces each file to sys.audit just before it makes it."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def audit(self, event: str, *arguments: Any) -> None:
        sys.audit(event, *arguments)
        if event in EVENTS:
            try:
                path = os.path.abspath(os.fsencode(arguments[0]))
                if not os.path.lexists(path):  # else it is of another process: tempfile tries another name
                    self._record.note(TEMPORARY, path)
            except Exception as error:
                sys.stderr.write(f"tftraining: a temporary file may stay: {error!r}\n")


class _SharedMemory:
    """Stands for `_posixshmem` in the module multiprocessing.shared_memory. The process that removes the segments of a
    killed program is killed with it."""

    def __init__(self, posix: Any, record: Record) -> None:
        self._posix = posix
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._posix, name)

    def shm_open(self, path: Any, flags: Any, *arguments: Any, **named: Any) -> Any:
        fd = self._posix.shm_open(path, flags, *arguments, **named)
        try:
            if flags & os.O_CREAT and flags & os.O_EXCL:
                name = os.fsencode(path).lstrip(b"/")
                self._record.note(SEGMENT + b"%d" % os.fstat(fd).st_ino, SHARED_MEMORY + name)
        except Exception as error:
            sys.stderr.write(f"tftraining: shared memory may stay: {error!r}\n")
        return fd


def install(page: str) -> None:
    """Note what is left from now on, or from the import of the modules on that make it."""
    record = Record(page + SUFFIX)
    sys.meta_path.insert(0, _Finder(record))
    for name, extend in _EXTEND.items():
        if name in sys.modules:
            extend(sys.modules[name], record)


def _extend_shared_memory(module: Any, record: Record) -> None:
    """Extend multiprocessing.shared_memory, unless it is another one than we know."""
    begin = getattr(getattr(module, "SharedMemory", None), "__init__", None)
    used = getattr(getattr(begin, "__code__", None), "co_names", ())
    if {"_posixshmem", "shm_open"} <= set(used) and hasattr(module, "_posixshmem"):
        module._posixshmem = _SharedMemory(module._posixshmem, record)


def _extend_tempfile(module: Any, record: Record) -> None:
    """Extend tempfile, unless it is another one than we know."""
    makers = [getattr(module, name, None) for name in ("mkdtemp", "_mkstemp_inner")]
    used = [set(getattr(getattr(each, "__code__", None), "co_names", ())) for each in makers]
    if getattr(module, "_sys", None) is sys and all({"_sys", "audit"} <= each for each in used):
        module._sys = _Sys(record)


_EXTEND = {"tempfile": _extend_tempfile, "multiprocessing.shared_memory": _extend_shared_memory}


class _Finder:
    """Meta path finder: lets the other finders find these modules, and extends them."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _EXTEND:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._wrap(spec.loader, _EXTEND[name])
                return spec
        return None

    def _wrap(self, loader: Any, extend: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: Any) -> None:
            execute(module)
            extend(module, self._record)

        loader.exec_module = exec_module

"""Remove the temporary save directories that the non-chief workers of a finished job have left.

Runs once, in a short-lived pod that mounts the job's storage, when no pod of the job can still write:

    python -m tftraining.cleanup --root /training/my-job --save-dir . --save-dir backup --index 1 --index 2

The cleanup removes the directories `workertemp_<index>` directly inside each save directory, for the given indexes, and
nothing else. It must never follow a symbolic link, not even in the root's own path, and must never leave the root: it
opens every directory relative to its parent's descriptor, so a path swapped in between leads nowhere. The cleanup needs
only the standard library of Python 3.9 or later; for a root in a bucket (`gs://bucket/my-job`) also TensorFlow. Running
it again is harmless.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NoReturn

TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_LOG_BYTES = 4096  # the kubelet truncates a longer message
MAX_DEPTH = 100  # each level takes a file descriptor and five stack frames, and both are limited

OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutOfTimeError(Exception):
    """The cleanup ran out of time. Not an OSError: a file system's own time-out is a failure of one path only."""


def say(text: str) -> None:
    """Print a line at once; undecodable bytes of file names are escaped."""
    print("cleanup: " + text.encode("utf-8", "backslashreplace").decode(), flush=True)


@contextmanager
def open_directory(path: PurePosixPath, parent: int | None = None) -> Iterator[int]:
    """Open a directory component by component, so that none can be a link; `path` is absolute or below `parent`.

    OSError if a component is a link or not a directory, FileNotFoundError if it does not exist.
    """
    descriptor = os.open(path.root or ".", OPEN_DIRECTORY, dir_fd=parent)
    try:
        for part in path.relative_to(path.root).parts:
            below = os.open(part, OPEN_DIRECTORY, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass
class Cleanup:
    """One run: its deadline (monotonic seconds), the count of removed directories, the failures."""

    deadline: float
    removed: int = 0
    failed: list[dict[str, str]] = field(default_factory=list)

    def clean(self, root: PurePosixPath, save_dirs: Sequence[PurePosixPath], indexes: Sequence[int]) -> None:
        """Clean the directories `save_dirs` (relative) below the absolute path `root`; missing ones are clean."""
        try:
            self._inside(root, None, lambda descriptor: self._clean_all(descriptor, save_dirs, indexes))
        except OutOfTimeError:
            self._fail(root, "not finished in time")

    def clean_bucket(self, root: str, save_dirs: Sequence[PurePosixPath], indexes: Sequence[int]) -> None:
        """Clean the directories `save_dirs` (relative) below the URI `root`; missing ones are clean."""
        from tftraining import bucket_cleanup  # noqa: PLC0415  imports TensorFlow

        def count(path: str) -> None:
            self.removed += 1
            say(f"removed {path}")

        paths = [
            bucket_cleanup.join(root, str(save_dir), f"workertemp_{index}")
            for save_dir in save_dirs
            for index in indexes
        ]
        bucket_cleanup.remove_temporary(paths, self.deadline, count, self._fail)

    def to_json(self) -> str:
        """The result, short enough for a termination message; the last entry counts the failures that do not fit."""
        for shown in range(min(len(self.failed), 64), -1, -1):
            hidden = len(self.failed) - shown
            rest = [{"path": "", "error": f"and {hidden} more"}] if hidden else []
            text = json.dumps({"removed": self.removed, "failed": self.failed[:shown] + rest})
            if len(text) <= TERMINATION_LOG_BYTES:
                break
        return text

    def _inside(self, path: PurePosixPath, parent: int | None, action: Callable[[int], None]) -> None:
        try:
            with open_directory(path, parent) as descriptor:
                action(descriptor)
        except FileNotFoundError:
            say(f"no directory {path}: nothing to remove")
        except OSError as error:
            linked = error.errno in (errno.ELOOP, errno.ENOTDIR)
            self._fail(path, "a symbolic link or not a directory; skipped" if linked else str(error.strerror))

    def _clean_all(self, root: int, save_dirs: Sequence[PurePosixPath], indexes: Sequence[int]) -> None:
        for save_dir in save_dirs:
            self._inside(save_dir, root, partial(self._clean_save_directory, save_dir, indexes))

    def _clean_save_directory(self, save_dir: PurePosixPath, indexes: Sequence[int], parent: int) -> None:
        for index in indexes:
            self._clean_one(parent, save_dir / f"workertemp_{index}")

    def _clean_one(self, parent: int, path: PurePosixPath) -> None:
        try:
            kind = os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISLNK(kind):
            self._fail(path, "a symbolic link; skipped")
        elif not stat.S_ISDIR(kind):
            self._fail(path, "not a directory; skipped")
        elif self._remove_tree(parent, path):
            self.removed += 1
            say(f"removed {path}")

    def _remove_tree(self, parent: int, path: PurePosixPath, depth: int = 0) -> bool:
        """Remove the directory `path.name` in `parent`, and as much of its content as possible; True if all is gone."""
        if depth > MAX_DEPTH:
            self._fail(path, f"nested more than {MAX_DEPTH} directories deep")
            return False
        gone = self._attempt(path, lambda: self._empty(parent, path, depth))
        return gone and self._attempt(path, lambda: os.rmdir(path.name, dir_fd=parent))

    def _empty(self, parent: int, path: PurePosixPath, depth: int) -> bool:
        with open_directory(PurePosixPath(path.name), parent) as descriptor:
            with os.scandir(descriptor) as scan:
                entries = [(path / entry.name, entry.is_dir(follow_symlinks=False)) for entry in scan]
            gone = [self._remove_entry(descriptor, inner, is_directory, depth) for inner, is_directory in entries]
        return all(gone)

    def _remove_entry(self, parent: int, path: PurePosixPath, is_directory: bool, depth: int) -> bool:
        if is_directory:
            return self._remove_tree(parent, path, depth + 1)
        return self._attempt(path, lambda: os.unlink(path.name, dir_fd=parent))

    def _attempt(self, path: PurePosixPath, action: Callable[[], bool | None]) -> bool:
        """Run `action` before the deadline; False if it returns False or fails (recorded), True if the path is gone."""
        if time.monotonic() >= self.deadline:
            raise OutOfTimeError
        try:
            return action() is not False
        except FileNotFoundError:
            return True
        except OSError as error:
            self._fail(path, error.strerror or str(error))
            return False

    def _fail(self, path: PurePosixPath | str, error: str) -> None:
        self.failed.append({"path": str(path), "error": error})
        say(f"cannot remove {path}: {error}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exit with code 2 and one line, without the usage."""
        self.exit(2, f"{self.prog}: {message}\n")


def _plain(text: str) -> PurePosixPath:
    if not text or "\0" in text or ".." in text.split("/"):
        raise argparse.ArgumentTypeError(f"{text!r} must be the path of a directory without '..'")
    return PurePosixPath(text)


def _root(text: str) -> PurePosixPath | str:
    path = _plain(text)
    if text.startswith("gs://"):
        return text
    # `//x` is absolute too, but has another root in pathlib and POSIX.
    if path.root != "/" or len(path.parts) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} must be an absolute path below /")
    return path


def _save_dir(text: str) -> PurePosixPath:
    path = _plain(text)
    if path.is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} must be relative to the root")
    return path


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} must be a worker's index: 0, 1, 2 …")
    return int(text)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; for invalid ones, SystemExit(2) after one line."""
    parser = _Parser(prog="cleanup", description="Remove the temporary save directories of a job's non-chief workers.")
    add = parser.add_argument
    add("--root", type=_root, required=True, help="the job's directory, an absolute path or gs://…")
    add(
        "--save-dir",
        type=_save_dir,
        action="append",
        default=[],
        help="save directory, relative to the root; may be repeated",
    )
    add("--index", type=_index, action="append", default=[], help="index of a non-chief worker; may be repeated")
    add("--timeout", type=_seconds, default=60.0, help="time limit in seconds (60)")
    add("--termination-log", type=Path, help=f"file for the result as JSON (default: {TERMINATION_LOG} if it exists)")
    return parser.parse_args(argv)


def write_result(cleanup: Cleanup, path: Path | None) -> None:
    """Write the JSON result to `path`, or to the pod's termination log if there is one."""
    if path is None and not TERMINATION_LOG.exists():
        return
    (path or TERMINATION_LOG).write_text(cleanup.to_json(), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cleanup: 0 if all is gone, 1 if something could not be removed, SystemExit(2) for bad arguments."""
    arguments = parse(argv)
    cleanup = Cleanup(deadline=time.monotonic() + arguments.timeout)
    clean = cleanup.clean_bucket if isinstance(arguments.root, str) else cleanup.clean
    clean(arguments.root, arguments.save_dir, sorted(set(arguments.index)))
    say(f"temporary save directories removed: {cleanup.removed}, failures: {len(cleanup.failed)}")
    write_result(cleanup, arguments.termination_log)
    return 1 if cleanup.failed else 0


if __name__ == "__main__":
    sys.exit(main())

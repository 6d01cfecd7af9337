"""The directory in memory in which the program backs up its state; it outlives the program.

Without a directory of the operator it is in /dev/shm, for this launcher alone: a lock marks it as in use, and what a
killed launcher has left is removed by the next one of that user. In a directory of the operator, a volume of the pod,
it outlives the launcher too: the next launcher of that member and job takes over the complete copies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tftraining.launch.config.json_text import parse
from tftraining.launch.config.settings import MemoryBackupSettings
from tftraining.launch.in_user_process.memory_backup import copy_file, copy_report, copy_request

PLACE = Path("/dev/shm")
PREFIX = "tftraining-memory-"
LOCK = "lock"
REPORT_BYTES = 57_344  # with a summary of the variables; a frame has room for some more
WAIT_STEPS = 200  # steps before the first copy of a `fit`: one that ends sooner needs none


class MemoryStore:
    """The directory of one launcher. Its methods are fast: they touch names and small files in memory."""

    def __init__(self, directory: Path, lock: int, settings: MemoryBackupSettings, *, lasts: bool) -> None:
        """OSError if the directory cannot be written. `lasts`: an end without a verdict leaves the copies."""
        self.directory = directory
        self.settings = settings
        self._lock: int | None = lock
        self._lasts = lasts
        self._report: dict[str, Any] | None = None
        self._reported: tuple[int, int] | None = None  # which file that report is from
        self.begin_round()

    @classmethod
    def temporary(cls, settings: MemoryBackupSettings, place: Path = PLACE) -> MemoryStore:
        """A new directory in `place`; OSError if that does not exist or cannot be written."""
        remove_abandoned(place)
        unlocked = Path(tempfile.mkdtemp(prefix="tftraining-new-", dir=place))
        lock = _locked(unlocked, create=True)
        # Named only now: without its lock another launcher of this machine would take it for abandoned.
        directory = unlocked.rename(place / f"{PREFIX}{unlocked.name.rpartition('-')[2]}")
        assert lock is not None
        return cls(directory, lock, settings, lasts=False)

    @classmethod
    def lasting(cls, settings: MemoryBackupSettings, place: Path, uid: str, member: str) -> MemoryStore:
        """The directory of this member of the job `uid` in `place`, with the copies that its earlier launcher has left.
        OSError if another launcher uses it."""
        directory = place / f"{PREFIX}{uid}-{member}"
        remove_abandoned(place, but=f"{PREFIX}{uid}-")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (lock := _locked(directory, create=True)) is None:
            raise OSError(f"{directory} is in use by another launcher")
        return cls(directory, lock, settings, lasts=True)

    def held(self) -> list[tuple[int, int]]:
        """Round and step of every complete copy, the oldest first. Ask only while no program runs."""
        return copy_file.held(str(self.directory))

    def begin_round(self) -> None:
        """Forget the report and the request of the last round's program, and what was not fetched. OSError."""
        self._remove(copy_file.FETCHED, copy_file.FAILED, copy_report.NAME)
        self._report = self._reported = None
        self.request(0)
        self.request_summary(0)
        self.request_set_aside(0, None)

    def free(self) -> None:
        """Remove all copies: the members of the coming round make none, and need the memory. OSError."""
        self._remove("copy-", "free-", copy_file.AGREED)

    def remove_suspects(self, first: Mapping[int, int]) -> None:
        """Remove the copies that may be the cause of failures: of these rounds those of this step and later. OSError.
        Call it only while no program runs."""
        for number, step in self.held():
            if step >= first.get(number, step + 1):
                (self.directory / copy_file.name_of(number, step)).unlink(missing_ok=True)

    def go_back(self, number: int, step: int) -> None:
        """Make the copy that is set aside one to restore from; another member has it if it is not here. OSError. Call
        it only while no program runs."""
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            name = copy_file.name_of(number, step)
            os.link(self.directory / copy_file.agreed_name(number, step), self.directory / name)

    def variables(self, agreed: Mapping[str, Any], source: object, uid: str, *, fetching: bool) -> dict[str, str]:
        """The program's variable; `agreed` is the order of the chief's launcher, with the copy that all members hold,
        and `uid` that of the job."""
        told = {
            "directory": str(self.directory),
            "percent": self.settings.max_overhead_percent,
            "restore": agreed.get("restore"),
            "source": source,
            "fetching": fetching,
            "memoryLimit": self.settings.memory_limit,
            "sizeLimit": self.settings.size_limit,
            "waitSteps": WAIT_STEPS,
            "exactness": self.settings.exactness,
            "uid": uid,
            **{key: agreed[key] for key in ("setsAside", "doubted") if key in agreed},
        }
        return {copy_file.VARIABLE: json.dumps(told)}

    def request(self, step: int) -> None:
        """Ask the program for a copy at the end of this step; 0: for none. OSError if the file cannot be written."""
        self._write_request(step, 0)

    def request_summary(self, step: int) -> None:
        """Ask the program to summarize the copy of this step, or the first one behind it; 0: for none. OSError."""
        self._write_request(step, copy_request.SUMMARY)

    def request_set_aside(self, step: int, agreed: tuple[int, int] | None) -> None:
        """Ask the program to set aside the first copy at this step or behind it, and to keep beside it only the copy on
        which all members have `agreed`; 0: for none. OSError likewise."""
        self._write(copy_request.AGREED.pack(*(agreed or (0, 0))), copy_request.ASIDE + copy_request.STEP.size)
        self._write_request(step, copy_request.ASIDE)

    def _write_request(self, step: int, place: int) -> None:
        self._write(copy_request.STEP.pack(step), place)

    def _write(self, data: bytes, place: int) -> None:
        fd = os.open(self.directory / copy_request.NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:  # in place: the program has mapped the file
            os.pwrite(fd, data, place)
        finally:
            os.close(fd)

    def report(self) -> dict[str, Any] | None:
        """The newest report of this round's program; None without one."""
        try:
            found = (self.directory / copy_report.NAME).lstat()
            if self._reported != (changed := (found.st_mtime_ns, found.st_ino)):
                self._report, self._reported = self._read_report(), changed
        except (OSError, ValueError):
            return None
        return self._report

    def _read_report(self) -> dict[str, Any] | None:
        fd = os.open(self.directory / copy_report.NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            told = parse(os.read(fd, REPORT_BYTES))
        finally:
            os.close(fd)
        return told if isinstance(told, dict) else None

    def make_room(self) -> None:
        """Before a copy is fetched: remove what the program would not keep beside it. OSError."""
        held = self.held()
        for each in held[: max(0, len(held) + 1 - copy_file.SLOTS)]:
            (self.directory / copy_file.name_of(*each)).unlink(missing_ok=True)
        self._remove("free-")

    def fail(self, name: tuple[int, int]) -> None:
        """Tell the program that this copy will not come. OSError if that fails."""
        path = self.directory / copy_file.failed_name(*name)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))

    def _remove(self, *prefixes: str) -> None:
        for path in self.directory.iterdir():
            if path.name.startswith(prefixes):
                path.unlink(missing_ok=True)

    def close(self, *, ended: bool) -> None:
        """Remove the directory with all copies, unless it lasts and the job has not `ended`. Call it once or more."""
        if ended or not self._lasts:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(place: Path, but: str = "") -> None:
    """Remove the directories of launchers that do not run any more; `but`: not those so named. Never raises."""
    with contextlib.suppress(OSError):
        for directory in place.glob(f"{PREFIX}*"):
            if but and directory.name.startswith(but):
                continue
            with contextlib.suppress(OSError):
                if (lock := _locked(directory, create=False)) is not None:
                    shutil.rmtree(directory, ignore_errors=True)
                    os.close(lock)


def _locked(directory: Path, *, create: bool) -> int | None:
    """The descriptor that holds the directory's lock; None if another process holds it. OSError if there is no lock."""
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd

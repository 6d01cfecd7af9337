"""The state of one member, as the chief's launcher knows it. Pure; it must never decide anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tftraining.launch.failure.exit import Exit
from tftraining.launch.gang import backup_report
from tftraining.launch.gang.backup_report import STORAGE, BackupReport
from tftraining.launch.gang.stall import WatchedProgram
from tftraining.launch.progress import Snapshot, from_frame, has_reports


@dataclass(frozen=True)
class Hello:
    """What a launcher tells of itself when it joins."""

    incarnation: str = ""  # tells it from other launchers of the same member
    finished_fit_digest: str = ""  # of the command, if its program keeps the end of `fit` (finished_fit.py)
    chief_closed_round: int = 0  # the last round whose connection to the chief's launcher was closed, not silent
    chief_bye_round: int = 0  # the last round in which the chief's launcher said goodbye: its program has ended
    host: str = ""  # its address, as the chief's launcher sees it
    copy_port: int | None = None  # the port at which it serves its copies; None: it serves none

    @classmethod
    def of(cls, frame: Mapping[str, Any]) -> Hello:
        """The hello of a frame; KeyError, TypeError or ValueError if it is malformed."""
        name, digest = str(frame["incarnation"]), str(frame.get("keepsFits", ""))
        host, port = str(frame.get("copyHost") or ""), frame.get("copyPort")
        rounds = int(frame["witness"]), int(frame.get("farewell", 0))
        return cls(name, digest, *rounds, host, None if port is None else int(port))


@dataclass(eq=False)  # compared by identity: comparing the fields of thousands takes long
class Peer:
    """One member. Times are monotonic seconds of the chief's machine.

    `state`: absent (never seen), ready (no program runs), running, done (its program has ended), lost (not connected).
    """

    name: str
    state: str = "absent"
    hello: Hello = Hello()
    last_frame_at: float = 0.0  # when its last frame came
    last_seen_at: float = 0.0  # the same; or later, when the chief's launcher could listen again after a suspension
    round: int = 0
    started_at: float = 0.0
    mode: str = ""
    pid: int | None = None
    stuck_seconds: float = 0.0
    sees_no_gpu: bool = False  # TensorFlow sees none of the GPUs that its container requests
    lingers: bool = False  # the main thread of its program has ended long ago, other threads have not
    leaving: bool = False
    left_cleanly: bool = False  # it disconnected after it reported that its program does not run
    predecessor_seen_at: float = -math.inf  # the last frame of an earlier launcher, whose program may still run
    memory_copies: frozenset[tuple[int, int]] | None = None  # its copies, by round and step; None: it makes none
    stored_copies: frozenset[tuple[int, int]] = frozenset()  # the copies that it has loaded from the job's storage
    backup: BackupReport | None = None  # what its program of this round reports of copies
    prepared_at: float | None = None  # since when its program can start at once
    has_reported: bool = False
    progress: Snapshot = field(default_factory=Snapshot)
    longest_gap: float = 0.0  # seconds: the longest time between two steps of one round, in all rounds
    progress_at: float = 0.0  # when its launcher reported the progress
    exit: Exit | None = None
    exited_at: float = 0.0
    is_spoilt: bool = False  # its program no longer starts in its container (first_step.py)
    consecutive_failures: int = 0  # of an evaluator
    not_before: float = 0.0

    @property
    def is_connected(self) -> bool:
        """Whether its launcher is connected."""
        return self.state not in ("absent", "lost")

    @property
    def has_succeeded(self) -> bool:
        """Whether its program has succeeded: it does not run again in this round."""
        return self.exit is not None and self.exit.success

    def record_join(self, hello: Hello, frame: Mapping[str, Any], now: float) -> None:
        """Take a launcher's hello. Its program does not run, except that an evaluator's may run on, or have ended."""
        if hello.incarnation != self.hello.incarnation:
            # What it holds when it first joins may be from the job's storage; later it also holds its program's copies.
            copies = self.memory_copies if frame.get("copiesFrom") == STORAGE else None
            self.stored_copies, self.backup = copies or frozenset(), None
            if self.state == "lost" and not self.left_cleanly:
                self.predecessor_seen_at = self.last_seen_at
        self.hello = hello
        self.last_frame_at = self.last_seen_at = now
        self.left_cleanly, self.leaving = False, bool(frame.get("leaving"))
        self.prepared_at, self.sees_no_gpu = None, False
        # A new launcher of the chief has no reports yet; a program that has reported steps will do so again.
        self.has_reported = self.has_reported or frame.get("step") is not None
        self.round = int(frame["round"])
        self.state = "running" if frame.get("running") else "ready"

    def record_start(self, number: int, now: float) -> None:
        """Note the start of its program in round `number`."""
        self.state, self.round, self.started_at = "running", number, now
        self.progress, self.backup, self.exit = Snapshot(), None, None
        self.stuck_seconds, self.is_spoilt, self.lingers = 0.0, False, False

    def record_heartbeat(self, frame: Mapping[str, Any], now: float) -> None:
        """Take a heartbeat; TypeError or ValueError if the frame is invalid."""
        if frame.get("prepared", True):
            self.prepared_at = now if self.prepared_at is None else self.prepared_at
        if frame["round"] != self.round or self.state not in ("running", "done"):
            return
        self.mode = str(frame["mode"])
        self.pid = frame["pid"]
        self.stuck_seconds = float(frame["stuck"])
        self.sees_no_gpu = bool(frame.get("noGpu"))
        self.lingers = bool(frame.get("lingers"))
        self._record_report(frame, now)

    def record_exit(self, program_exit: Exit, frame: Mapping[str, Any], now: float) -> None:
        """Note the end of its program."""
        self._record_report(frame, now)
        self.state = "done"
        self.exit, self.exited_at = program_exit, now
        self.is_spoilt = bool(frame.get("spoilt"))

    def watched_program(self) -> WatchedProgram:
        """What stall.py looks at. A program that has finished may take its time to end."""
        is_watched = (self.has_reported or self.progress.connecting) and self.progress.main_exit != 0
        return WatchedProgram(
            self.name, is_watched, self.started_at, self.progress, self.stuck_seconds, self.longest_gap
        )

    def _record_report(self, frame: Mapping[str, Any], now: float) -> None:
        if "backup" in frame:  # not in an exit before the first report
            self.backup = backup_report.from_frame(frame["backup"])
        before = self.progress.last_step_time
        self.progress, self.progress_at = from_frame(frame["progress"], now, self.progress.first_step_time), now
        if before is not None and self.progress.last_step_time is not None:
            self.longest_gap = max(self.longest_gap, self.progress.last_step_time - before)
        self.has_reported = self.has_reported or has_reports(self.progress)

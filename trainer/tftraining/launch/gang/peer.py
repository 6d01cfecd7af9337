"""The state of one member, as the chief's launcher knows it. Pure; it must never decide anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tftraining.launch.failure.exit import Exit
from tftraining.launch.gang.watchdog import Look
from tftraining.launch.progress import Snapshot, from_frame, reports


@dataclass(eq=False)  # compared by identity: comparing the fields of thousands takes long
class Peer:
    """One member. Times are monotonic seconds of the chief's machine.

    `state`: absent (never seen), ready (no program runs), running, done (its program has ended), lost (not connected).
    """

    name: str
    state: str = "absent"
    incarnation: str = ""
    told: float = 0.0  # when its last frame came
    heard: float = 0.0  # the same, or when this launcher began to listen again after it was stopped
    round: int = 0
    started: float = 0.0
    mode: str = ""
    pid: int | None = None
    stuck: float = 0.0
    no_gpu: bool = False  # TensorFlow sees none of the GPUs that its container requests
    leaving: bool = False
    gone: bool = False  # it was lost after it reported that its program does not run, or has said that it leaves
    predecessor: float = -math.inf  # when an earlier launcher of this name was last heard; its program may still run
    elastic: bool = False  # its launcher accepts a round's members in the start frame
    keeps_fits: str = ""  # its program keeps the end of `fit` (finished_fit.py): a digest of the command; "": it cannot
    copies: frozenset[tuple[int, int]] | None = None  # its backups in memory, by round and step; None: it makes none
    prepared: float | None = None  # since when it can start at once
    reporter: bool = False
    progress: Snapshot = field(default_factory=Snapshot)
    ended: Exit | None = None
    ended_at: float = 0.0
    witness: int = 0  # the last round whose chief closed its connection, not only fell silent
    farewell: int = 0  # the last round whose chief told it that the chief leaves and its program does not run
    failures: int = 0  # of an evaluator, in a row
    not_before: float = 0.0

    @property
    def connected(self) -> bool:
        """Whether its launcher is connected."""
        return self.state not in ("absent", "lost")

    @property
    def finished(self) -> bool:
        """Whether its program has succeeded: it does not run again in this round."""
        return self.ended is not None and self.ended.success

    def join(self, incarnation: str, frame: Mapping[str, Any], now: float) -> None:
        """Take a launcher's hello. Its program does not run, except that an evaluator's may run on, or have ended."""
        if self.state == "lost" and incarnation != self.incarnation and not self.gone:
            self.predecessor = self.heard
        self.incarnation = incarnation
        self.told = self.heard = now
        self.gone, self.leaving = False, bool(frame.get("leaving"))
        self.elastic, self.prepared, self.no_gpu = bool(frame.get("elastic")), None, False
        self.keeps_fits = str(frame.get("keepsFits", ""))
        self.witness, self.farewell = int(frame["witness"]), int(frame.get("farewell", 0))
        # A new launcher of the chief has no reports yet; a program that has reported steps will do so again.
        self.reporter = self.reporter or frame.get("step") is not None
        self.round = int(frame["round"])
        self.state = "running" if frame.get("running") else "ready"

    def begin(self, number: int, now: float) -> None:
        """Note the start of its program in round `number`."""
        self.round = number
        self.state = "running"
        self.started = now
        self.stuck = 0.0
        self.progress = Snapshot()
        self.ended = None

    def beat(self, frame: Mapping[str, Any], now: float) -> None:
        """Take a heartbeat; TypeError or ValueError if the frame is invalid."""
        if frame.get("prepared", True):
            self.prepared = now if self.prepared is None else self.prepared
        if frame["round"] != self.round or self.state not in ("running", "done"):
            return
        self.mode = str(frame["mode"])
        self.pid = frame["pid"]
        self.stuck = float(frame["stuck"])
        self.no_gpu = bool(frame.get("noGpu"))  # older launchers do not send it
        self._take(frame["progress"], now)

    def end(self, ended: Exit, frame: Mapping[str, Any], now: float) -> None:
        """Note the end of its program."""
        self._take(frame["progress"], now)
        self.state = "done"
        self.ended, self.ended_at = ended, now

    def look(self) -> Look:
        """The input of the watchdog."""
        return Look(self.name, self.reporter or self.progress.connecting, self.started, self.progress, self.stuck)

    def _take(self, raw: dict[str, Any], now: float) -> None:
        self.progress = from_frame(raw, now, self.progress.first_step_time)
        self.reporter = self.reporter or reports(self.progress)

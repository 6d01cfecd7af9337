"""The history of the gang's training in the chief's launcher: takes reports and restarts, and has the form of /status.

Pure. A report counts once, however many heartbeats repeat it.
"""

from __future__ import annotations

from typing import Any

from tftraining.launch.failure.incident import Incident
from tftraining.launch.gang.peer import Peer
from tftraining.launch.history import Mark, Series, merged


class TrainingHistory:
    """The series since this launcher began, after the one of an earlier launcher once `continue_after` has it."""

    def __init__(self) -> None:
        self.series = Series()
        self._round = 0  # of the last report
        self._report: object = None  # the last report, to recognize it in the next heartbeats
        self._cut: tuple[int, dict[str, Any]] = (-1, {})  # the part of /status, and the revision of the series in it

    def record(self, reporter: Peer | None) -> None:
        """Take the metrics that the program of `reporter` has reported last."""
        if reporter is None or not reporter.progress.metrics:
            return
        progress = reporter.progress
        report = (reporter.round, progress.metrics_time or progress.metrics)
        if report == self._report:
            return
        resumed = progress.first_step if reporter.round != self._round else None
        self._report, self._round = report, reporter.round
        time = progress.metrics_time or progress.updated or 0.0
        self.series.record(progress.metrics_step, progress.metrics_epoch, time, progress.metrics, resumed)

    def mark_restart(self, incident: Incident | None) -> None:
        """Note that programs start again after an incident."""
        if incident is not None:
            self.series.mark(Mark(incident.time, incident.step, incident.reason))

    def continue_after(self, earlier: Series) -> None:
        """Put the series of an earlier launcher of this job before this one."""
        revision = self.series.revision
        self.series = merged(earlier, self.series)
        self.series.revision += revision + 1

    def to_status(self) -> dict[str, Any] | None:
        """The form of /status; None without a report. `after`: the step after which the series has every report."""
        if not len(self.series):
            return None
        if self._cut[0] != self.series.revision:
            self._cut = (self.series.revision, {**self.series.cut().to_json(), "after": self.series.after})
        return self._cut[1]

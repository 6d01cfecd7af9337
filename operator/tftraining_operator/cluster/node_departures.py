"""Whose turn it is to leave a node for a condition: one pod in the cluster in each interval.

A condition that a faulty detector sets on all nodes must not restart all trainings at once. Another operator that takes
over finds the last departure in the jobs. Never deletes anything.
"""

from datetime import datetime, timedelta

from tftraining_api.model.job import readable_status
from tftraining_operator.cluster.jobs import Jobs
from tftraining_operator.plan.avoided_nodes import HOLDS

INTERVAL = timedelta(minutes=1)  # unless the administrator sets another one


class NodeDepartures:
    """The turns, `interval` apart."""

    def __init__(self, jobs: Jobs, interval: timedelta) -> None:
        self._jobs = jobs
        self._interval = interval
        self._last: datetime | None = None

    def take(self, now: datetime) -> datetime | None:
        """Take the turn; if it is not due yet, the time from which it is."""
        last = self._last or self._last_in_jobs()
        self._last = min(last, now) if last is not None else None
        if self._last is not None and (due := self._last + self._interval) > now:
            return due
        self._last = now
        return None

    def _last_in_jobs(self) -> datetime | None:
        """When a job began to avoid a node last, for a condition or for its own failures."""
        statuses = (readable_status(raw.get("status")) for raw in self._jobs.all())
        return max((node.until - HOLDS for status in statuses for node in status.avoided_nodes), default=None)

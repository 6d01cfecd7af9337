"""Errors that the user can fix: one line that names the problem and the fix, shown without a traceback.

`exit_code` is the exit code of `tftj` after the error.
"""

from typing import ClassVar

from tftraining_client.visible import visible


class UserError(Exception):
    """An error that the user can fix. Its message is shown as it is, but for control characters: it may quote a server
    or a program."""

    exit_code: ClassVar[int] = 2

    def __str__(self) -> str:
        return visible(super().__str__())


class JobNotFound(UserError):
    """No job has the name."""


class PermissionDenied(UserError):
    """The caller lacks a right; the message names it."""


class NoCustomResource(UserError):
    """The cluster does not know TFTrainingJobs."""


class ApiUnavailable(UserError):
    """The API server does not answer, or answers with an error of its own."""

    exit_code = 3


class JobEnded(UserError):
    """The job has ended otherwise than awaited."""

    exit_code = 1


class JobFailed(JobEnded):
    """The job has failed. `reason` is that of its status, `log_tail` the last lines of the program, `summary` the
    error in one line."""

    def __init__(self, job: str, reason: str, message: str, log_tail: str) -> None:
        self.summary = f"job {job} failed: {reason}: {' '.join(message.split())}"
        super().__init__("\n".join([self.summary, *log_tail.rstrip().splitlines()]))
        self.job = job
        self.reason = reason
        self.message = message
        self.log_tail = log_tail


class JobDeleted(JobEnded):
    """The job was deleted while it was followed."""


class WaitTimeout(UserError, TimeoutError):
    """The awaited state was not reached in time."""

    exit_code = 124

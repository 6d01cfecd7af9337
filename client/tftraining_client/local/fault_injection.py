"""`--kill worker-1@epoch=2`: kill a member's program (`pod/worker-1`: also its launcher) at a given time. Pure."""

import re
from collections.abc import Collection
from dataclasses import dataclass

from tftraining_client.errors import UserError
from tftraining_client.local.status import Status

_FORM = re.compile(r"(?P<pod>pod/)?(?P<member>[a-z]+-\d+)@(?P<what>epoch|step|seconds)=(?P<value>\d+(\.\d+)?)")


@dataclass(frozen=True)
class Kill:
    """A SIGKILL for a member's program: in an epoch (counted from 1), after a step, or seconds after the start.

    With `pod`, the launcher is killed and its program with it, as in the loss of a pod.
    """

    member: str
    what: str
    value: float
    pod: bool = False

    def __str__(self) -> str:
        return f"{'pod/' if self.pod else ''}{self.member}@{self.what}={self.value:g}"

    def due(self, status: Status, ran_seconds: float) -> bool:
        """Whether to kill now, by the member's own /status and the seconds since the programs first ran."""
        if not status.get("pid"):
            return False
        if self.what == "seconds":
            return ran_seconds >= self.value
        reached = (status.get("progress") or {}).get(self.what)
        return reached is not None and reached >= self.value

    def why_never(self, progress: Status, seconds: float) -> str:
        """Why the kill never came due in a job that ended with this progress after `seconds`."""
        if self.what == "seconds":
            return f"the job ended after {seconds:.1f} s"
        reached = progress.get(self.what)
        return f"no {self.what} was reported" if reached is None else f"the job ended at {self.what} {reached}"


def parse_kill(text: str, members: Collection[str]) -> Kill:
    """Parse the value of one --kill; UserError if it is invalid or names a member that the job does not have."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UserError(
            f"--kill {text}: must be MEMBER@epoch=N, MEMBER@step=N or MEMBER@seconds=S, such as worker-1@epoch=2 (its "
            "program) or pod/worker-1@epoch=2 (its launcher too)"
        )
    if found["member"] not in members:
        raise UserError(f"--kill {text}: the job has no {found['member']}, only {', '.join(members)}")
    if found["what"] != "seconds" and "." in found["value"]:
        raise UserError(f"--kill {text}: {found['what']} must be a whole number")
    return Kill(found["member"], found["what"], float(found["value"]), found["pod"] is not None)

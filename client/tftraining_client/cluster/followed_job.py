"""One job as a watch of its name tells it, until the job is gone. Pure."""

from tftraining_client.cluster.models import Job
from tftraining_client.cluster.watching import Change


class FollowedJob:
    """The newest state of a job; another job of the same name is another job.

    A job may be gone before the watch has listed it: then the list ends without the job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._there = False

    def take(self, change: Change) -> bool:
        """Take a change in; False if the job no longer exists. `job` is then the last state that was seen."""
        if change.type != "LISTED":
            new = Job.of(change.object)
            same = new.uid == self.job.uid
            self._there = same and change.type != "DELETED"
            if same:
                self.job = new
        return self._there

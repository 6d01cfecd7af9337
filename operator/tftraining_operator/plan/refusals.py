"""What a refusal by the API server to create a child means: try again, or tell the user that it never will."""

from datetime import datetime, timedelta

from tftraining_operator.model.observed import LONGEST_MESSAGE, Refusal

LONGEST = timedelta(seconds=60)
EARLIER = "still belongs to an earlier job of this name"
KEY_GONE = "was deleted while launchers with its key run"
# What is left of an earlier job is on its way out: who deletes a job and creates it again waits for nothing else.
SOON = timedelta(seconds=2)


def judge(child: str, status: int, message: str, tries: int, now: datetime) -> Refusal:
    """Judge the answer to the creation of `child` (`pod/x`): `status` is the HTTP status, `tries` counts from 1.

    400 and 422 name a wrong field, a 413 says that the pod is too large, a 403 of Pod Security that it may do too much:
    only another template helps. A quota (403), a webhook, a conflict and the server's own trouble may pass.
    """
    # What is wrong with a PodGroup is the state of the cluster, such as a queue that is closed: its schema was kept to.
    permanent = not child.startswith("podgroup/") and _never(status, message)
    longest = SOON if message == EARLIER else LONGEST
    wait = min(longest, timedelta(seconds=2.0 ** min(tries - 1, 10)))
    message = message[:LONGEST_MESSAGE]
    return Refusal(child=child, message=message, permanent=permanent, retry_at=now + wait)


def _never(status: int, message: str) -> bool:
    return status in (400, 413, 422) or (status == 403 and "violates PodSecurity" in message)

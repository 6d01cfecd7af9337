"""What a refusal by the API server to create a child means: try again, or tell the user that it never will."""

from datetime import datetime, timedelta

from tftraining_operator.model.observed import Refusal

LONGEST = timedelta(seconds=60)


def judge(child: str, status: int, message: str, tries: int, now: datetime) -> Refusal:
    """Judge the answer to the creation of `child` (`pod/x`): `status` is the HTTP status, `tries` counts from 1.

    400 and 422 name a wrong field, a 403 of Pod Security a forbidden one: only another template helps. A quota (403), a
    webhook, a conflict and the server's own trouble may pass.
    """
    permanent = status in (400, 422) or (status == 403 and "violates PodSecurity" in message)
    wait = min(LONGEST, timedelta(seconds=2.0 ** min(tries - 1, 10)))
    return Refusal(child=child, message=message, permanent=permanent, retry_at=now + wait)

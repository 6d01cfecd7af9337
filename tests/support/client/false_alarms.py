"""What `tftj run` and the members must not say of a training that is as it should be."""

import re

from tftraining_api.model.resumes_at import NOT_REPRODUCIBLE, RESUMES_AT

ALARM = re.compile(
    r"TrainsAlone|trained without the other members|NoStep\b|NoProgress|a thread of it still runs"
    r"|outside the job's storage|cannot tell |progress reports stopped|LogEpochs begins anew"
)


def false_alarms(log: str) -> list[str]:
    """The lines of a log that are a false alarm."""
    at_the_step = RESUMES_AT["Step"] in log
    return [line for line in log.splitlines() if ALARM.search(line) or (at_the_step and NOT_REPRODUCIBLE in line)]

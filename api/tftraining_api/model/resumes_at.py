"""Where the next restart resumes, and what is not as in the undisturbed training then, in words for people. Pure.

The launchers report it; the operator and `tftj run` tell it in the same words.
"""

from collections.abc import Sequence

# By status.progress.backup.resumesAt.
RESUMES_AT = {
    "Step": "a restart resumes at the step of the newest backup",
    "StepDrawnAnew": "a restart resumes at the step of the newest backup, and draws the rest of the epoch anew",
    "Epoch": "a restart resumes at the beginning of an epoch",
    "Storage": "a restart resumes from the storage only",
}
NOT_REPRODUCIBLE = (
    "backups are made inside an epoch of an input that is not known to be reproducible: after a restart the epoch may "
    "have other examples"
)


def where(resumes_at: str, why: str = "") -> str:
    """`a restart resumes at the beginning of an epoch: the input is a generator`; "" if unknown."""
    words = RESUMES_AT.get(resumes_at, "")
    return f"{words}: {why}" if words and why else words


def begins_anew(names: Sequence[str]) -> str:
    """`EarlyStopping, MyStop begin anew at a restart`; "" for no names."""
    return f"{', '.join(names)} begin{'s' * (len(names) == 1)} anew at a restart" if names else ""

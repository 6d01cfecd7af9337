"""Messages about restarts, for people. This module never decides anything."""

from tftraining.launch.failure import messages as words
from tftraining.launch.failure.exit import Exit
from tftraining_api.model.names import member_of
from tftraining_api.model.status import RESUMED_TRAINING_DIFFERS, LastRestart

_REASONS = {
    "Grown": "is back",
    "MemberLost": "became unreachable",
    "NodeLost": "was lost with its node",
    "PodDeleted": "was deleted",
    RESUMED_TRAINING_DIFFERS: "found that its resumed training differs from the undisturbed one",
    "Stalled": "stopped making steps",
    "Terminated": "was terminated",
}

_ASKED_FOR = {"Resized": "the number of workers changed", "RestartRequested": "a restart was requested"}


def what_happened(job: str, last: LastRestart) -> str:
    """`worker-1 was killed (SIGKILL)`."""
    if last.reason in _ASKED_FOR:
        return _ASKED_FOR[last.reason]
    who, reason, exception = member_of(job, last.pod or "") or "the gang", last.reason or "", last.exception or ""
    if reason in _REASONS:
        return f"{who} {_REASONS[reason]}"
    if last.exit_code is None and last.signal is None:
        return f"{who}: {exception}" if exception else f"{who} was restarted: {reason}"
    return words.describe(who, Exit(last.exit_code, last.signal, kind=reason, exception=exception))


def resumption(last: LastRestart) -> str:
    """`resumed from epoch 2 after 1.1 s`; the epoch or step counts the completed ones."""
    where = words.resumption(last.resumed_from, last.resumed_from_epoch, last.resumed_from_step)
    return words.went_on(where, last.alone, None if last.down_seconds is None else f"{last.down_seconds:g}")


def lost_work(last: LastRestart) -> str:
    """`; 30 steps repeated (2.1 s of training)`; empty if none or unknown."""
    if not last.lost_steps:
        return ""
    seconds = f" ({last.lost_seconds:.1f} s of training)" if last.lost_seconds else ""
    return f"; {last.lost_steps} step{'s' * (last.lost_steps != 1)} repeated{seconds}"


def resumed(last: LastRestart) -> bool:
    """Whether the training resumed from a backup."""
    return bool(last.resumed_from_epoch or last.resumed_from_step)

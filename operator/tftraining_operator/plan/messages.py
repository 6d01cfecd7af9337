"""Messages about restarts, for people. This module never decides anything."""

from tftraining.launch.failure.incident import signal_name
from tftraining_api.model.names import member_of
from tftraining_api.model.status import RESUMED_TRAINING_DIFFERS, LastRestart

_REASONS = {
    "Grown": "is back",
    "MemberLost": "became unreachable",
    "NodeLost": "was lost with its node",
    "OOMKilled": "ran out of memory (OOMKilled)",
    "PodDeleted": "was deleted",
    RESUMED_TRAINING_DIFFERS: "found that its resumed training differs from the undisturbed one",
    "Stalled": "stopped making steps",
    "Terminated": "was terminated",
}

# As the launchers' messages have it (trainer/tftraining/launch/http/pages.py).
_MEMORIES = {"Memory": "memory", "Peer": "the memory of another member"}
_ASKED_FOR = {"Resized": "the number of workers changed", "RestartRequested": "a restart was requested"}


def what_happened(job: str, last: LastRestart) -> str:
    """`worker-1 was killed (SIGKILL)`."""
    if last.reason in _ASKED_FOR:
        return _ASKED_FOR[last.reason]
    who = member_of(job, last.pod or "") or "the gang"
    if last.reason in _REASONS:
        return f"{who} {_REASONS[last.reason]}"
    if last.exception:
        return f"{who}: {last.exception}"
    if last.signal is not None:
        return f"{who} was killed ({signal_name(last.signal)})"
    if last.exit_code is not None:
        return f"{who} failed with exit code {last.exit_code}"
    return f"{who} was restarted: {last.reason}"


def resumption(last: LastRestart) -> str:
    """`resumed from epoch 2 after 1.1 s`; the epoch or step counts the completed ones."""
    after = f" after {last.down_seconds:g} s" if last.down_seconds is not None else ""
    if last.alone:
        return f"restarted alone{after}; other members kept training"
    if not resumed(last) and (last.resumed_from_epoch, last.resumed_from_step) != (None, None):
        return "started over: no backup found" + (f",{after}" if after else "")
    where = ""
    if last.resumed_from in _MEMORIES and last.resumed_from_step:
        where = f" from {_MEMORIES[last.resumed_from]} at step {last.resumed_from_step}"
    elif last.resumed_from_epoch:
        where = f" from epoch {last.resumed_from_epoch}"
    elif last.resumed_from_step:
        where = f" from step {last.resumed_from_step}"
    return f"resumed{where}{after}"


def lost_work(last: LastRestart) -> str:
    """`; 30 steps repeated (2.1 s of training)`; empty if none or unknown."""
    if not last.lost_steps:
        return ""
    seconds = f" ({last.lost_seconds:.1f} s of training)" if last.lost_seconds else ""
    return f"; {last.lost_steps} step{'s' * (last.lost_steps != 1)} repeated{seconds}"


def resumed(last: LastRestart) -> bool:
    """Whether the training resumed from a backup."""
    return bool(last.resumed_from_epoch or last.resumed_from_step)

"""How long a restart waits: the first after progress not at all, then 1, 2, 4 … 60 seconds."""

from datetime import datetime, timedelta

from tftraining_operator.model.status import Status

LONGEST = timedelta(seconds=60)
PROGRESS = timedelta(seconds=60)


def delay(without_progress: int) -> timedelta:
    """The wait before the restart that made `without_progress` restarts in a row bring no progress."""
    if without_progress <= 1:
        return timedelta()
    return min(LONGEST, timedelta(seconds=2.0 ** min(without_progress - 2, 10)))


def due(status: Status) -> datetime | None:
    """When the present attempt may start; None if it need not wait."""
    if status.last_restart is None:
        return None
    return status.last_restart.time + delay(status.restarts.without_progress)


def progressed(status: Status, until: datetime) -> bool:
    """Whether there was progress since the last restart: a newer epoch or checkpoint, or, where no program tells of
    epochs, that all pods ran for a minute."""
    if (newest_checkpoint(status) or 0) > (status.restarts.checkpoint or 0):
        return True
    if status.progress is not None and status.progress.epoch is not None:
        return status.progress.epoch > (status.restarts.epoch or 0)
    ready = status.condition("Ready")
    return ready is not None and ready.status == "True" and until - ready.last_transition_time >= PROGRESS


def newest_checkpoint(status: Status) -> int | None:
    """The step of the newest checkpoint that was ever known of at a restart or is known of now."""
    told = status.progress.checkpoint if status.progress is not None else None
    return max((step for step in (told, status.restarts.checkpoint) if step is not None), default=None)

"""The last restart of a job in words. Pure."""

from datetime import datetime

from tftraining.launch.messages import KEPT_TRAINING, resumption
from tftraining_api.model.status import LastRestart
from tftraining_client.commands.output import age


def restart_text(restart: LastRestart, now: datetime) -> str:
    """`last restart 3m ago: worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 9 steps lost`."""
    return f"last restart {age(restart.time, now)} ago: {restart_details(restart)}"


def restart_details(restart: LastRestart) -> str:
    """`worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 9 steps lost`."""
    parts = [" ".join(part for part in (restart.pod, restart.exception or restart.reason) if part)]
    where = resumption(restart.resumed_from, restart.resumed_from_epoch, restart.resumed_from_step)
    parts.append(KEPT_TRAINING if restart.alone else where)
    if restart.down_seconds is not None:
        parts.append(f"{restart.down_seconds:.1f} s {'away' if restart.alone else 'without training'}")
    if restart.lost_steps is not None:
        parts.append(f"{restart.lost_steps} step{'s' * (restart.lost_steps != 1)} lost")
    return ", ".join(part for part in parts if part)

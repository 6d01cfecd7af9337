"""The last restart of a job in words. Pure."""

from datetime import datetime

from tftraining_api.model.status import LastRestart
from tftraining_client.commands.output import age


def restart_text(restart: LastRestart, now: datetime) -> str:
    """`last restart 3m ago: worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 9 steps lost`."""
    return f"last restart {age(restart.time, now)} ago: {restart_details(restart)}"


def restart_details(restart: LastRestart) -> str:
    """`worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 9 steps lost`."""
    parts = [" ".join(part for part in (restart.pod, restart.exception or restart.reason) if part)]
    if restart.resumed_from in ("Memory", "Peer") and restart.resumed_from_step is not None:
        parts.append(f"resumed from memory at step {restart.resumed_from_step}")
    elif restart.resumed_from_epoch is not None:
        parts.append(f"resumed from epoch {restart.resumed_from_epoch}")
    elif restart.resumed_from_step is not None:
        parts.append(f"resumed from step {restart.resumed_from_step}")
    if restart.down_seconds is not None:
        parts.append(f"{restart.down_seconds:.1f} s without training")
    if restart.lost_steps is not None:
        parts.append(f"{restart.lost_steps} steps lost")
    return ", ".join(part for part in parts if part)

"""The last restart of a job, and the nodes that it avoids, in words. Pure."""

from datetime import datetime

from tftraining.launch.failure_and_restart_messages import KEPT_TRAINING, lost_work, resumption
from tftraining_api.model.status import LastRestart, Status
from tftraining_client.commands.output import age


def restart_text(restart: LastRestart, now: datetime) -> str:
    """`last restart 3m ago: worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 9 steps lost`."""
    return f"last restart {age(restart.time, now)} ago: {restart_details(restart)}"


def avoided_text(status: Status, now: datetime) -> list[str]:
    """For each node that new pods avoid: `avoids node-a for 23h: worker-1 failed 3 times in a row, and no other`."""
    return [
        f"avoids {each.name} for {age(now, each.until)}: {each.why}"
        + (f"; {each.used_by} runs there all the same" if each.used_by else "")
        for each in status.avoided_nodes
        if each.until > now
    ]


def restart_details(restart: LastRestart) -> str:
    """`worker-1 ValueError: boom, resumed from epoch 2, 3.1 s without training, 9 steps lost`."""
    parts = [" ".join(part for part in (restart.pod, restart.exception or restart.reason) if part)]
    where = resumption(restart.resumed_from, restart.resumed_from_epoch, restart.resumed_from_step)
    parts.append(KEPT_TRAINING if restart.alone else where)
    if restart.down_seconds is not None:
        parts.append(f"{restart.down_seconds:.1f} s {'away' if restart.alone else 'without training'}")
    if restart.lost_steps is not None:
        parts.append(lost_work(restart.lost_steps))
    return ", ".join(part for part in parts if part)

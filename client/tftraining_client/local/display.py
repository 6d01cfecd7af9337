"""The display at the bottom of a terminal: phase, progress and members of a job. Pure: made from the Timeline alone."""

from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tftraining_client.local.timeline import Timeline, ended_early, progress_text

BAR = 24
SHOWN_MEMBERS = 8
PHASES = {"Training": "green", "Succeeded": "green", "Failed": "red", "Restarting": "yellow"}


def display(timeline: Timeline, seconds: float) -> RenderableType:
    """The phase, the progress with a bar, and the members."""
    return Group(Text(), _head(timeline, seconds), _progress(timeline), _members(timeline))


def _head(timeline: Timeline, seconds: float) -> RenderableType:
    phase = str(timeline.status.get("phase") or "Starting")
    name = (timeline.status.get("job") or {}).get("name", "")
    text = Text.assemble((f"{name} ", "bold"), (phase, PHASES.get(phase, "cyan")), f"  {seconds:.0f} s")
    if timeline.restarts:
        text.append(f"  restarts: {len(timeline.restarts)}, {timeline.seconds_lost:.1f} s lost", "yellow")
    if missing := timeline.status.get("missing"):
        text.append(f"  waiting for {', '.join(missing[:SHOWN_MEMBERS])}")
    return text


def _progress(timeline: Timeline) -> RenderableType:
    row = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=fraction(timeline.progress), width=BAR)
    row.add_row(bar, progress_text(timeline.progress) or "no progress yet")
    return row


def fraction(progress: dict[str, Any], succeeded: bool = False) -> float:
    """The completed fraction of the training, 0 to 1, in steps or else in whole epochs; 0 if the total is unknown. The
    last steps of a job that has `succeeded` may not have been reported."""
    epochs = progress.get("epochs") or 0
    if succeeded and epochs and not ended_early(progress):
        return 1.0
    steps = (progress.get("stepsPerEpoch") or 0) * epochs
    if steps and (progress.get("step") or 0) <= steps:
        return (progress.get("step") or 0) / steps
    return min(1.0, max(0, (progress.get("epoch") or 1) - 1) / epochs) if epochs else 0.0


def _members(timeline: Timeline) -> RenderableType:
    members = list((timeline.status.get("members") or {}).items())
    words = [f"{name} {member.get('state')} {_step(member)}".rstrip() for name, member in members[:SHOWN_MEMBERS]]
    if len(members) > SHOWN_MEMBERS:
        words.append(f"and {len(members) - SHOWN_MEMBERS} more")
    return Text("   ".join(words), style="dim")


def _step(member: dict[str, object]) -> str:
    return "" if member.get("step") is None else f"step {member['step']}"

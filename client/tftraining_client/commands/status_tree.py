"""The tree of a job: roles and pods, progress, last restart, events. Pure: made from a snapshot and the time."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.style import Style
from rich.table import Table
from rich.text import Text as RichText
from rich.tree import Tree

from tftraining_client.cluster.models import Event, Job, Pod
from tftraining_client.cluster.snapshot import Snapshot
from tftraining_client.commands.output import PHASES, age
from tftraining_client.commands.restart_text import avoided_text, restart_text
from tftraining_client.local.display import BAR, fraction
from tftraining_client.local.timeline import ended_early, progress_text
from tftraining_client.visible import visible

SHOWN_PODS = 16
SHOWN_EVENTS = 5
POD_PHASES = {**PHASES, "Terminating": "yellow", "Pending": "cyan"}


class Text(RichText):
    """Text of the cluster, with its control characters shown."""

    def __init__(self, text: str = "", style: str | Style = "", **options: Any) -> None:
        super().__init__(visible(text), style, **options)

    def append(self, text: RichText | str, style: str | Style | None = None) -> RichText:
        """Add text."""
        return super().append(visible(text) if isinstance(text, str) else text, style)


def status_tree(snapshot: Snapshot, now: datetime, wide: bool = False) -> RenderableType:
    """The whole tree. `wide`: also the nodes, all pods and all events."""
    job = snapshot.job
    tree = Tree(_head(job, now))
    if message := " ".join((job.status.message or "").split()):
        reason = f"{job.status.reason}: " if job.status.reason else ""
        tree.add(Text(reason + message, style="red" if job.failed else ""))
    progress = (job.raw.get("status") or {}).get("progress") or {}
    if progress:
        tree.add(_progress(progress, job.phase == "Succeeded"))
    for role in dict.fromkeys(pod.role for pod in snapshot.pods):
        _add_role(tree, job, role, [pod for pod in snapshot.pods if pod.role == role], now, wide)
    if job.status.last_restart is not None:
        tree.add(Text(restart_text(job.status.last_restart, now), style="yellow"))
    for line in avoided_text(job.status, now):
        tree.add(Text(line, style="yellow"))
    if snapshot.events:
        branch = tree.add(Text("events"))
        for event in snapshot.events[0 if wide else -SHOWN_EVENTS :]:
            branch.add(_event(event, now))
    for kind in snapshot.hidden:
        tree.add(Text(f"no permission to list {kind}: the cluster role view contains the right", style="yellow"))
    return tree


def _head(job: Job, now: datetime) -> RichText:
    text = Text.assemble((job.name, "bold"), "  ", (job.phase, PHASES.get(job.phase, "cyan")))
    if job.status.ready:
        text.append(f"  {job.status.ready} ready")
    if count := job.status.restarts.counted:
        text.append(f"  {count} restart{'s' * (count != 1)}", "yellow")
    if job.deleting:
        text.append("  being deleted", "yellow")
    return text.append(f"  {age(job.created, now)}", "dim")


def _progress(progress: dict[str, Any], succeeded: bool) -> RenderableType:
    text = Text(progress_text(progress) or str(progress.get("display") or ""))
    if succeeded and ended_early(progress):
        text.append(", ended early by the program")
    done = fraction(progress, succeeded)
    if not done:
        return text
    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=1.0, completed=done, width=BAR), Text(f"{done:.0%}"))
    return Group(row, text)


def _add_role(tree: Tree, job: Job, role: str, pods: Sequence[Pod], now: datetime, wide: bool) -> None:
    counts = job.status.replicas.get(role)
    ready = sum(pod.ready for pod in pods)
    branch = tree.add(Text(f"{role} {ready}/{counts.desired if counts else len(pods)} ready"))
    # Of a large job the pods that are not ready are shown first.
    shown = sorted(pods, key=lambda pod: pod.ready)[: None if wide else SHOWN_PODS]
    for pod in sorted(shown, key=lambda pod: pod.index):
        branch.add(_pod(pod, now, wide))
    if rest := len(pods) - len(shown):
        branch.add(Text(f"and {rest} more", style="dim"))


def _pod(pod: Pod, now: datetime, wide: bool) -> RichText:
    text = Text.assemble(pod.replica, "  ", (pod.phase, POD_PHASES.get(pod.phase, "")))
    if pod.phase == "Running":
        text.append("  ready" if pod.ready else "  not ready", "" if pod.ready else "yellow")
    if pod.reason and pod.phase != "Terminating":
        text.append(f"  {pod.reason}")
    if wide:
        text.append(f"  {pod.node or 'no node'}  {pod.name}")
    return text.append(f"  {age(pod.created, now)}", "dim")


def _event(event: Event, now: datetime) -> RichText:
    style = "red" if event.type == "Warning" else ""
    return Text.assemble((f"{age(event.time, now):>4}  ", "dim"), (f"{event.reason}: {event.message}", style))

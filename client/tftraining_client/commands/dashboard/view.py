"""The objects of the cluster as the page shows them: plain dictionaries, times as text. Pure.

Texts of users and programs stay as they are: the server makes their control characters visible, and the page inserts
them as text, never as markup.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tftraining_client.cluster.models import Event, Job, Pod
from tftraining_client.cluster.snapshot import Snapshot
from tftraining_client.commands.advice import advice_for, warnings
from tftraining_client.commands.curves import curves_of
from tftraining_client.commands.explain import culprit
from tftraining_client.commands.restart_text import restart_details
from tftraining_client.history import History
from tftraining_client.local.display import fraction
from tftraining_client.local.timeline import progress_text

View = dict[str, Any]
SAME_RESTART_SECONDS = 5.0


def job_key(job: Job) -> str:
    """The name by which the page asks for the job."""
    return f"{job.namespace}/{job.name}"


def job_row(job: Job) -> View:
    """A job as a row of the list."""
    progress = _progress(job)
    return {
        "key": job_key(job),
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "phase": job.phase,
        "deleting": job.deleting,
        "ready": job.status.ready or "",
        "restarts": job.status.restarts.counted,
        "progress": (job.status.progress.display if job.status.progress else None) or "",
        "fraction": _fraction(job, progress),
        "created": _time(job.created),
        "ended": _time(job.status.completion_time),
        "reason": job.status.reason or "",
        "message": _line(job.status.message),
    }


def job_view(snapshot: Snapshot) -> View:
    """A job with its pods and events."""
    job = snapshot.job
    history = History.of((job.raw.get("status") or {}).get("history"))
    return {
        **job_row(job),
        "begin": _begin(job, history),
        "progressText": progress_text(_progress(job)),
        "advice": advice_for(job),
        "warnings": [f"{each.type}: {_line(each.message)}" for each in warnings(job)],
        "failure": culprit(job.status.failure) if job.status.failure else "",
        "logTail": job.log_tail,
        "curves": _curves(job.name, history),
        "timeline": sorted([*_restarts(job, history), *_suspension(job)], key=lambda mark: _parse(mark["time"])),
        "roles": _roles(job, snapshot.pods),
        "events": [_event(event) for event in reversed(snapshot.events)],
        "hidden": list(snapshot.hidden),
    }


def _progress(job: Job) -> View:
    found: View = (job.raw.get("status") or {}).get("progress") or {}
    return found


def _fraction(job: Job, progress: View) -> float | None:
    """The part that is done; None if it is unknown."""
    if job.succeeded:
        return 1.0
    return round(fraction(progress, job.phase == "Succeeded"), 4) if progress.get("epochs") else None


def _curves(name: str, history: History) -> list[View]:
    """The curve of each metric with its restarts, on an axis of its own, as `tftj plot` draws a metric alone."""
    curves = []
    for metric, points in history.metrics.items():
        if points:
            drawn = curves_of(name, History({metric: points}, history.restarts))
            places = [restart.x for restart in drawn.restarts]
            values = [list(point) for point in zip(drawn.curves[0].xs, drawn.curves[0].ys, strict=True)]
            curves.append({"name": metric, "unit": drawn.axis, "points": values, "restarts": places})
    return curves


def _restarts(job: Job, history: History) -> Iterable[View]:
    """The restarts, the last one with its price."""
    last = job.status.last_restart
    for mark in history.restarts:
        time = _parse(mark.time)
        # The operator and a launcher may tell the same restart by times that differ a little.
        if time and (last is None or last.time.timestamp() - time > SAME_RESTART_SECONDS):
            yield _mark(mark.time, mark.reason + ("" if mark.step is None else f" at step {mark.step}"))
    if last is not None:
        yield _mark(_time(last.time), restart_details(last))


def _suspension(job: Job) -> Iterable[View]:
    """The last suspension, or the resumption after it."""
    condition = job.status.condition("Suspended")
    if condition is not None and (condition.status == "True" or condition.reason == "Resumed"):
        text = "suspended" if condition.status == "True" else "resumed after a suspension"
        yield _mark(_time(condition.last_transition_time), text, restart=False)


def _mark(time: str, text: str, restart: bool = True) -> View:
    return {"time": time, "text": text, "restart": restart}


def _begin(job: Job, history: History) -> str:
    """The begin of the time line. startTime is that of the pods after the last suspension, and the history may be
    continued from an earlier job of the same storage."""
    resumed = job.status.condition("Suspended") is not None or job.status.start_time is None
    first = [points[0].time for points in history.metrics.values() if points]
    marks = [mark.time for mark in history.restarts]
    times = [_time(job.created if resumed else job.status.start_time), *first, *marks]
    return min(filter(_parse, times), key=_parse, default="")


def _parse(text: str) -> float:
    """The time in seconds; 0 if the text is no time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _roles(job: Job, pods: Sequence[Pod]) -> list[View]:
    """The pods by role, in the order of the pods."""
    found = []
    for role in dict.fromkeys(pod.role for pod in pods):
        own = [pod for pod in pods if pod.role == role]
        counts = job.status.replicas.get(role)
        found.append(
            {
                "role": role,
                "ready": sum(pod.ready for pod in own),
                "desired": counts.desired if counts else len(own),
                "pods": [_pod(pod) for pod in own],
            }
        )
    return found


def _pod(pod: Pod) -> View:
    return {
        "replica": pod.replica,
        "name": pod.name,
        "phase": pod.phase,
        "reason": "" if pod.phase == "Terminating" else pod.reason,
        "ready": pod.ready,
        "attempt": pod.attempt,
        "node": pod.node,
        "created": _time(pod.created),
    }


def _event(event: Event) -> View:
    return {
        "time": _time(event.time),
        "warning": event.type == "Warning",
        "reason": event.reason,
        "message": _line(event.message),
        "count": int(event.raw.get("count") or 1),
    }


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _time(time: datetime | None) -> str:
    return "" if time is None else time.isoformat()

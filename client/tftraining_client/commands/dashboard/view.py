"""The objects of the cluster as the page shows them: plain dictionaries, times as text. Pure.

Texts of users and programs stay as they are: the server makes their control characters visible, and the page inserts
them as text, never as markup.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tftraining_client.cluster.models import Event, Job, Pod
from tftraining_client.cluster.snapshot import Snapshot
from tftraining_client.commands.advice import advice_for, warnings
from tftraining_client.commands.explain import culprit
from tftraining_client.commands.restart_text import restart_details
from tftraining_client.history import History, Point, RestartMark
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
    return {
        **job_row(job),
        "started": _time(job.status.start_time),
        "attempt": job.status.attempt,
        "progressText": progress_text(_progress(job)),
        "advice": advice_for(job),
        "warnings": [f"{each.type}: {_line(each.message)}" for each in warnings(job)],
        "failure": culprit(job.status.failure) if job.status.failure else "",
        "logTail": job.log_tail,
        "curves": _curves(History.of((job.raw.get("status") or {}).get("history"))),
        "timeline": _timeline(job),
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


def _curves(history: History) -> list[View]:
    """The curve of each metric with its restarts, by step, otherwise by epoch or time."""
    return [_curve(name, points, history.restarts) for name, points in history.metrics.items() if points]


def _curve(name: str, points: Sequence[Point], restarts: Sequence[RestartMark]) -> View:
    unit, places = _places(points)
    return {
        "name": name,
        "unit": unit,
        "points": [[place, point.value] for place, point in zip(places, points, strict=True)],
        "restarts": [_place_of(mark, unit, places, points) for mark in restarts],
    }


def _places(points: Sequence[Point]) -> tuple[str, list[float]]:
    """The unit of the horizontal axis, and the place of each point."""
    for unit, values in (("step", [point.step for point in points]), ("epoch", [point.epoch for point in points])):
        known = [float(value) for value in values if value is not None]
        if len(known) == len(points):
            return unit, known
    return "report", [float(number) for number in range(1, len(points) + 1)]


def _place_of(mark: RestartMark, unit: str, places: Sequence[float], points: Sequence[Point]) -> float:
    """The place of a restart: its own step, otherwise that of the last point before it."""
    if unit == "step" and mark.step is not None:
        return float(mark.step)
    # Points have milliseconds, marks may have whole seconds: texts of both compare as times do up to the second.
    before = [place for place, point in zip(places, points, strict=True) if point.time[:19] <= mark.time[:19]]
    return before[-1] if before else places[0]


def _timeline(job: Job) -> list[View]:
    """The restarts in the order of time, the last one with its price."""
    history = History.of((job.raw.get("status") or {}).get("history"))
    found = [
        {"time": mark.time, "text": mark.reason + ("" if mark.step is None else f" at step {mark.step}")}
        for mark in history.restarts
        if mark.time
    ]
    last = job.status.last_restart
    if last is None:
        return found
    # The operator and a launcher may tell the same restart by times that differ a little.
    earlier = [each for each in found if _seconds_before(each["time"], last.time) > SAME_RESTART_SECONDS]
    return [*earlier, {"time": _time(last.time), "text": restart_details(last)}]


def _seconds_before(text: str, time: datetime) -> float:
    """How long before `time`; 0 if the text is no time."""
    try:
        return (time - datetime.fromisoformat(text)).total_seconds()
    except (TypeError, ValueError):
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

"""The objects of the cluster as the page shows them: plain dictionaries, times as text. Pure.

Texts of users and programs stay as they are; the page inserts them as text, never as markup.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tftraining_api.model.status import LastRestart
from tftraining_client.cluster.models import Event, Job, Pod
from tftraining_client.cluster.snapshot import Snapshot
from tftraining_client.commands.advice import advice
from tftraining_client.commands.explain import WARNINGS, culprit
from tftraining_client.local.display import fraction
from tftraining_client.local.timeline import progress_text

View = dict[str, Any]


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
        "advice": advice(job.phase, job.status.reason or ""),
        "warnings": list(_warnings(job)),
        "failure": culprit(job.status.failure) if job.status.failure else "",
        "logTail": job.log_tail,
        "restart": _restart(job.status.last_restart) if job.status.last_restart else None,
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
    return round(fraction(progress), 4) if progress.get("epochs") else None


def _warnings(job: Job) -> Iterable[str]:
    for kind in WARNINGS:
        condition = job.status.condition(kind)
        if condition is not None and condition.status == "True":
            yield f"{kind}: {_line(condition.message)}"


def _restart(restart: LastRestart) -> View:
    """The last restart with its price; the page draws it on the time line."""
    return {
        "time": _time(restart.time),
        "pod": restart.pod or "",
        "cause": restart.exception or restart.reason or "",
        "downSeconds": restart.down_seconds,
        "lostSteps": restart.lost_steps,
        "resumedFromEpoch": restart.resumed_from_epoch,
        "resumedFromStep": restart.resumed_from_step,
    }


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

"""Bring the gang of the present attempt together, and say how far that is.

New pods are made only when nothing of an older attempt, or of an earlier job of the same name, is left: two that write
the same backup would spoil it.
Where launchers say what they do, the gang trains when its pods are ready and the chief's launcher says so too.
"""

from datetime import datetime

import msgspec

from tftraining_operator.build.pod import PodManifests
from tftraining_operator.build.service import service
from tftraining_operator.model.job import Job
from tftraining_operator.model.names import Replica
from tftraining_operator.model.observed import Observed, Pod, Refusal
from tftraining_operator.model.report import Report
from tftraining_operator.model.status import Status
from tftraining_operator.plan import backoff
from tftraining_operator.plan.conditions import with_condition
from tftraining_operator.plan.gang import Gang, count, is_done
from tftraining_operator.plan.incident import ASKED_FOR
from tftraining_operator.plan.lost_key import with_secret
from tftraining_operator.plan.no_gpu import why_no_gpu
from tftraining_operator.plan.refusals import only_one
from tftraining_operator.plan.reported import record_of
from tftraining_operator.plan.resize import departing, fewer_train, with_fewer
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.starting import (
    cause,
    is_late,
    look_again,
    same_words,
    some,
    why_incomplete,
    why_no_evaluator,
)
from tftraining_operator.plan.types import Deletion, Note, Plan
from tftraining_operator.plan.went_on import with_place
from tftraining_operator.plan.words import resumption, what_happened

# Long enough for the kubelet to send SIGTERM, which TensorFlow swallows; then comes SIGKILL.
GRACE_SECONDS = 1


def assemble(job: Job, scene: Scene) -> Plan:
    """The next step towards a gang that trains."""
    gang, seen = scene.gang, scene.seen
    status = _describe(job, scene)
    wait = _wait_until(status, gang, seen, scene.now)
    wanted = _wanted(gang, seen, wait, scene.now)
    attempt = msgspec.structs.replace(job, status=status)
    step = Plan(
        status=status,
        create_service=None if seen.service or wait or seen.leftovers else service(job, scene.spec),
        create_pods=PodManifests(attempt, scene.spec, wanted, scene.image),
        delete_pods=delete((*gang.stale, *gang.leaving, *departing(scene), *_given_up(seen))),
        notes=_notes(job.status, status),
        again_at=wait or _evaluator_due(seen, scene.now) or look_again(gang, seen, scene.now),
    )
    return with_secret(step, job, scene, wanted)


def delete(pods: tuple[Pod, ...], grace: int | None = GRACE_SECONDS) -> tuple[Deletion, ...]:
    """Deletions of those that nobody has asked to go yet, and by force of those that nobody is there to delete."""
    due = [each for each in pods if not each.going or (each.abandoned and each.overdue_at)]
    return tuple(Deletion(each.name, each.uid, 0 if each.abandoned else grace) for each in due)


def _given_up(seen: Observed) -> tuple[Pod, ...]:
    """What an earlier job of the name has left on nodes that are lost."""
    return tuple(pod for pod in seen.earlier if pod.abandoned)


def _wanted(gang: Gang, seen: Observed, wait: datetime | None, now: datetime) -> tuple[Replica, ...]:
    """The pods to be made now; one, if that is enough to see whether the API server takes more again. The evaluator is
    last: what the API server has against it keeps nobody else waiting."""
    if gang.stale or seen.leftovers:
        return ()
    aside = gang.missing_aside if _evaluator_due(seen, now) is None else ()
    wanted = (*(gang.missing if wait is None else ()), *aside)
    return wanted[:1] if only_one(seen.refusal) else wanted


def _evaluator_due(seen: Observed, now: datetime) -> datetime | None:
    """When the API server may be asked for an evaluator again: whatever it has refused, its answer is waited for.

    Asking for the evaluator while the gang waits would make what stands beside all pods anew, at every pass.
    """
    return seen.refusal.retry_at if seen.refusal and seen.refusal.retry_at > now else None


def _is_of_evaluator(refusal: Refusal) -> bool:
    return refusal.child.startswith("pod/") and refusal.child.rpartition("-")[0].endswith("-evaluator")


def _wait_until(status: Status, gang: Gang, seen: Observed, now: datetime) -> datetime | None:
    """Until when nothing may be created: the back-off of the restart, or of a refusal by the API server."""
    until = [backoff.due(status)] if gang.missing else []
    until += [seen.refusal.retry_at] if seen.refusal and not _is_of_evaluator(seen.refusal) else []
    return max((each for each in until if each is not None and each > now), default=None)


def _describe(job: Job, scene: Scene) -> Status:
    gang, now, status = scene.gang, scene.now, job.status
    complete = gang.done_or_ready == len(gang.wanted)
    before = status
    if complete and _trains(status, scene.said):
        status = _running(job, scene)
    elif scene.said is not None and scene.said.phase == "Restarting" and status.phase in ("Starting", "Running"):
        status = _restarting(job, scene.said)
    elif fewer_train(scene) and not complete:
        status = with_fewer(status, scene, why_incomplete(gang, scene.seen, now)[1])
    elif status.phase == "Running" and (silent := [pod for pod in gang.pods if pod.running and pod.unheard]):
        message = f"{silent[0].label}: {silent[0].waiting}"
        status = msgspec.structs.replace(status, reason="NodeNotReady", message=message)
    elif status.phase != "Running" and not (complete and scene.said):
        status = _not_yet(status, why_incomplete(gang, scene.seen, now), scene.said)
    elif status.phase == "Running" and not complete:
        status = _short_of(status, gang, why_incomplete(gang, scene.seen, now))
    if same_words(before.message, status.message):
        status = msgspec.structs.replace(status, message=before.message)
    status = msgspec.structs.replace(
        status,
        replicas=count(gang, status.replicas),
        ready=gang.ready,
        start_time=status.start_time or now.replace(microsecond=0),
    )
    why = (status.reason or "Starting", f"{gang.ready} replicas train or are done")
    ready = complete and status.phase == "Running"
    return with_condition(status, "Ready", "True" if ready else "False", why, now)


def _trains(status: Status, said: Report | None) -> bool:
    """Whether a gang whose pods are ready trains. A report may be older than what the pods show: it makes no gang that
    trains one that starts."""
    if said is None or said.phase == "Training":
        return True
    return status.phase == "Running" and said.phase != "Restarting"


def _running(job: Job, scene: Scene) -> Status:
    status, last = job.status, job.status.latest_restart
    if last is not None and last.down_seconds is None:
        down = round((scene.now - last.time).total_seconds(), 1)
        last = msgspec.structs.replace(last, down_seconds=max(0.0, down))
        status = msgspec.structs.replace(status, last_restart=last)
    status = with_place(status, scene.said, scene.now)
    last = status.latest_restart
    message = _who_trains(scene)
    told = last is not None and (last.reason not in ASKED_FOR or last.resumed_from_step is not None)
    if last is not None and scene.spec.in_place and told:
        message = f"{what_happened(job.key.name, last)}; {resumption(last)}"
    message += why_no_gpu(scene.said) + why_no_evaluator(scene.gang, scene.seen)
    return msgspec.structs.replace(status, phase="Running", reason="Training", message=message)


def _who_trains(scene: Scene) -> str:
    """`3 replicas train`, without those that have done their work before the others."""
    gang = scene.gang
    told = frozenset(scene.said.finished if scene.said is not None else ())
    done = [str(each) for each in gang.wanted if is_done(gang, each) or str(each) in told]
    size = len(gang.wanted) - len(done)
    message = f"{size} replicas train" if size > 1 else "one replica trains" if done else "the replica trains"
    return f"{message}; {some(done)} {'has' if len(done) == 1 else 'have'} finished" if done else message


def _short_of(status: Status, gang: Gang, why: tuple[str, str]) -> Status:
    """The gang trains on without a member that is restarted alone; what holds that one up is worth a word."""
    if why[0] not in ("PodsNotReady", "CreationRefused"):
        return status
    return msgspec.structs.replace(status, message=f"{gang.ready} replicas train; {why[1]}")


def _restarting(job: Job, said: Report) -> Status:
    """The launchers restart just now; what they say of it is kept when they have begun again."""
    last = record_of(job, said.last_restart) if said.last_restart else None
    what = what_happened(job.key.name, last) if last else said.message
    reason = (last.reason if last else said.reason) or "Error"
    return msgspec.structs.replace(
        job.status, phase="Restarting", reason=reason, message=f"{what}; restarting in place"
    )


def _not_yet(status: Status, why: tuple[str, str], said: Report | None) -> Status:
    reason, message = why
    if status.phase == "Starting" or (status.attempt == 1 and status.phase == "Pending"):
        return msgspec.structs.replace(status, phase="Starting", reason=reason, message=message)
    restarts = (status.last_restart, said.last_restart if said else None)
    known = [each.reason for each in restarts if each is not None]
    if status.reason in known and reason in ("CreatingPods", "Stopping", "PodsStarting"):
        # Why it restarts is worth more to a person than that its pods are on their way.
        return msgspec.structs.replace(status, phase="Restarting")
    return msgspec.structs.replace(status, phase="Restarting", reason=reason, message=message)


def _notes(old: Status, new: Status) -> tuple[Note, ...]:
    notes = []
    if old.phase == "Pending":
        notes.append(Note("Normal", "Started", "creating the Service and the pods of the gang"))
    if new.phase == "Running" and old.phase != "Running":
        last = new.latest_restart
        again = f", {last.down_seconds:g} s after {last.reason}" if last and last.down_seconds is not None else ""
        notes.append(Note("Normal", "Training", f"{new.ready} replicas train{again}"))
    news = (old.reason, cause(old.message)) != (new.reason, cause(new.message))
    late = is_late(new.message) and not is_late(old.message)
    if late or (new.reason in ("CreationRefused", "PodsNotReady") and news):
        notes.append(Note("Warning", new.reason or "Stopping", new.message or ""))
    return tuple(notes)

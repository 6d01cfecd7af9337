"""New pods for those that are lost, under the same attempt.

The launchers of the others wait for them; where a worker is restarted alone (restartPolicy.scope Pod) all train on.
"""

import msgspec

from tftraining_operator.model.job import Job
from tftraining_operator.model.names import Replica, pod_name
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.report import LOST, Report
from tftraining_operator.plan import restart
from tftraining_operator.plan.assemble import assemble
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.gang import count
from tftraining_operator.plan.incident import Incident
from tftraining_operator.plan.incident import lost as is_lost
from tftraining_operator.plan.reported import with_latest
from tftraining_operator.plan.rules import judged
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Note, Plan


def replace(job: Job, scene: Scene, incident: Incident) -> Plan:
    """Make the lost pods anew, or fail the job when its budget is used up. All that are lost now are one incident."""
    gang, now = scene.gang, scene.now
    status = msgspec.structs.replace(job.status, replicas=count(gang, job.status.replicas), ready=gang.ready)
    status = restart.record_failure(with_latest(status, scene.said), incident)
    incident, problem = judged(scene.spec, job.status, incident)
    missed, joined = _missed(job, scene.said, incident), _joined(job, scene, incident)
    incident = msgspec.structs.replace(incident, missed=missed, joined=joined)
    restarts = restart.charge(scene.spec, status, incident, now)
    if problem := problem or restart.exhausted(scene.spec, restarts, incident):
        return fail(msgspec.structs.replace(job, status=status), problem, scene.seen, scene.image, now)
    lost = restart.Lost(lost_pods(scene), _others(scene))
    status = restart.replace_lost(status, restarts, incident, lost, now)
    if nobody_waits(scene):
        status = restart.while_others_train(status, job.status, incident)
    return told(assemble(msgspec.structs.replace(job, status=status), scene.after(status)), incident, status.message)


def _missed(job: Job, said: Report | None, incident: Incident) -> bool:
    """Whether the launchers have stopped because they do not hear of the pod any more, and wait for the next one."""
    last = said.last_restart if said else None
    if last is None or last.member is None or last.down_seconds is not None or last.reason not in LOST:
        return False
    return pod_name(job.key.name, last.member) == incident.pod_name


def _joined(job: Job, scene: Scene, incident: Incident) -> bool:
    """Whether the gang is down for another disruption, and all that it loses now was there before that: what was made
    for the restart and is lost again is news."""
    last = job.status.last_restart
    if job.status.phase != "Restarting" or last is None or last.exit_code is not None:
        return False
    if incident.charged or incident.pod is None or not restart.by_new_pod(job, last):
        return False
    return all(pod.created < last.time.replace(microsecond=0) for pod in lost_pods(scene))  # pods tell seconds only


def lost_pods(scene: Scene) -> tuple[Pod, ...]:
    """The pods of the gang that have to be made anew."""
    return tuple(pod for pod in scene.gang.pods if is_lost(pod))


def _others(scene: Scene) -> str:
    """What the launchers of the others do meanwhile, if they are not restarted alone."""
    gone = _gone(scene)
    workers = all(each is not None and each.role == "worker" for each in gone) and scene.spec.chief not in gone
    return "go on" if workers and scene.spec.min_replicas is not None else "wait for it"


def nobody_waits(scene: Scene) -> bool:
    """Whether all that are lost are restarted alone."""
    return all(each is not None and scene.spec.restarts_alone(each) for each in _gone(scene))


def held_by_queue(job: Job, scene: Scene) -> bool:
    """Whether Kueue keeps one that is lost, and its name, until none of its group is left (see build/kueue.py)."""
    return bool(job.queue_labels) and any(each is None or each.role != "evaluator" for each in _gone(scene))


def _gone(scene: Scene) -> list[Replica | None]:
    return [*scene.gang.vanished, *(pod.replica for pod in lost_pods(scene))]


def told(step: Plan, incident: Incident, message: str | None) -> Plan:
    """The step with the event of the incident before its own."""
    note = Note("Warning" if incident.charged or incident.ignored else "Normal", incident.reason, message or "")
    return msgspec.structs.replace(step, notes=(note, *step.notes))

"""The evaluator's pod: replaced alone when it is lost, and never a reason for the gang to wait, to restart or to fail.

Only a rule of spec.restartPolicy.rules can make its failure the job's. A pod that lived less than a minute is followed
by the next one a minute after it was made: that is the whole back-off, and it needs no memory.
"""

from datetime import datetime, timedelta

import msgspec

from tftraining.launch.rules import FAIL_JOB, REASON
from tftraining_operator.model.job import Job, Problem
from tftraining_operator.model.observed import Pod
from tftraining_operator.model.status import Status
from tftraining_operator.plan.assemble import delete
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.gang import cut_off
from tftraining_operator.plan.incident import describe, lost
from tftraining_operator.plan.rules import decide, failure_of
from tftraining_operator.plan.scene import Scene
from tftraining_operator.plan.types import Note, Plan

AT_MOST_EVERY = timedelta(minutes=1)


def look_after_evaluator(job: Job, step: Plan, scene: Scene) -> Plan:
    """The step with the replacement of an evaluator that is lost, or the job's end if a rule says so."""
    if step.status.terminal:
        return step
    # One that does not fit the spec any more is on its way out, also if the spec is changed back meanwhile.
    outdated = [pod for pod in scene.gang.leaving if pod.replica in scene.gang.aside]
    step = msgspec.structs.replace(step, status=_given_up(step.status, *outdated))
    gone = next((pod for pod in scene.gang.evaluators if lost(pod)), None)
    if gone is None:
        return step
    if (problem := _failed_by_rule(scene, gone)) is not None:
        return fail(job, problem, scene.seen, scene.image, scene.now)
    due = _due(gone, scene.now)
    if due > scene.now:
        return msgspec.structs.replace(step, again_at=min(step.again_at or due, due))
    note = Note("Normal" if cut_off(gone) else "Warning", "EvaluatorReplaced", f"{_what(gone)}; making its pod anew")
    return msgspec.structs.replace(
        step,
        status=_with_replaced(step.status, gone),
        delete_pods=(*step.delete_pods, *delete((gone,))),
        notes=(*step.notes, note),
    )


def _failed_by_rule(scene: Scene, pod: Pod) -> Problem | None:
    if cut_off(pod):
        return None
    decision = decide(scene.spec.restart_policy.rules, failure_of(scene.spec, pod), proven=True)
    return Problem(REASON, f"{_what(pod)}; {decision.rule}") if decision.action == FAIL_JOB else None


def _due(pod: Pod, now: datetime) -> datetime:
    return now if cut_off(pod) else pod.created + AT_MOST_EVERY


def _what(pod: Pod) -> str:
    if cut_off(pod):
        return f"{pod.label} was disrupted: {pod.disruption}" if pod.disruption else f"{pod.label} was deleted"
    return f"{pod.label} failed: {describe(pod)}"


def _with_replaced(status: Status, pod: Pod) -> Status:
    restarts = msgspec.structs.replace(
        status.restarts, recreated=status.restarts.recreated + 1, disruptions=status.restarts.disruptions + cut_off(pod)
    )
    return _given_up(msgspec.structs.replace(status, restarts=restarts), pod)


def _given_up(status: Status, *pods: Pod) -> Status:
    return msgspec.structs.replace(status, replaced={**status.replaced, **{pod.label: pod.uid for pod in pods}})

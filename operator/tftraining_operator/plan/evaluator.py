"""The evaluator's pod: replaced alone when it is lost. The gang never waits, restarts or fails because of it.

Its program's failures, which are never charged, are those of the launchers: `decide_evaluator` of gang/verdict.py.

Only a rule of spec.restartPolicy.rules makes its failure the job's. A pod that lived for less than a minute is followed
by the next one a minute after its creation: that is the whole back-off, and it needs no memory.
"""

from datetime import timedelta

import msgspec

from tftraining_api.model.job import Problem
from tftraining_api.model.status import Status
from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.avoided_nodes import with_avoided
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.end import fail
from tftraining_operator.plan.gang import was_disrupted
from tftraining_operator.plan.incident import NODE_CONDITION, Incident, incident_of, needs_replacement
from tftraining_operator.plan.messages import RECREATING
from tftraining_operator.plan.restart import with_replaced
from tftraining_operator.plan.restart_policy import failure_of
from tftraining_operator.plan.step import Event

AT_MOST_EVERY = timedelta(minutes=1)


def replace_evaluator(context: Context, draft: Draft) -> Draft:
    """The draft with the replacement of a lost evaluator, or the job's end if a rule says so."""
    # A pod that does not fit the spec any more is given up, even if the spec is changed back before the pod is gone.
    outdated = [pod for pod in draft.gang.given_up if pod.replica in draft.gang.wanted_evaluators]
    draft = draft.with_fields(status=with_replaced(draft.status, *outdated))
    lost = next((pod for pod in draft.gang.evaluators if needs_replacement(pod)), None)
    if lost is None:
        return draft
    incident = incident_of(lost, context.spec.in_place)
    if (problem := _failed_by_rule(context, incident)) is not None:
        return fail(context, draft, problem)
    due = context.now if was_disrupted(lost) else lost.created + AT_MOST_EVERY
    if due > context.now:
        return draft.with_requeue(due)
    message = f"{incident.message}; {RECREATING}"
    event = Event("Normal" if was_disrupted(lost) else "Warning", "EvaluatorReplaced", message)
    status = with_replaced(_counted(draft.status, lost), lost)
    if lost.disruption != NODE_CONDITION:
        return draft.with_fields(status=status).with_deletions((lost,)).with_events(event)
    avoided = with_avoided(context, status, lost, incident.message).avoided_nodes
    draft = draft.with_fields(status=status).with_status_fields(avoided_nodes=avoided)
    return draft.with_deletions((lost,), grace=None).with_events(event)


def _failed_by_rule(context: Context, incident: Incident) -> Problem | None:
    if not incident.charged:
        return None
    decision = context.spec.restart_policy.decide(failure_of(incident), has_stepped=True)
    if not decision.effect.ends_job:
        return None
    return Problem(decision.reason("Error"), decision.explain(incident.message))


def _counted(status: Status, pod: Pod) -> Status:
    restarts = msgspec.structs.replace(
        status.restarts,
        recreated=status.restarts.recreated + 1,
        disruptions=status.restarts.disruptions + was_disrupted(pod),
    )
    return msgspec.structs.replace(status, restarts=restarts)

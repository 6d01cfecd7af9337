"""spec.runPolicy.suspend: delete the pods, keep the checkpoints, and resume from them later.

Pods end with their own grace, and no end of a pod on the way is an incident. The temporary save directories are removed
as soon as no pod can write any more, and the next gang waits for that. The next gang is a new attempt: pods of the old
attempt are stale.
"""

import msgspec

from tftraining.launch.roles import ROLES
from tftraining_api.model.status import Cleanup, Counts, Status
from tftraining_operator.model.conditions import with_condition, without_condition
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.launcher_report import with_latest
from tftraining_operator.plan.memory_backup import without_backup
from tftraining_operator.plan.no_progress import no_progress_over
from tftraining_operator.plan.step import Event
from tftraining_operator.plan.success_policy import check_success
from tftraining_operator.plan.workertemp_cleanup import BY_HAND, cleaned_storage, is_decided, remove_workertemp

SUSPENDED = ("Suspended", "spec.runPolicy.suspend is true; set it to false to resume")
RESUMED = ("Resumed", "spec.runPolicy.suspend is false")


def stay_suspended(context: Context, draft: Draft) -> Draft:
    """A job that is suspended already: only a success of the pods that are still terminating counts."""
    draft = check_success(context, draft)
    return suspend(context, draft) if context.run_policy.suspend and not draft.final else draft


def suspend(context: Context, draft: Draft) -> Draft:
    """The draft without pods; it replaces every decision of the stages before, except the end of the job."""
    draft = Draft.of(context, _suspended(context, draft))
    if context.status.phase != "Suspended":
        before = context.status.cleanup or Cleanup()
        written = Cleanup(removed=before.removed, storage=before.storage or context.spec.storage)
        draft = draft.with_status_fields(cleanup=written) if draft.status.replicas and written.storage else draft
        draft = draft.with_events(Event("Normal", "Suspended", draft.status.message or ""))
    if draft.status.replicas:
        draft = remove_workertemp(context, draft)
    return msgspec.structs.replace(draft.with_deletions(context.observed.replicas, grace=None), final=True)


def resume(context: Context, draft: Draft) -> Draft:
    """The draft of a job that goes on: a new attempt if it ever had pods; a new start time, as in a batch/v1 Job."""
    old = draft.status
    status = msgspec.structs.replace(
        old,
        phase="Starting",
        reason=RESUMED[0],
        message=RESUMED[1],
        attempt=old.attempt + bool(old.replicas),
        start_time=context.now.replace(microsecond=0),
        # An evaluator without a launcher outlives an attempt, but not a suspension.
        replaced={
            pod.label: pod.uid for pod in context.observed.replicas if pod.replica in draft.gang.wanted_evaluators
        },
        successors={},
        replicas={role: Counts(desired=each.desired, highest=each.highest) for role, each in old.replicas.items()},
        # The program may have been corrected.
        restarts=msgspec.structs.replace(old.restarts, same_failure=None, same_member=None),
        cleanup=Cleanup(removed=old.cleanup.removed) if old.cleanup else None,
    )
    status = without_condition(with_condition(status, "Suspended", "False", RESUMED, context.now), "Cleaned")
    events = [Event("Normal", "Resumed", "resuming: creating the pods")]
    if old.replicas and not is_decided(old) and cleaned_storage(context.spec, old) != context.spec.storage:
        left = f"resumed in another storage before that of the earlier pods was cleaned; {BY_HAND} there"
        events.append(Event("Warning", "CleanupFailed", left))
    return draft.sorted_anew_without_writes(context, status).with_events(*events)


def _suspended(context: Context, draft: Draft) -> Status:
    (reason, message), pods = SUSPENDED, context.observed.replicas
    if pods:
        message = f"suspended: waiting for {pods[0].label} to stop"
    status = msgspec.structs.replace(
        without_backup(with_latest(context.status, draft.report)),
        phase="Suspended",
        reason=reason,
        message=message,
        replicas=_counts(context, draft),
        ready=f"0/{len(context.spec.gang)}",
    )
    status = no_progress_over(status, SUSPENDED, context.now)
    return with_condition(status, "Suspended", "True", SUSPENDED, context.now)


def _counts(context: Context, draft: Draft) -> dict[str, Counts]:
    """The counts of the pods that are still there, of the roles that the job has; none for a job that never had any."""
    status, pods = context.status, context.observed.replicas
    wanted = [each.role for each in (*draft.gang.wanted, *draft.gang.wanted_evaluators)]
    counts: dict[str, Counts] = {}
    for role in ROLES:
        there = {pod.replica.index: pod for pod in pods if pod.replica and pod.replica.role == role}
        if there or role in status.replicas:
            counts[role] = Counts(
                desired=wanted.count(role),
                active=sum(1 for pod in there.values() if not pod.ended),
                highest=max((status.replicas.get(role, Counts()).highest, *there)),
            )
    return counts

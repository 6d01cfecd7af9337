"""runPolicy.ttlSecondsAfterFinished: the job is deleted, and with it what it owns, some time after its end.

The job is not deleted before everything that remains to be done is done: the temporary directories are removed or given
up, and pods that are being deleted are gone. The next job of that name would have to wait for a pod on a dead node, or
for a pod that a queue keeps.
"""

from tftraining_operator.model.times import later
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.kueue_pods import is_held
from tftraining_operator.plan.step import Step
from tftraining_operator.plan.workertemp_cleanup import is_decided


def expire(context: Context, draft: Draft) -> Draft:
    """The deletion of the job when its time has come and nothing else remains to be done."""
    ttl, ended = context.run_policy.ttl_seconds_after_finished, draft.status.completion_time
    if ttl is None or ended is None or not _is_done(context, draft):
        return draft
    due = later(ended, ttl)
    if due is None:
        return draft
    if context.now >= due:
        return draft.with_fields(status=context.job.status, delete_job=True)
    return draft.with_requeue(due)


def _is_done(context: Context, draft: Draft) -> bool:
    pods = context.observed.replicas
    leaving = any(is_held(pod) or (pod.terminating and not (pod.ended or pod.node_lost)) for pod in pods)
    return not leaving and draft.step == Step(status=context.status) and is_decided(draft.status)

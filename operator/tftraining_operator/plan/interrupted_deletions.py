"""Deletions of pods that the API server has begun and not finished: they are requested again.

The API server deletes a pod without a grace period in two writes: the first sets deletionTimestamp, the second removes
the pod. If the client or the API server ends between the two, the pod stays, unless its kubelet removes it. A second
request removes the pod. Kubernetes' garbage collection requests that only for a pod that never had a node.
"""

from datetime import timedelta

from tftraining_operator.plan.context import GRACE_SECONDS, Context, Draft
from tftraining_operator.plan.step import PodDeletion

# The watch reports both writes, one right after the other: a request in between would come for nothing.
PATIENCE = timedelta(seconds=3)


def finish_deletions(context: Context, draft: Draft) -> Draft:
    """The draft with a second request for each pod that is still there PATIENCE after its deletion."""
    now, requests, next_look = context.now, [], []
    for pod in context.observed.pods:
        if pod.unremoved_since is None:
            continue
        due_at = pod.unremoved_since + PATIENCE
        if due_at <= now:
            requests.append(PodDeletion(pod.name, pod.uid, GRACE_SECONDS))
        next_look.append(due_at if due_at > now else now + PATIENCE)
    return draft.with_fields(delete_pods=(*draft.step.delete_pods, *requests)).with_requeue(*next_look)

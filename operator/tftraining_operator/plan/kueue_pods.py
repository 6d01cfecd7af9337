"""Deleted pods of a Kueue queue without a kubelet: the operator sets them to Failed, so that Kueue releases them.

Kueue keeps each pod of a group by a finalizer until all pods of the group have ended, and with the pods their names and
their quota. A deleted pod that never had a node, or whose node is lost, has no kubelet to say that it has ended.
Kubernetes' pod garbage collection says so of the first kind within 20 s, and of the second only once the node's object
is gone or tainted. No other pod is ever declared Failed.
"""

from tftraining_operator.model.observed import Pod
from tftraining_operator.plan.context import Context, Draft
from tftraining_operator.plan.step import PodFailure


def fail_held_pods(context: Context, draft: Draft) -> Draft:
    """The draft with the failure of the pods that Kueue holds and that have no kubelet."""
    held = (pod for pod in (*context.observed.pods, *context.observed.earlier) if is_held(pod))
    return draft.with_fields(fail_pods=tuple(PodFailure(pod.name, pod.uid, pod.version, _why(pod)) for pod in held))


def is_held(pod: Pod) -> bool:
    """Whether Kueue holds the pod, and only the operator can say that it has ended."""
    nobody_there = pod.node_lost or not pod.node
    return pod.queued and pod.deleting and nobody_there and pod.phase not in ("Succeeded", "Failed")


def _why(pod: Pod) -> str:
    return f"replaced: {pod.message or 'its node is lost'}" if pod.node else "deleted before scheduling"

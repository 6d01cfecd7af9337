"""Pods of a queue that nobody can end any more: declared to have failed, so that Kueue lets go of them.

Kueue keeps each pod of a group by a finalizer until all of the group have ended, and with them their names and their
quota. A deleted pod that never had a node, or whose node is lost, has no kubelet to say that it has ended. Kubernetes'
own pod garbage collection says so of the first within 20 s, of the second only once the node's object is gone or
tainted; what is given up by time alone would be waited for until its node is back. Nothing else is ever declared so.
"""

import msgspec

from tftraining_operator.model.observed import Observed, Pod
from tftraining_operator.plan.types import Ending, Plan


def with_endings(step: Plan, seen: Observed) -> Plan:
    """The step with the ends of those pods, as they were seen once those of lost nodes were marked."""
    held = (pod for pod in (*seen.pods, *seen.earlier) if is_held(pod))
    endings = tuple(Ending(pod.name, pod.uid, pod.version, _why(pod)) for pod in held)
    return msgspec.structs.replace(step, end_pods=endings)


def is_held(pod: Pod) -> bool:
    """Whether Kueue keeps the pod, and nobody but us can say that it has ended."""
    nobody_there = pod.abandoned or not pod.node
    return pod.queued and pod.deleting and nobody_there and pod.phase not in ("Succeeded", "Failed")


def _why(pod: Pod) -> str:
    return f"given up: {pod.message or 'its node is lost'}" if pod.node else "deleted before it was given a node"

"""Whether a pod of a Kueue queue may be replaced alone, and under which name.

Kueue keeps the object of a lost pod until a pod of another name has taken its place in the group, and admits that
successor at once, because the group keeps its quota as long as one of its pods has not ended. Kueue would delete the
successor of a pod that still runs, or that has ended with 0: for Kueue the place of that pod is taken. So the successor
comes when the lost pod has failed; a pod that has ended with 0 costs the whole gang, which queues anew.
"""

from collections.abc import Iterable, Mapping

from tftraining_api.model.names import Replica
from tftraining_operator.model.observed import Pod


def is_released(pod: Pod) -> bool:
    """Whether a pod that was given up may have a successor although its object is still there."""
    return bool(pod.queue_group) and pod.phase == "Failed"


def admits_successors(pods: Iterable[Pod], lost: Iterable[Pod]) -> bool:
    """Whether Kueue admits successors of the lost pods: its group has other pods, one of which runs, and its quota."""
    lost = tuple(lost)
    gone = {pod.uid for pod in lost}
    others = [pod for pod in pods if pod.uid not in gone]
    if any(pod.quota_taken for pod in (*lost, *others)) or any(pod.phase == "Succeeded" for pod in lost):
        return False
    return any(pod.queue_group and pod.phase == "Running" and not pod.terminating for pod in others)


def find_unreplaceable(pods: Iterable[Pod], given_up: Iterable[Pod]) -> Pod | None:
    """A pod whose place in the group stays empty: one that was given up and then ended with 0, or a successor that
    waits for a group of which all others have ended. None of `pods` has been lost."""
    pods = tuple(pods)
    ended_with_zero = [pod for pod in given_up if pod.queue_group and pod.phase == "Succeeded"]
    stranded = [pod for pod in pods if pod.successor and pod.gated]
    if any(not pod.ended for pod in pods if pod not in stranded):
        stranded = []
    return next(iter((*ended_with_zero, *stranded)), None)


def next_successors(numbers: Mapping[str, int], lost: Iterable[Replica], pods: Iterable[Pod]) -> dict[str, int]:
    """status.successors after the loss of these replicas."""
    known = _beyond(numbers, pods, 0)
    return {**numbers, **{str(each): known.get(str(each), 0) + 1 for each in lost}}


def free_successors(numbers: Mapping[str, int], given_up: Iterable[Pod]) -> dict[str, int]:
    """status.successors, corrected so that no name of a pod that was given up is used again: an API server whose
    definition of the resource is older drops the field."""
    return _beyond(numbers, (pod for pod in given_up if pod.queue_group), 1)


def _beyond(numbers: Mapping[str, int], pods: Iterable[Pod], least: int) -> dict[str, int]:
    """The numbers, each by `least` or more beyond those of the member's pods."""
    found = dict(numbers)
    for pod in pods:
        number = pod.successor + least
        found[pod.label] = max(number, found.get(pod.label, number))
    return found

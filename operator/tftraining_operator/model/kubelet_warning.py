"""A kubelet's warning about a pod that it cannot start, parsed from its event.

Image errors appear in the pod's status too, at the kubelet's next sync; volume and network errors in events only.
"""

import re

import msgspec

from tftraining_api.model.spec import Frozen, Manifest
from tftraining_operator.model.observed import LONGEST_MESSAGE, Pod, pull_failure

PULL = re.compile(r'Failed to pull image "([^"]+)": (.*)', re.DOTALL)
PLACE = re.compile(r"spec\.(initContainers|containers)\{([^{}]+)\}")
# Errors of volumes and of the network; the pod's status reports other errors as early as events do.
UNPREPARED = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")


class KubeletWarning(Frozen, frozen=True):
    """A kubelet's warning: it cannot pull `image` of `container`, or, if both are empty, cannot prepare the pod."""

    words: str
    container: str = ""
    image: str = ""
    init: bool = False


def parse_kubelet_warning(event: Manifest) -> KubeletWarning | None:
    """The warning in a v1 Event; None if it is not about the start of a pod."""
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))[:LONGEST_MESSAGE]
    if reason in UNPREPARED:
        return KubeletWarning(message)
    place = PLACE.fullmatch(str((event.get("involvedObject") or {}).get("fieldPath", "")))
    pull = PULL.match(message)
    if reason != "Failed" or place is None or pull is None:
        return None
    return KubeletWarning(pull[2], place[2], pull[1], place[1] == "initContainers")


def with_kubelet_warning(pod: Pod, warned: KubeletWarning | None) -> Pod:
    """The pod with the kubelet's warning, if the pod still waits for it and its status gives no reason itself."""
    if warned is None or pod.waiting or pod.running or pod.ended:
        return pod
    if not warned.container:
        return msgspec.structs.replace(pod, unprepared=warned.words) if pod.preparing else pod
    who = f"{'init ' if warned.init else ''}container {warned.container}"
    if who not in pod.waiting_containers:
        return pod
    return msgspec.structs.replace(pod, waiting=f"{who}: {pull_failure(warned.image, warned.words)}")

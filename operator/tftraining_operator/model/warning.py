"""What a kubelet says of a pod that it cannot start, parsed from its event.

Of an image it says so in the pod's status too, when it next looks at the pod; of volumes and networks in events only.
"""

import re

import msgspec

from tftraining_operator.model.observed import LONGEST_MESSAGE, Pod, pull_failure
from tftraining_operator.model.spec import Frozen, Manifest

PULL = re.compile(r'Failed to pull image "([^"]+)": (.*)', re.DOTALL)
PLACE = re.compile(r"spec\.(initContainers|containers)\{([^{}]+)\}")
# Volumes and the network; what else goes wrong with a pod its status tells as soon.
UNPREPARED = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox")


class Warned(Frozen, frozen=True):
    """A kubelet's warning about a pod: `image` of a `container` that it could not pull, or what keeps the whole pod."""

    words: str
    container: str = ""
    image: str = ""
    init: bool = False


def parse_warning(event: Manifest) -> Warned | None:
    """The warning in a v1 Event; None if it is not about the start of a pod."""
    reason, message = str(event.get("reason", "")), str(event.get("message", ""))[:LONGEST_MESSAGE]
    if reason in UNPREPARED:
        return Warned(message)
    place = PLACE.fullmatch(str((event.get("involvedObject") or {}).get("fieldPath", "")))
    pull = PULL.match(message)
    if reason != "Failed" or place is None or pull is None:
        return None
    return Warned(pull[2], place[2], pull[1], place[1] == "initContainers")


def with_warning(pod: Pod, warned: Warned | None) -> Pod:
    """The pod with what its kubelet has said of it, as long as its status says no more and it still waits for that."""
    if warned is None or pod.waiting or pod.running or pod.ended:
        return pod
    if not warned.container:
        return msgspec.structs.replace(pod, unprepared=warned.words) if pod.preparing else pod
    who = f"{'init ' if warned.init else ''}container {warned.container}"
    if who not in pod.waiting_containers:
        return pod
    return msgspec.structs.replace(pod, waiting=f"{who}: {pull_failure(warned.image, warned.words)}")

"""Restricted by default: what the Pod Security Standard "restricted" asks for, unless the template says otherwise."""

from tftraining_operator.model.spec import Manifest

USER = 1000


def pod_security(own: Manifest) -> Manifest:
    """The pod's security context: the template's own values over the restricted defaults.

    A template that runs as root says so with runAsUser 0; runAsNonRoot would then keep the pod from starting.
    """
    defaults: Manifest = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        # Without it the kubelet walks and changes the owner of a whole training volume at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if own.get("runAsUser") == 0:
        del defaults["runAsNonRoot"]
    return {**defaults, **own}


def container_security(own: Manifest, of_pod: Manifest) -> Manifest:
    """A container's security context: the template's own values over the restricted defaults.

    `of_pod` is what the template itself says for the whole pod: only its own runAsNonRoot binds a container of root.
    """
    defaults: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if own.get("privileged"):
        defaults = {}
    if own.get("runAsUser") == 0 and "runAsNonRoot" not in of_pod:
        defaults["runAsNonRoot"] = False
    return {**defaults, **own}

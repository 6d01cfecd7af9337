"""Security contexts by the Pod Security Standard "restricted", unless the template says otherwise."""

from tftraining_api.model.spec import Manifest

USER = 1000


def pod_security(own: Manifest) -> Manifest:
    """The pod's security context: the template's own values over the restricted defaults.

    Without runAsNonRoot for a template with runAsUser 0 (root): the pod could not start.
    """
    defaults: Manifest = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        # By default the kubelet would change the owner of every file in the training volume at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if own.get("runAsUser") == 0:
        del defaults["runAsNonRoot"]
    return {**defaults, **own}


def container_security(own: Manifest, of_pod: Manifest) -> Manifest:
    """A container's security context: the template's own values over the restricted defaults.

    `of_pod` is the template's own security context of the pod: only its own runAsNonRoot forbids a root container.
    """
    defaults: Manifest = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if own.get("privileged"):
        defaults = {}
    if own.get("runAsUser") == 0 and "runAsNonRoot" not in of_pod:
        defaults["runAsNonRoot"] = False
    return {**defaults, **own}

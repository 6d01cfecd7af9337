"""What a gang of Kubernetes' own scheduler (runPolicy.scheduling.gang: Native) excludes, where no rule of the custom
resource sees it: labels, and the fields of pod templates that its schema does not know.
"""

from collections.abc import Mapping

from tftraining.launch.roles import GANG_ROLES
from tftraining_api.model.names import QUEUE_LABELS
from tftraining_api.model.spec import JobSpec

FIELD = "spec.runPolicy.scheduling.gang"


def why_no_native_gang(spec: JobSpec, queue: Mapping[str, str]) -> str | None:
    """Why the job asks for such a gang and cannot have it, for users; None if it can, or does not ask."""
    if not spec.native_gang:
        return None
    if queue:
        return f"{FIELD} excludes the label {QUEUE_LABELS[0]}, because Kueue groups the pods itself: remove one of them"
    roles = [role for role in GANG_ROLES if spec.role(role) is not None]
    if any("schedulingGroup" in (spec.template_of(role).get("spec") or {}) for role in roles):
        return f"with {FIELD} the operator sets schedulingGroup: remove it from the pod templates"
    classes = {role: spec.priority_class_of(role) for role in roles}
    if len(set(classes.values())) > 1:
        told = ", ".join(f"{role}: {name or 'none'}" for role, name in classes.items())
        return (
            f"with {FIELD} all pods of the gang need the same priorityClassName (now {told}): change the pod templates"
        )
    return None

"""Spec updates for the launchers of a running gang: an annotation of the chief's pod.

The kubelet mounts the annotation as a file for the chief's launcher, which decides for all launchers. So nobody needs
the right to read the job's Secret, and only those with the right to change pods can resize a gang. The annotation must
contain only fields that may change while the job runs, or in a suspension too short to be observed (fields whose change
needs new pods: plan/incident.SPEC_CHANGED). Every other field is in the pod since its creation.
"""

import json

from tftraining.launch.config.settings_and_defaults import UPDATABLE
from tftraining.launch.roles import WORKER
from tftraining_api.model.spec import JobSpec, Manifest

VOLUME, DIRECTORY, FILE = "tftraining-orders", "/opt/tftraining-orders", "orders"


def spec_update(spec: JobSpec) -> Manifest:
    """The fields of the present spec that running launchers take."""
    worker = spec.role(WORKER)
    return {"workers": worker.replicas if worker else 0, **spec.launcher_settings(UPDATABLE)}


def annotation(spec: JobSpec) -> str:
    """The annotation of a new pod."""
    return json.dumps(spec_update(spec))


def changed_annotation(spec: JobSpec, present: str) -> str | None:
    """The annotation that replaces a pod's present one; None if that one matches the spec.

    Fields that the pod was created without stay out: a new version of the operator changes no running pod.
    """
    try:
        old = json.loads(present)
        wanted = {**old, **{name: value for name, value in spec_update(spec).items() if name in old}}
        return None if wanted == old else json.dumps(wanted)
    except (ValueError, TypeError, RecursionError):  # somebody else has written it
        return annotation(spec)

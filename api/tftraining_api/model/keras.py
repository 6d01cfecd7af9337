"""Which Keras the programs of a job get (spec.launcher.keras): decided once a job, kept in status.keras. Pure.

Keras 2 and Keras 3 cannot read each other's backups, and members of a gang cannot train with both: the answer must
never change while the job lives, whichever version of the operator or of a launcher asks.
"""

from collections.abc import Sequence
from typing import get_args

from tftraining_api.model.spec import JobSpec
from tftraining_api.model.status import Keras, Status

OWN: Keras = "Own"
LEGACY: Keras = "Legacy"


def keras_of(spec: JobSpec, status: Status, pods: Sequence[str] = ()) -> Keras | None:
    """The Keras of the job; None without launchers, where the manifest decides (manifests/pod.py). `pods` is, for each
    pod that the job has, what its manifest says (recorded by `in_manifests`)."""
    if status.keras is not None or not spec.in_place:
        return status.keras
    if pods:
        return next((each for each in get_args(Keras) if each == pods[0]), LEGACY)
    if has_begun(status):
        return LEGACY
    return OWN if spec.launcher.keras == "Auto" else spec.launcher.keras


def has_begun(status: Status, pods: Sequence[object] = ()) -> bool:
    """Whether the job has, had or may have had pods. Such a job without a decision has the rule of the versions that
    made none: tf_keras in gangs."""
    return bool(pods or status.replicas) or status.attempt > 1


def in_manifests(status: Status) -> Keras | None:
    """What manifests say of the decision; None for the rule of versions that made none, so that nothing differs from
    their manifests."""
    return None if status.keras == LEGACY else status.keras

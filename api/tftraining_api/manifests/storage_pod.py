"""The spec of a short-lived pod that works on the storage of a job: under the restricted Pod Security Standard, without
a service account token, as the user and in the place of the training pods, whose files it reads or writes."""

from tftraining_api.manifests.security import pod_security
from tftraining_api.manifests.storage import storage_volumes
from tftraining_api.model.names import CONTAINER
from tftraining_api.model.spec import Manifest, Storage

PLACEMENT = ("nodeSelector", "tolerations", "imagePullSecrets", "runtimeClassName")
IMAGE = ("image", "imagePullPolicy")


def storage_pod_spec(
    template: Manifest, storage: Storage, container: Manifest, seconds: int, placement: tuple[str, ...] = PLACEMENT
) -> Manifest:
    """The spec. `template` is the pod spec of the user's template, whose fields `placement` are copied; the pod ends
    after so many seconds at the latest."""
    return {
        "automountServiceAccountToken": False,
        **{field: template[field] for field in placement if field in template},
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": seconds,
        "securityContext": pod_security(user_of(template)),
        "containers": [container],
        "volumes": storage_volumes(storage),
    }


def user_of(template: Manifest) -> Manifest:
    """The security context of the training process; the container's user overrides the pod's."""
    own = training_container(template).get("securityContext") or {}
    fields = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions")
    return {**(template.get("securityContext") or {}), **{field: own[field] for field in fields if field in own}}


def training_container(template: Manifest) -> Manifest:
    """The container that trains, empty if the template has none."""
    containers = template.get("containers") or ()
    return next((each for each in containers if each.get("name") == CONTAINER), {})


def training_image(template: Manifest) -> Manifest:
    """The image of the training and how it is pulled, as fields of a container."""
    return {field: value for field, value in training_container(template).items() if field in IMAGE}

"""The pod of one replica: the user's template with additions for TensorFlow, the launcher and the operator.

The user's values take precedence over the additions, except for names and the restart policy.
"""

from collections.abc import Sequence
from typing import overload

import msgspec

from tftraining_api.manifests import code, launcher, memory_backup, spec_updates
from tftraining_api.manifests.affinity import avoiding, near_its_gang
from tftraining_api.manifests.kueue import queued
from tftraining_api.manifests.metadata import child_metadata, replica_labels
from tftraining_api.manifests.pod_group import membership
from tftraining_api.manifests.security import container_security, pod_security
from tftraining_api.manifests.storage import job_directory, storage_mounts, storage_volumes
from tftraining_api.manifests.tf_config import tf_config
from tftraining_api.model import keras
from tftraining_api.model.job import Job
from tftraining_api.model.names import (
    ANNOTATION_GANG,
    ANNOTATION_KERAS,
    ANNOTATION_ORDERS,
    ANNOTATION_RESTARTED_AT,
    ANNOTATION_SPEC,
    CONTAINER,
    Replica,
    pod_name,
)
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import largest_gang
from tftraining_api.model.tf_config import in_manifest

SHM_VOLUME = "tftraining-shm"


class PodManifests(Sequence[Manifest]):
    """The manifests of the pods of `replicas`, each built on access.

    All manifests of a large gang together would take hundreds of MiB.
    """

    def __init__(self, job: Job, spec: JobSpec, replicas: Sequence[Replica], image: str) -> None:
        self._job = job
        self._spec = spec
        self._replicas = replicas
        self._image = image

    def __len__(self) -> int:
        return len(self._replicas)

    @overload
    def __getitem__(self, index: int) -> Manifest: ...

    @overload
    def __getitem__(self, index: slice) -> "PodManifests": ...

    def __getitem__(self, index: int | slice) -> "Manifest | PodManifests":
        if isinstance(index, slice):
            return PodManifests(self._job, self._spec, self._replicas[index], self._image)
        return pod(self._job, self._spec, self._replicas[index], self._image)


def pod(job: Job, spec: JobSpec, replica: Replica, image: str) -> Manifest:
    """The pod manifest of one replica in the job's present attempt. `image` is the operator's."""
    # A copy. That of Python's copy module takes ten times as long, and fails for deeply nested templates.
    template: Manifest = msgspec.json.decode(msgspec.json.encode(spec.template_of(replica.role)))
    own = template.get("spec") or {}
    own_spec = near_its_gang(_pod_spec(job, spec, replica, own), job, spec, replica)
    own_spec = avoiding(own_spec, job.status.avoided_nodes)
    pod_spec = own_spec | {"hostname": pod_name(job.key.name, replica)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(job, spec, replica, template.get("metadata") or {}),
        "spec": _with_launcher(job, spec, replica, pod_spec, image) if spec.in_place else pod_spec,
    }


def _with_launcher(job: Job, spec: JobSpec, replica: Replica, pod_spec: Manifest, image: str) -> Manifest:
    init = launcher.init_container(spec, image, spec.template_of(replica.role).get("spec") or {})
    trains: Manifest = next((each for each in pod_spec["containers"] if each.get("name") == CONTAINER), {})
    backup_size = memory_backup.size_limit(job.status, spec, replica, trains)
    container = code.with_program(launcher.training_container(trains, backup_size), spec.code)
    containers = [container if each is trains else each for each in pod_spec["containers"]]
    return {
        **pod_spec,
        "initContainers": [init, *(pod_spec.get("initContainers") or ())],
        "containers": containers,
        "volumes": [*pod_spec["volumes"], *launcher.volumes(job, backup_size), *code.volumes(spec.code)],
    }


def _metadata(job: Job, spec: JobSpec, replica: Replica, own: Manifest) -> Manifest:
    group, queue = membership(job, spec, replica), queued(job, spec, replica)
    labels = {**(own.get("labels") or {}), **group.labels, **queue.labels}
    name = pod_name(job.key.name, replica, job.status.successors.get(str(replica), 0))
    metadata = child_metadata(job, name, labels | replica_labels(replica, job.status.attempt))
    ours = {
        ANNOTATION_GANG: spec.gang_shape,
        ANNOTATION_SPEC: spec.fingerprint,
        ANNOTATION_RESTARTED_AT: job.restarted_at,
    }
    if spec.in_place:
        ours[ANNOTATION_ORDERS] = spec_updates.annotation(spec)
    if (kind := keras.in_manifests(job.status)) is not None:
        ours[ANNOTATION_KERAS] = kind
    annotations = {**(own.get("annotations") or {}), **group.annotations, **queue.annotations, **ours}
    return {**metadata, "annotations": annotations}


def _pod_spec(job: Job, spec: JobSpec, replica: Replica, own: Manifest) -> Manifest:
    scheduling = spec.run_policy.scheduling
    defaults: Manifest = {
        "automountServiceAccountToken": False,
        # Otherwise each Service of the namespace adds variables to every process.
        "enableServiceLinks": False,
        # TensorFlow ignores SIGTERM, so a deletion always takes the whole grace period.
        "terminationGracePeriodSeconds": spec.launcher.termination_grace_seconds
        + (launcher.LAST_WORDS_SECONDS if spec.in_place else 0),
    }
    if scheduling and scheduling.priority_class_name:
        defaults["priorityClassName"] = scheduling.priority_class_name
    defaults |= membership(job, spec, replica).spec
    result = {**defaults, **own, "restartPolicy": "Never", "subdomain": job.key.name}
    result["securityContext"] = pod_security(own.get("securityContext") or {})
    containers = [_restricted(each, own) for each in own.get("containers") or ()]
    result["containers"] = [_container(job, spec, replica, each) for each in containers]
    if own.get("initContainers"):
        result["initContainers"] = [_restricted(each, own) for each in own["initContainers"]]
    result["volumes"] = _volumes(spec, own.get("volumes") or [])
    return result


def _restricted(container: Manifest, pod_spec: Manifest) -> Manifest:
    of_pod = pod_spec.get("securityContext") or {}
    return {**container, "securityContext": container_security(container.get("securityContext") or {}, of_pod)}


def _container(job: Job, spec: JobSpec, replica: Replica, own: Manifest) -> Manifest:
    if own.get("name") != CONTAINER:
        return own
    result = dict(own)
    # The pod's status then has the last lines of the log, so the operator needs no right to read logs.
    result.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    user_env = own.get("env") or []
    named = {each.get("name") for each in user_env}
    # The operator's variables come first, so that $(TFTRAINING_DIR) expands in the user's.
    ours = _environment(job, spec, replica)
    if spec.in_place:
        ours.append(launcher.environment(job, spec, replica, own))
    result["env"] = [each for each in ours if each["name"] not in named] + user_env
    result["volumeMounts"] = _mounts(spec, own.get("volumeMounts") or [])
    return result


def _environment(job: Job, spec: JobSpec, replica: Replica) -> list[Manifest]:
    # Trackers of experiments need an identity that all restarts share, also as $(TFTRAINING_JOB_UID).
    env: list[Manifest] = [
        {"name": "TFTRAINING_JOB_UID", "value": job.uid},
        {"name": "TFTRAINING_JOB_NAME", "value": job.key.name},
        {"name": "TFTRAINING_ATTEMPT", "value": str(job.status.attempt)},
    ]
    if spec.storage:
        env.append({"name": "TFTRAINING_DIR", "value": job_directory(job, spec.storage)})
    if in_manifest(job.key, spec, replica):
        env.append({"name": "TF_CONFIG", "value": tf_config(job, spec, replica)})
    env += [
        {"name": name, "value": str(len(spec.trainers))} for name in ("TFTRAINING_WORKERS", "TFTRAINING_MAX_WORKERS")
    ]
    if largest_gang(job.status, spec) > 1 and not spec.in_place and keras.in_manifests(job.status) is None:
        # Without hooks, Keras 3's fit fails under MultiWorkerMirroredStrategy with two or more workers (keras issue
        # 20585). A job that has had launchers keeps the Keras that they gave it.
        env.append({"name": "TF_USE_LEGACY_KERAS", "value": "1"})
    # Without buffering log lines appear at once, and the termination message is complete.
    env.append({"name": "PYTHONUNBUFFERED", "value": "1"})
    return env


def _mounts(spec: JobSpec, own: list[Manifest]) -> list[Manifest]:
    added = storage_mounts(spec.storage)
    if not any(each.get("mountPath", "").rstrip("/") == "/dev/shm" for each in own):
        added.append({"name": SHM_VOLUME, "mountPath": "/dev/shm"})
    return own + added


def _volumes(spec: JobSpec, own: list[Manifest]) -> list[Manifest]:
    # NCCL and tf.data pass buffers through /dev/shm; the runtime's default of 64 MiB is too small for either.
    shared_memory: Manifest = {"name": SHM_VOLUME, "emptyDir": {"medium": "Memory"}}
    return [*own, shared_memory, *storage_volumes(spec.storage)]

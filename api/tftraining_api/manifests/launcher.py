"""The parts of a pod for the launcher (trainer/tftraining/launch), which restarts the program inside the running pod.

An init container with the launcher's image copies the launcher into the pod, so any image with Python works; the
launcher then runs the user's command. The launchers of a job authenticate each other by a key from a Secret, mounted as
a file: the key must never be in a variable, an argument, a log or an event.
"""

import json

import msgspec

from tftraining.launch.failure.restart_rules import REASONS
from tftraining.launch.roles import WORKER
from tftraining_api.manifests import code, memory_backup, spec_updates
from tftraining_api.manifests.interpreter import python_of
from tftraining_api.manifests.metadata import child_metadata
from tftraining_api.manifests.security import container_security
from tftraining_api.manifests.storage import mounted_directory
from tftraining_api.manifests.tf_config import pattern_settings
from tftraining_api.model import keras
from tftraining_api.model.job import Job
from tftraining_api.model.names import (
    ANNOTATION_ORDERS,
    RENDEZVOUS_PORT,
    STATUS_PORT,
    Replica,
    address,
    address_pattern,
    secret_name,
)
from tftraining_api.model.spec import JobSpec, Manifest
from tftraining_api.model.status import largest_gang
from tftraining_api.model.tf_config import in_manifest

INIT_CONTAINER = "tftraining-launcher"
LAUNCHER_VOLUME, KEY_VOLUME = "tftraining-launcher", "tftraining-key"
LAUNCHER_DIRECTORY, KEY_DIRECTORY, KEY = "/opt/tftraining-launcher", "/opt/tftraining-key", "key"
# Limits equal requests, so a pod of QoS class Guaranteed stays Guaranteed. Only resources that the user's containers
# request are set: a Kueue queue without quota for a resource admits no pod that requests it.
RESOURCES = {"cpu": "250m", "memory": "64Mi"}
NO_REASON = "OfPods"
# Time for the launcher to report the program's end, after it has killed the program at the end of its grace period.
LAST_WORDS_SECONDS = 2


def secret(job: Job) -> Manifest:
    """The job's Secret without its key: the sender fills in random bytes, so that no step of the planner has them.

    It is not immutable: a kubelet never reads an immutable Secret again while any of its pods has it, not even one that
    was deleted and made again, and would give the old key to new pods for good.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(job, secret_name(job.key.name, job.uid), {}),
        "type": "Opaque",
    }


def init_container(spec: JobSpec, image: str, own: Manifest) -> Manifest:
    """The init container of a training pod, which brings the launcher and the program of spec.code."""
    return code.with_unpacking(copying_container(spec, image, own), spec)


def copying_container(spec: JobSpec, image: str, own: Manifest) -> Manifest:
    """The init container that copies the launcher. `image` is the operator's; `own` is the pod spec of the user's
    template."""
    amounts = _resources_of(own)
    return {
        "name": INIT_CONTAINER,
        "image": spec.launcher.image or image,
        "command": ["python3", "-m", "tftraining.launch.install", LAUNCHER_DIRECTORY],
        "securityContext": container_security({"readOnlyRootFilesystem": True}, own.get("securityContext") or {}),
        "resources": {"requests": amounts, "limits": dict(amounts)} if amounts else {},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": LAUNCHER_VOLUME, "mountPath": LAUNCHER_DIRECTORY}],
    }


def _resources_of(own: Manifest) -> dict[str, str]:
    """The resource requests of the init container."""
    containers = [*(own.get("containers") or ()), *(own.get("initContainers") or ())]
    asks = [each.get("resources") or {} for each in containers]
    named = {name for each in asks for part in ("requests", "limits") for name in each.get(part) or ()}
    return {name: amount for name, amount in RESOURCES.items() if name in named}


def volumes(job: Job, backup_size: int | None) -> list[Manifest]:
    """The volumes: the launcher, the key (readable by the pod's fsGroup only), the spec updates, and the backups in
    memory, of that many bytes."""
    name = secret_name(job.key.name, job.uid)
    key = {"secretName": name, "defaultMode": 0o440, "items": [{"key": KEY, "path": KEY}]}
    item = {"path": spec_updates.FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION_ORDERS}']"}}
    return [
        {"name": LAUNCHER_VOLUME, "emptyDir": {}},
        {"name": KEY_VOLUME, "secret": key},
        {"name": spec_updates.VOLUME, "downwardAPI": {"items": [item]}},
        *memory_backup.volumes(backup_size),
    ]


def training_container(container: Manifest, backup_size: int | None) -> Manifest:
    """The training container with the launcher in front of its command; `args` are unchanged.

    The kubelet expands $(VAR) in the longer command as in the user's own.
    """
    command = container.get("command") or []
    probes = {"readinessProbe": _probe("/readyz", 2, 2, 2), "livenessProbe": _probe("/healthz", 10, 5, 12)}
    return {
        **probes,
        **{name: value for name, value in container.items() if name not in probes or value},
        "command": [python_of(container), LAUNCHER_DIRECTORY, "--", *command],
        "volumeMounts": [
            *(container.get("volumeMounts") or ()),
            {"name": LAUNCHER_VOLUME, "mountPath": LAUNCHER_DIRECTORY, "readOnly": True},
            {"name": KEY_VOLUME, "mountPath": KEY_DIRECTORY, "readOnly": True},
            {"name": spec_updates.VOLUME, "mountPath": spec_updates.DIRECTORY, "readOnly": True},
            *memory_backup.mounts(backup_size),
        ],
    }


def environment(job: Job, spec: JobSpec, replica: Replica, container: Manifest) -> Manifest:
    """The variable with the launcher's settings; it contains no secret."""
    settings = {
        "job": {"namespace": job.key.namespace, "name": job.key.name, "uid": job.uid},
        "attempt": job.status.attempt,
        "rendezvous": address(job.key, spec.chief, RENDEZVOUS_PORT),
        "statusPort": STATUS_PORT,
        "host": "",
        "secretFile": f"{KEY_DIRECTORY}/{KEY}",
        "directory": mounted_directory(job, spec.storage),
        "terminationMessage": container.get("terminationMessagePath") or "/dev/termination-log",
        **spec.launcher_settings(),
        "scope": spec.restart_scope,  # unset, it follows from the roles
        # For the chief only: its launcher decides for all.
        "rules": _rules(spec) if replica == spec.chief else [],
        **_size(job, spec),
        # False for a new worker of a running gang, which does not fail if that worker cannot join.
        "needed": job.status.phase != "Running",
        "orders": f"{spec_updates.DIRECTORY}/{spec_updates.FILE}",
        # Left out without GPUs, so that manifests without GPUs stay as in earlier versions.
        **({"gpus": gpus} if (gpus := gpus_of(container)) else {}),
        **({} if in_manifest(job.key, spec, replica) else pattern_settings(job, spec, replica)),
        # The status does not count incidents.
        "ledger": {name: count for name, count in job.status.restarts.ledger.to_json().items() if name != "incidents"},
        # For a new launcher of the chief that has no other launcher to learn it from.
        "proven": job.status.proven,
        **memory_backup.settings(job.status, spec, replica, container),
        **code.settings(spec.code),
        **({} if (kind := keras.in_manifests(job.status)) is None else {"keras": kind}),
    }
    # Escaped: the kubelet would expand a $( in a path as a variable.
    return {"name": "TFTRAINING_LAUNCHER", "value": json.dumps(settings).replace("$(", "$$(")}


def gpus_of(container: Manifest) -> int:
    """The number of GPUs that the container requests, of all vendors; Kubernetes requires equal limits and requests."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(int(str(each)) for name, each in amounts.items() if name.endswith("/gpu") and str(each).isdecimal())


def _size(job: Job, spec: JobSpec) -> Manifest:
    """The settings for gangs of another size than that in TF_CONFIG."""
    worker = spec.role(WORKER)
    return {
        "workerAddress": address_pattern(job.key, WORKER, worker.port) if worker else None,
        "largestGang": largest_gang(job.status, spec),
    }


def _rules(spec: JobSpec) -> list[Manifest]:
    """The rules without reasons that launchers never report, because the most rules that a job may have must fit into
    one variable (128 KiB on Linux). A rule with only such reasons gets NO_REASON, which never matches."""
    rules: list[Manifest] = msgspec.to_builtins(spec.restart_policy.rules)
    for rule in rules:
        if reasons := rule.get("onReasons"):
            rule["onReasons"] = [each for each in reasons if each in REASONS] or [NO_REASON]
    return rules


def _probe(path: str, period: int, timeout: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": STATUS_PORT},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }

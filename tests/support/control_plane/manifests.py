"""TFTrainingJob manifests for the tests: two good ones, and small changes to them.

A change names a field by its dotted path (`spec.replicaSpecs.worker.replicas`, numbers index lists) and gives its new
value, or REMOVED. It must never change the manifest that it starts from.
"""

import copy
import enum
from collections.abc import Mapping
from typing import Any, Final

Manifest = dict[str, Any]


class _Marker(enum.Enum):
    REMOVED = "removed"


REMOVED: Final = _Marker.REMOVED


def template(**container: Any) -> Manifest:
    """Return a pod template whose container is `tensorflow`, with these fields besides or instead."""
    return {"spec": {"containers": [{"name": "tensorflow", "image": "trainer", "command": ["train"], **container}]}}


def minimal(name: str = "minimal") -> Manifest:
    """Return the shortest good manifest."""
    return {
        "apiVersion": "tftraining.dev/v1",
        "kind": "TFTrainingJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": {"worker": {"replicas": 2}}, "template": template()},
    }


FULL_SPEC: Final[Manifest] = {
    "template": {
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"disk": "fast"},
            "initContainers": [{"name": "prepare", "image": "busybox", "env": [{"name": "A", "value": "1"}]}],
            "containers": [
                {
                    "name": "tensorflow",
                    "image": "trainer",
                    "command": ["python", "train.py"],
                    "env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                },
                {"name": "sidecar", "image": "proxy"},
            ],
        },
    },
    "replicaSpecs": {
        "chief": {"replicas": 1, "port": 2223},
        "worker": {"replicas": 3, "port": 2222, "template": template()},
        "ps": {"replicas": 2, "port": 2224},
        "evaluator": {"replicas": 1, "port": 2225},
    },
    "minReplicas": 2,
    "storage": {
        "volume": {"persistentVolumeClaim": {"claimName": "data", "readOnly": False}},
        "mountPath": "/mnt/shared",
        "directory": "team/run-7",
        "saveDirs": [".", "backup", "models/v1"],
    },
    "code": {"configMap": {"name": "digits-code"}, "digest": f"sha256:{'0' * 64}"},
    "restartPolicy": {
        "mode": "InPlace",
        "scope": "Job",
        "maxRestarts": 3,
        "sameFailureLimit": 5,
        "sameMemberLimit": 4,
        "onDivergence": "Restore",
        "budgetReset": "Never",
        "rules": [
            {"onExitCodes": [1, 2], "onSignals": [9], "onReasons": ["OOMKilled"], "action": "FailJob"},
            {"role": "ps", "action": "Ignore"},
        ],
    },
    "launcher": {
        "warmStart": False,
        "terminationGraceSeconds": 10,
        "memberTimeoutSeconds": 4,
        "image": "launcher:1",
        "keras": "Legacy",
        "memoryBackup": {"mode": "Off", "maxOverheadPercent": 2.5, "sizeLimit": "500M", "exactness": "Required"},
    },
    "runPolicy": {
        "suspend": False,
        "activeDeadlineSeconds": 3600,
        "startDeadlineSeconds": 60,
        "stallTimeoutSeconds": 120,
        "ttlSecondsAfterFinished": 0,
        "evaluatorGraceSeconds": 30,
        "nodeLostSeconds": 90,
        "cleanPodPolicy": "All",
        "scheduling": {
            "podGroup": {"apiVersion": "scheduling.volcano.sh/v1beta1", "minAvailable": 3, "queue": "research"},
            "priorityClassName": "high",
        },
        "managedBy": "tftraining.dev/operator",
    },
    "successPolicy": "Chief",
}
# What the full manifest has to change with the mode Recreate: these need launchers.
WITHOUT_LAUNCHERS: Final[Manifest] = {
    "spec.restartPolicy.mode": "Recreate",
    "spec.launcher.warmStart": True,
    "spec.launcher.memberTimeoutSeconds": 3,
    "spec.launcher.memoryBackup.maxOverheadPercent": 1,
    "spec.launcher.memoryBackup.sizeLimit": REMOVED,
    "spec.launcher.memoryBackup.exactness": "Preferred",
    "spec.runPolicy.stallTimeoutSeconds": REMOVED,
    "spec.minReplicas": REMOVED,
    "spec.code": REMOVED,
}


def full(name: str = "full") -> Manifest:
    """Return a good manifest that sets every field of the spec, most to something else than the default."""
    return minimal(name) | {"spec": copy.deepcopy(FULL_SPEC)}


def changed(manifest: Manifest, changes: Mapping[str, Any]) -> Manifest:
    """Return a copy of the manifest with these changes; missing objects on the way are made."""
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        _change(result, path.split("."), value)
    return result


def _change(node: Any, path: list[str], value: Any) -> None:
    *way, last = path
    for step in way:
        node = node[int(step)] if isinstance(node, list) else node.setdefault(step, {})
    if value is REMOVED:
        del node[last]
    elif isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value

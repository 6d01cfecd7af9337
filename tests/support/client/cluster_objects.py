"""Objects of a cluster as the API server gives them, at one fixed time: a job, its pods and its events."""

import copy
from datetime import UTC, datetime
from typing import Any

from tftraining_client.cluster.models import Event, Job, Pod

NOW = datetime(2026, 1, 2, 4, tzinfo=UTC)
RAW: dict[str, Any] = {
    "metadata": {"name": "digits", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-02T03:00:00Z"},
    "spec": {"replicaSpecs": {"worker": {"replicas": 2}}},
    "status": {
        "phase": "Running",
        "reason": "Training",
        "message": "the gang trains",
        "ready": "2/2",
        "restarts": {"counted": 1},
        "replicas": {"worker": {"desired": 2, "active": 2, "ready": 1}},
        "progress": {
            "display": "epoch 3/10",
            "epoch": 3,
            "epochs": 10,
            "step": 210,
            "stepsPerEpoch": 70,
            "stepsPerSecond": 56.12,
            "metrics": {"loss": 0.3012, "accuracy": 0.9102},
        },
        "lastRestart": {
            "time": "2026-01-02T03:40:00Z",
            "pod": "digits-worker-1",
            "reason": "Error",
            "exception": "ValueError: boom",
            "downSeconds": 3.14,
            "lostSteps": 42,
            "resumedFromEpoch": 2,
        },
    },
}

HISTORY: dict[str, Any] = {
    "startTime": "2026-01-02T03:30:00Z",
    "steps": [1, 2],
    "epochs": [1, 2],
    "seconds": [0, 5],
    "metrics": {"loss": [2, 1]},
    "restarts": [{"time": "2026-01-02T03:30:03Z", "step": 1, "reason": "Killed"}],
}


def a_job(name: str = "digits", **status: Any) -> Job:
    """A job that trains, with these fields of the status besides or instead; None removes a field."""
    raw = copy.deepcopy(RAW)
    raw["metadata"]["name"] = name
    raw["status"] = {key: value for key, value in {**raw["status"], **status}.items() if value is not None}
    return Job.of(raw)


def a_pod(index: int, waiting: str = "", role: str = "worker") -> Pod:
    """A ready pod, or one that waits for that reason."""
    labels = {"tftraining.dev/role": role, "tftraining.dev/index": str(index)}
    state: dict[str, Any] = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    name = f"digits-{role}-{index}"
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "uid": name,
                "creationTimestamp": "2026-01-02T03:00:30Z",
                "labels": labels,
            },
            "spec": {"nodeName": "node-1"},
            "status": {
                "phase": "Pending" if waiting else "Running",
                "containerStatuses": [{"name": "tensorflow", "ready": not waiting, "state": state}],
            },
        }
    )


def an_event(time: str, reason: str, message: str, kind: str = "Normal") -> Event:
    """An event about the job."""
    return Event.of({"metadata": {}, "eventTime": time, "type": kind, "reason": reason, "message": message})

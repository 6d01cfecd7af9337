"""`tftj`, and the Python client for TFTrainingJobs: `from tftraining_client import Client`.

Importing this package must stay cheap, and must never import TensorFlow or kopf.
"""

from typing import TYPE_CHECKING, Any

from tftraining_client.errors import (
    ApiUnavailable,
    JobDeleted,
    JobEnded,
    JobFailed,
    JobNotFound,
    NoCustomResource,
    PermissionDenied,
    UserError,
    WaitTimeout,
)

if TYPE_CHECKING:
    from tftraining_client.cluster.async_client import AsyncClient
    from tftraining_client.cluster.client import Client
    from tftraining_client.cluster.models import Event, Job, JobChange, LogLine, Pod
    from tftraining_client.cluster.snapshot import Snapshot
    from tftraining_client.function import distributed, from_function
    from tftraining_client.history import History, Point, RestartMark

__all__ = [
    "ApiUnavailable",
    "AsyncClient",
    "Client",
    "Event",
    "History",
    "Job",
    "JobChange",
    "JobDeleted",
    "JobEnded",
    "JobFailed",
    "JobNotFound",
    "LogLine",
    "NoCustomResource",
    "PermissionDenied",
    "Pod",
    "Point",
    "RestartMark",
    "Snapshot",
    "UserError",
    "WaitTimeout",
    "distributed",
    "from_function",
]

_MODULES = {
    "AsyncClient": "cluster.async_client",
    "Client": "cluster.client",
    "Event": "cluster.models",
    "History": "history",
    "Job": "cluster.models",
    "JobChange": "cluster.models",
    "LogLine": "cluster.models",
    "Pod": "cluster.models",
    "Point": "history",
    "RestartMark": "history",
    "Snapshot": "cluster.snapshot",
    "distributed": "function",
    "from_function": "function",
}


def __getattr__(name: str) -> Any:
    """Import the client at its first use: `tftj run` does without it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

"""The task of a process in a job, parsed from TF_CONFIG.

This module reads only the environment, and must never import TensorFlow: programs check arguments and paths before that
slow import.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class TFConfigError(ValueError):
    """TF_CONFIG is invalid; the message is one line that says why."""


@dataclass(frozen=True)
class Task:
    """One process of a job.

    `workers` counts the processes that train together: the chief and the workers, without parameter servers and
    evaluator. Exactly one of these is the chief: the `chief` task, otherwise worker 0. `rank` is the position of a
    process among these, the chief first; the evaluator's rank is behind all others.
    """

    type: str = "worker"
    index: int = 0
    workers: int = 1
    is_chief: bool = True
    rank: int = 0

    @property
    def name(self) -> str:
        """The name of the task, as in the pod's name: `worker-1`."""
        return f"{self.type}-{self.index}"


def task_from_environment(environment: Mapping[str, str] | None = None) -> Task:
    """The task in TF_CONFIG; without TF_CONFIG, the only worker. TFConfigError if TF_CONFIG is invalid."""
    text = (os.environ if environment is None else environment).get("TF_CONFIG", "").strip()
    if not text:
        return Task()
    try:
        config = json.loads(text)
    except ValueError as error:
        raise TFConfigError(f"TF_CONFIG is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise TFConfigError("TF_CONFIG is not a JSON object")
    return _task(config) if config else Task()


def scaled(rate: float, environment: Mapping[str, str] | None = None) -> float:
    """The learning rate of this round, if `rate` is that of the full gang and the batch of each worker is constant.

    The rate is proportional to the number of workers that train, and so to the batch (the linear scaling rule). Without
    a launcher, and in a full gang, it is `rate`.
    """
    values = os.environ if environment is None else environment
    workers = int(values.get("TFTRAINING_WORKERS", "1"))
    return rate * workers / full_gang(workers, values)


def full_gang(workers: int, environment: Mapping[str, str] | None = None) -> int:
    """The number of workers that train when all members are there; without a launcher, those that train, `workers`."""
    values = os.environ if environment is None else environment
    return int(values.get("TFTRAINING_MAX_WORKERS", workers))


def _task(config: dict[str, Any]) -> Task:
    task, cluster = config.get("task"), config.get("cluster")
    if not isinstance(task, dict) or not isinstance(task.get("type"), str):
        raise TFConfigError('TF_CONFIG must have "task": {"type": …, "index": …}')
    if not isinstance(cluster, dict) or not all(isinstance(addresses, list) for addresses in cluster.values()):
        raise TFConfigError('TF_CONFIG must have "cluster": {role: [address, …]}')
    role, index = task["type"], _index(task.get("index", 0))
    # The evaluator is not part of the training cluster, so `cluster` may lack its role.
    if role != "evaluator" and index >= len(cluster.get(role, [])):
        raise TFConfigError(f"TF_CONFIG: the task is {role} {index}, which the cluster does not have")
    chief = "chief" if cluster.get("chief") else "worker"
    workers = len(cluster.get("chief", [])) + len(cluster.get("worker", []))
    rank = workers if role == "evaluator" else index + (len(cluster.get("chief", [])) if role == "worker" else 0)
    return Task(role, index, workers, is_chief=(role, index) == (chief, 0), rank=rank)


def _index(value: object) -> int:
    # Some launchers write the index as a string, and TensorFlow accepts that.
    try:
        index = int(str(value))
    except ValueError:
        index = -1
    if index < 0:
        raise TFConfigError(f'the index of "task" in TF_CONFIG must be 0, 1, 2 …, not {value!r}')
    return index

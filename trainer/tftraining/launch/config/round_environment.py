"""The variables of a round that describe the gang: TF_CONFIG, and the numbers of replicas that make steps.

Pure. Workers of a round are numbered without gaps, as TensorFlow requires. If the round has exactly the workers of the
member's own TF_CONFIG, the member gets that one unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tftraining.launch.config.settings import Settings
from tftraining.launch.roles import CHIEF, WORKER

SIZE, FULL_SIZE = "TFTRAINING_WORKERS", "TFTRAINING_MAX_WORKERS"


def of_round(settings: Settings, runs: Sequence[Sequence[int]], full: int, own: str) -> dict[str, str]:
    """The variables of a round. `runs`: its workers, as first and last index of each contiguous run; `full`: the
    replicas that make steps in a full gang; `own`: the member's TF_CONFIG. ValueError for a worker of unknown address.
    """
    workers = [index for first, last in runs for index in range(first, last + 1)]
    size = len(workers) + len(settings.cluster.get(CHIEF, ()))
    variables = {SIZE: str(size), FULL_SIZE: str(full), "TF_CONFIG": own}
    known = settings.cluster.get(WORKER, ())
    if workers == list(range(len(known))):
        return variables
    addresses = [_address(settings, known, index) for index in workers]
    role, _, index = settings.gang.me.rpartition("-")
    task = workers.index(int(index)) if role == WORKER else int(index)
    others = {name: list(value) for name, value in settings.cluster.items() if name != WORKER}
    cluster = {**others, WORKER: addresses} if addresses else others
    return {**variables, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": task}})}


def _address(settings: Settings, known: Sequence[str], index: int) -> str:
    if index < len(known):
        return known[index]
    if settings.worker_address is None:
        raise ValueError(f"the address of worker-{index} is unknown")
    return settings.worker_address.replace("%d", str(index))


def largest(settings: Settings) -> int:
    """The largest number of step-making members, past or possible: whether legacy Keras is needed follows it, and
    must not change, because checkpoints depend on it."""
    known = max(len(settings.gang.trainers), settings.largest_gang)
    return max(known, 2) if settings.policy.min_replicas else known

"""What a program is told of the gang that it trains with: TF_CONFIG, and the numbers of those who make steps.

Pure. The workers of a round are numbered without gaps, for TensorFlow knows no others; a member whose round is as its
own TF_CONFIG has it gets that one unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tftraining.launch.settings import Settings

SIZE, FULL_SIZE = "TFTRAINING_WORKERS", "TFTRAINING_MAX_WORKERS"


def of_round(settings: Settings, runs: Sequence[Sequence[int]], full: int, own: str) -> dict[str, str]:
    """The variables of a round with these workers (first and last index of each run), of `full` replicas that make
    steps when all are there. `own` is the member's TF_CONFIG. ValueError for a worker whose address nobody knows."""
    workers = [index for first, last in runs for index in range(first, last + 1)]
    size = len(workers) + len(settings.cluster.get("chief", ()))
    told = {SIZE: str(size), FULL_SIZE: str(full), "TF_CONFIG": own}
    known = settings.cluster.get("worker", ())
    if workers == list(range(len(known))):
        return told
    addresses = [_address(settings, known, index) for index in workers]
    role, _, index = settings.gang.me.rpartition("-")
    task = workers.index(int(index)) if role == "worker" else int(index)
    others = {name: list(value) for name, value in settings.cluster.items() if name != "worker"}
    cluster = {**others, "worker": addresses} if addresses else others
    return {**told, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": task}})}


def _address(settings: Settings, known: Sequence[str], index: int) -> str:
    if index < len(known):
        return known[index]
    if settings.worker_address is None:
        raise ValueError(f"the address of worker-{index} is not known")
    return settings.worker_address.replace("%d", str(index))


def largest(settings: Settings) -> int:
    """The most members that make steps this job has had or may have: with what Keras it saves must not change."""
    least = 2 if settings.policy.min_workers else 1
    return max(least, len(settings.gang.trainers), settings.largest_gang)

"""TF_CONFIG, built from the pattern of the members' addresses, and its size. Pure; used by operator and launcher.

Source of the format: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
"""

from __future__ import annotations

import json
from functools import lru_cache

NAME = "TF_CONFIG"
# The longest string that Linux accepts in a new process's environment: `NAME=`, value and NUL together (execve(2),
# MAX_ARG_STRLEN: 32 pages of 4 KiB).
LONGEST = 131072
TOO_LONG = f"{NAME} is longer than the {LONGEST} bytes that Linux allows; only a Python program can get it"

#: Each role's name, its number of members, and their address with `%d` for the index.
Cluster = tuple[tuple[str, int, str], ...]


def text(cluster: Cluster, role: str, index: int) -> str:
    """The TF_CONFIG of one member, as JSON: `{"cluster": {role: [address…]}, "task": {"type", "index"}}`.

    The evaluator is not part of the cluster: its TF_CONFIG has the cluster of the others, and itself as the task.
    """
    return f'{{"cluster": {_addresses(cluster)}, "task": {json.dumps({"type": role, "index": index})}}}'


@lru_cache(maxsize=16)
def _addresses(cluster: Cluster) -> str:
    """The text of the cluster, the same for every member of a job; cached, for it dominates the time of a large job."""
    return json.dumps({role: [address.replace("%d", str(at)) for at in range(n)] for role, n, address in cluster})


def size(value: str) -> int:
    """The size in bytes of the variable with this value, as Linux counts it."""
    return len(f"{NAME}={value}".encode("utf-8", "surrogateescape")) + 1


def size_of(cluster: Cluster, role: str, index: int) -> int:
    """The size of the member's variable, computed without building it: fast for any number of members."""
    nobody = tuple((name, 0, "") for name, _, _ in cluster)
    added = sum(_length(count, len(address) - len("%d")) for _, count, address in cluster)
    return size(text(nobody, role, index)) + added


def _length(count: int, around: int) -> int:
    """The length of a JSON list of `count` addresses, without brackets; `around` is an address without its index."""
    digits = count + sum(max(0, count - int(10**power)) for power in range(1, len(str(count))))
    return digits + count * (around + 2) + 2 * max(0, count - 1)

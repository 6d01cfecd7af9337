"""TF_CONFIG from the pattern of the members' addresses, and how long it is. Pure: operator and launcher go by the same.

Source of the format: https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
"""

from __future__ import annotations

import json
from functools import lru_cache

NAME = "TF_CONFIG"
# Linux starts no process with a longer string in its environment, `NAME=`, value and NUL together (execve(2),
# MAX_ARG_STRLEN: 32 pages of 4 KiB).
LONGEST = 131072
TOO_LONG = f"{NAME} has more than the {LONGEST} bytes that Linux takes, which only a Python can be told"

#: For each role its name, how many members it has, and their address with `%d` for the index.
Cluster = tuple[tuple[str, int, str], ...]


def text(cluster: Cluster, role: str, index: int) -> str:
    """The TF_CONFIG of one member, as JSON: `{"cluster": {role: [address…]}, "task": {"type", "index"}}`.

    The evaluator is not part of the cluster: it gets the cluster of the others, and itself as the task.
    """
    return f'{{"cluster": {_addresses(cluster)}, "task": {json.dumps({"type": role, "index": index})}}}'


@lru_cache(maxsize=16)
def _addresses(cluster: Cluster) -> str:
    """The same text for every member of a job: made anew for each, it is most of the time that a large job takes."""
    return json.dumps({role: [address.replace("%d", str(at)) for at in range(n)] for role, n, address in cluster})


def size(value: str) -> int:
    """How many bytes the variable takes with this value, as Linux counts them."""
    return len(f"{NAME}={value}".encode("utf-8", "surrogateescape")) + 1


def size_of(cluster: Cluster, role: str, index: int) -> int:
    """The size of the member's variable, without making it: quick however many members there are."""
    nobody = tuple((name, 0, "") for name, _, _ in cluster)
    added = sum(_length(count, len(address) - len("%d")) for _, count, address in cluster)
    return size(text(nobody, role, index)) + added


def _length(count: int, around: int) -> int:
    """Of a list of so many addresses, in JSON without its brackets: quotes, what is around the indexes, commas."""
    digits = count + sum(max(0, count - int(10**power)) for power in range(1, len(str(count))))
    return digits + count * (around + 2) + 2 * max(0, count - 1)

"""Gives `shuffle` a seed where the program gives none, so that a restarted program sees its input in the same order.

The seed is computed from the job's UID, the member's task, and how many calls without a seed the process has made
before. So every start of a member has the same order; another job has another one, and so has another member, since
each may draw from all examples. A program that sets a seed, for the operation or for TensorFlow, is left alone. Must
never import TensorFlow.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import sys
from typing import Any

from ..import_hook import after_import
from ..surface import Part, Surface

OWN_SEED = "_tftraining_seed"  # set on a dataset whose seed is ours
MODULE = "tensorflow.python.data.ops.shuffle_op"
_CONTEXT = "tensorflow.python.eager.context"
SURFACE = Surface(
    "a `shuffle` without a seed has another order after a restart",
    (
        Part(MODULE, "_ShuffleDataset.__init__", "self input_dataset buffer_size seed reshuffle_each_iteration name"),
        Part(_CONTEXT, "global_seed", ""),
        Part(_CONTEXT, "executing_eagerly", ""),
    ),
)
_MOST = 1 << 62


def install(told: str, tf_config: str) -> None:
    """Extend TensorFlow, now or when it is imported. `told`: the launcher's settings; without a UID of the job nothing
    is extended. `tf_config`: the variable TF_CONFIG, or ""."""
    if uid := json.loads(told).get("uid"):
        after_import(frozenset({MODULE}), functools.partial(_extend, f"{uid} {_task_of(tf_config)}"))


def _task_of(tf_config: str) -> str:
    """The task of this member, as text; "" without a valid TF_CONFIG, about which TensorFlow complains."""
    try:
        return json.dumps(json.loads(tf_config)["task"])
    except (ValueError, KeyError, TypeError):
        return ""


def _extend(uid: str, module: Any) -> None:
    if not SURFACE.holds():
        return
    begin, calls, context = module._ShuffleDataset.__init__, itertools.count(), sys.modules[_CONTEXT]

    @functools.wraps(begin)
    def initialize(self: Any, input_dataset: Any, buffer_size: Any, seed: Any = None, *args: Any, **more: Any) -> None:
        if seed is None and context.executing_eagerly() and context.global_seed() is None:
            seed = seed_of(uid, next(calls))
            setattr(self, OWN_SEED, True)
        begin(self, input_dataset, buffer_size, seed, *args, **more)

    module._ShuffleDataset.__init__ = initialize


def seed_of(uid: str, number: int) -> int:
    """The seed of the call with this `number`; never 0. `uid` tells job and member from others."""
    digest = hashlib.sha256(f"{uid} {number}".encode()).digest()
    return 1 + int.from_bytes(digest[:8], "big") % _MOST

"""The votes of all members do not fail in one of them: that one would go on without the collectives of the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_ports

# Each of two workers; the second one has a /dev/shm of its own, which is full.
PROGRAM = """
import ctypes, json, os
import numpy as np
import tensorflow as tf
from tftraining.launch.in_user_process.memory_backup.member_sums import sums_over, totals_over
NEW_MOUNTS, PRIVATE = 0x20000, 0x44000
own = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
libc = ctypes.CDLL(None, use_errno=True)

def checked(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

if own == 1:
    checked(libc.unshare(NEW_MOUNTS))
    checked(libc.mount(b"none", b"/", None, PRIVATE, None))
    checked(libc.mount(b"tftraining-test", b"/dev/shm", b"tmpfs", 0, b"size=4k"))
    with open("/dev/shm/filler", "wb") as filler:
        filler.write(bytes(4096))
sums = sums_over(strategy, 2)
totals = totals_over(strategy, 2)([np.full([2, 1], own + 1, "int32"), np.float64(2 ** 40 + own)])
told = [each.dtype.name for each in totals], [each.tolist() for each in totals]
print(json.dumps([sums([own, 5.0])[:2], sums([own + 1.0])[:1], *told]))
"""
PATIENCE = 120


@pytest.mark.slow_fault
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_member_whose_dev_shm_is_full_votes_like_the_others(tmp_path: Path) -> None:
    """An eager `reduce` of TensorFlow makes semaphores, which are files there."""
    script = tmp_path / "vote.py"
    script.write_text(PROGRAM)
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    workers = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        told = [worker.communicate(timeout=PATIENCE)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [json.loads(each) for each in told] == [
        [[1.0, 10.0], [3.0], ["int32", "float64"], [[[3], [3]], 2.0**41 + 1]]
    ] * 2

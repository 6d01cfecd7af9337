"""Copy the state of a custom training loop into memory every few steps; Keras' `fit` needs no such call.

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, counters=counters)
    backup = tftraining.MemoryBackup(checkpoint)
    step = backup.restore(step_restored_from_storage)  # once, after the restore from storage
    while step < last_step:
        train_step()
        step += 1
        backup.step(step)  # after every step
    backup.done()

A restart of the program resumes at the newest copy that all members of the gang hold, which is seconds old. A
checkpoint in storage stays necessary for a job whose memory is lost. Without a launcher, with backups in memory off,
and after an error, all methods do nothing and `restore` returns its argument. The program restores its position in the
input itself, from `step` or from variables of the checkpoint. docs/memory-backups.md has the limits.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from tftraining.report import resumed

VARIABLE = "TFTRAINING_MEMORY_BACKUP"
MODULE = "memory_backup.loop"


class MemoryBackup:
    """Copies of all variables of `checkpoint` (a tf.train.Checkpoint or any trackable object) by this process.

    With MultiWorkerMirroredStrategy every worker must make the same calls at the same steps, since the workers agree by
    collectives. With ParameterServerStrategy only the coordinator makes them, between `join` and the next `schedule`.
    Create it once, before the loop, when all variables exist (`optimizer.build`).
    """

    def __init__(self, checkpoint: Any) -> None:
        self._loop = _loop(checkpoint, sys._getframe(1))

    @property
    def enabled(self) -> bool:
        """Whether copies are made, after `restore`; equal for all workers. A loop inside a tf.function then returns for
        `step` a few times a second."""
        return self._loop is not None and bool(self._loop.enabled)

    def restore(self, step: int) -> int:
        """Restore the newest copy if it is newer than `step`, the completed steps that the variables hold now; return
        the completed steps that they hold afterwards."""
        if self._loop is None:
            return step
        if (restored := int(self._loop.restore(step))) > step:
            resumed(restored)
        return restored

    def step(self, step: int) -> None:
        """Note that `step` steps of the whole training are complete, and copy the variables if a copy is due."""
        if self._loop is not None:
            self._loop.step(step)

    def done(self) -> None:
        """The training is complete: free the memory of the copies."""
        if self._loop is not None:
            self._loop.done()


def _loop(checkpoint: Any, caller: Any) -> Any:
    """The launcher's part in this process; None without one, or with an older one."""
    if VARIABLE not in os.environ:
        return None
    package = "_tftraining" if "_tftraining.hooks" in sys.modules else "tftraining.launch.in_user_process"
    try:
        return importlib.import_module(f"{package}.{MODULE}").begin(checkpoint, caller, os.environ)
    except Exception as error:
        sys.stderr.write(f"tftraining: no backups in memory: {type(error).__name__}: {error}\n")
        return None

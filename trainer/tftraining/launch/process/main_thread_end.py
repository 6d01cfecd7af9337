"""A program whose main thread has ended, while its other threads keep the process alive.

Pure. After an exception such a program has failed, and its peers wait for it: it is to end when its grace period is
over. It must never end a program that still makes steps, nor one whose main thread has ended normally: that may upload.
"""

from __future__ import annotations

from tftraining.launch.progress import Snapshot

TOLD_AFTER = 30.0  # seconds: most programs whose main thread ends are about to end


class MainThreadEnd:
    """What follows from regular looks at the program of one round. `grace` is in seconds."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._since: float | None = None  # of the end, or of the last step after it
        self._step: int | None = None
        self.lingers = False  # long after the end of the main thread

    def is_over(self, snapshot: Snapshot, now: float) -> bool:
        """Whether the program has failed, and has made no step for its grace period."""
        if snapshot.main_exit is None:
            return False
        if self._since is None or snapshot.step != self._step:
            self._since, self._step = now, snapshot.step
        self.lingers = now - self._since >= TOLD_AFTER
        return snapshot.main_exit != 0 and now - self._since >= self._grace

"""Profiles a few steps of a training with TensorFlow's Profiler, for the Profile page of TensorBoard.

One process of a job profiles itself. This module imports TensorFlow only to profile.
"""

from __future__ import annotations


class Profiler:
    """Profiles the steps after `span[0]` up to `span[1]` into `logdir`; none without a span.

    The profile begins and ends where the training looks: after a step, or after a tf.function of many steps.
    """

    def __init__(self, logdir: str, span: tuple[int, int] | None) -> None:
        self._logdir, self._span, self._running = logdir, span, False

    def begin(self, step: int) -> None:
        """Begin a training after `step` completed steps; one that resumes behind the span is not profiled."""
        if self._span is not None and step >= self._span[1]:
            self._span = None
        self.reach(step)

    def reach(self, step: int) -> None:
        """Note that `step` steps of the training are complete."""
        if self._span is None:
            return
        if self._running and step >= self._span[1]:
            self.end()
        elif not self._running and step >= self._span[0]:
            import tensorflow as tf  # noqa: PLC0415

            tf.profiler.experimental.start(self._logdir)
            self._running = True

    def end(self) -> None:
        """End the profile, if one is running; there is no other."""
        if self._running:
            import tensorflow as tf  # noqa: PLC0415

            tf.profiler.experimental.stop()
        self._span, self._running = None, False

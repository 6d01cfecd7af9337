"""The learning rate over the steps of a training, by the options of options.add_schedule, for a Keras optimizer.

A schedule is a function of the optimizer's steps, so a training that resumes has the rate of its step. A plain number
instead becomes a variable, which a checkpoint restores: in a gang of another size it would still be the former rate.
"""

from __future__ import annotations

import argparse
from typing import Any

from tftraining.cluster import scaled


def learning_rate(options: argparse.Namespace, steps: int, keras: Any) -> Any:
    """The learning rate of a training of `steps` steps, for an optimizer of this Keras: a number or a schedule."""
    rate = scaled(options.learning_rate) if options.scale_learning_rate else options.learning_rate
    schedules, warmup = keras.optimizers.schedules, min(options.warmup_steps, steps)
    if options.schedule == "cosine":
        rise = {"warmup_target": rate, "warmup_steps": warmup} if warmup else {}
        return schedules.CosineDecay(0.0 if warmup else rate, max(steps - warmup, 1), **rise)
    if warmup or options.scale_learning_rate:
        return schedules.PolynomialDecay(0.0 if warmup else rate, max(warmup, 1), rate)
    return rate

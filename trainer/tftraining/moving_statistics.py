"""The moving statistics of Keras 3 in a custom training loop of several workers; `fit` needs no such call.

    import tftraining
    tftraining.average_moving_statistics(model)  # in all members, before one of them evaluates or saves

Keras 2 has TensorFlow average them when they are read. This module must not import TensorFlow before it is called.
"""

from __future__ import annotations

from typing import Any


def average_moving_statistics(model: Any) -> None:
    """Give all workers the average of the model's moving statistics, such as those of BatchNormalization, of which each
    keeps its own. A collective: all members must call it. It does nothing without several workers or with tf_keras."""
    from tftraining.launch.in_user_process.keras3.statistics import average  # noqa: PLC0415

    average(model)

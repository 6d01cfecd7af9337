"""TensorFlow in the process of the tests: without its warnings at import, and with eight logical devices.

The devices must be split before any test touches them, so it is done here for all; and TensorFlow is seeded by each.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tf_keras  # noqa: F401

    from tftraining.lib import device_setup

device_setup.split_cpu(8)

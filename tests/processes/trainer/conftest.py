"""TensorFlow in the process of the tests: without its warnings at import, and with eight logical devices.

The devices must be split before any test touches them, so it is done here for all; and TensorFlow is seeded by each.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tf_keras  # noqa: F401
    from tensorflow.python.framework import config  # the public part cannot take determinism back

    from tftraining.lib import device_setup

device_setup.split_cpu(8)


@pytest.fixture(autouse=True)
def without_determinism() -> Iterator[None]:
    """A test that asks for deterministic operations (`device_setup.set_seed`) does not ask for those of the next."""
    yield
    config.disable_op_determinism()

"""The installed TensorFlow and tf_keras are as the hooks declare them. Changed ones: tests/processes/launch."""

from __future__ import annotations

import sys

import pytest
import tensorflow.python.data.ops.multi_device_iterator_ops  # noqa: F401
import tf_keras  # noqa: F401

from testbed.site import patches
from tftraining.launch.in_user_process.surface import Part

PARTS = [(name.__name__, part) for name, surfaces in patches.declaring() for each in surfaces for part in each.parts]


@pytest.mark.parametrize(
    ("hook", "part"), PARTS, ids=lambda each: f"{each.path} {each.uses}" if isinstance(each, Part) else ""
)
def test_the_installed_version_is_known(hook: str, part: Part) -> None:
    assert part.missing(sys.modules, patches.PACKAGES) == "", hook

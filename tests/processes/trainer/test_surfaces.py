"""The installed TensorFlow and Keras are as the hooks declare them; test_guards.py has changed ones."""

from __future__ import annotations

import importlib
import sys

import pytest

from testbed.site import patches
from tftraining.launch.in_user_process.surface import Part

PARTS = [(hook.__name__, part) for hook, surfaces in patches.declaring() for each in surfaces for part in each.parts]


@pytest.mark.parametrize(
    ("hook", "part"), PARTS, ids=lambda each: f"{each.path} {each.uses}" if isinstance(each, Part) else ""
)
def test_the_installed_version_is_known(hook: str, part: Part) -> None:
    importlib.import_module(part.module.format(**patches.PACKAGES))
    assert part.missing(sys.modules, patches.PACKAGES) == "", hook

"""Reports to the launcher how many GPUs TensorFlow lists, without changes to user code.

TensorFlow without the CUDA libraries or their driver trains on the CPU and says so only in its log. The hook must never
disturb the training, nor trigger device initialization: it asks only after TensorFlow has initialized its devices.
"""

from __future__ import annotations

import functools
from typing import Any

from .import_hook import after_import
from .surface import Part, Surface
from .tracker import Tracker

# This module imports the module of Context, which leader_hook has registered: each name can be registered only once.
MODULE = "tensorflow.python.framework.config"
SURFACE = Surface(
    "the number of GPUs that TensorFlow lists is unknown",
    (
        Part(MODULE, "context.Context._initialize_logical_devices", "self"),
        Part(MODULE, "context.Context.list_physical_devices", "self device_type"),
    ),
)


def install(tracker: Tracker) -> None:
    """Extend TensorFlow, now or when it is imported."""
    after_import(frozenset({MODULE}), functools.partial(_extend, tracker))


def _extend(tracker: Tracker, module: Any) -> None:
    """Wrap the initialization."""
    if not SURFACE.holds({MODULE: module}):
        return
    cls = module.context.Context
    initialize = cls._initialize_logical_devices

    @functools.wraps(initialize)
    def initialize_logical_devices(self: Any) -> Any:
        result = initialize(self)
        tracker.record_gpus(lambda: len(self.list_physical_devices("GPU")))
        return result

    cls._initialize_logical_devices = initialize_logical_devices

"""Tells the launcher how many GPUs TensorFlow lists, once it has looked at its devices, without a line of user code.

TensorFlow without the CUDA libraries, or without a driver for them, trains on the CPU and says so only in its log. It
must never disturb the training, nor make TensorFlow look at devices: it asks when that has been done.
"""

from __future__ import annotations

import functools
from typing import Any

from .after_import import after_import
from .tracker import Tracker

# Imports the module of Context, which is leader_hook's: a name may be given once in a process.
MODULES = frozenset({"tensorflow.python.framework.config"})


def install(tracker: Tracker) -> None:
    """Extend TensorFlow, now or when it is imported."""
    after_import(MODULES, functools.partial(_extend, tracker))


def _extend(tracker: Tracker, module: Any) -> None:
    """Where another TensorFlow has no such methods nothing is told."""
    try:
        cls = module.context.Context
        initialize = cls._initialize_logical_devices
    except AttributeError:
        return

    @functools.wraps(initialize)
    def initialize_logical_devices(self: Any) -> Any:
        result = initialize(self)
        tracker.lists_gpus(lambda: len(self.list_physical_devices("GPU")))
        return result

    cls._initialize_logical_devices = initialize_logical_devices

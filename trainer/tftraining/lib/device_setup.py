"""Set up TensorFlow for a training in this process: seeds, devices, precision.

Call it before creating a strategy or a tensor: TensorFlow accepts most of these settings only before it initializes the
devices.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from tftraining.lib.options import UsageError


def prepare(
    options: argparse.Namespace, logical_devices: int | None = None, *, ordered: bool = True, keras: Any = tf_keras
) -> list[str]:
    """Apply the common options; the names of the devices to train on.

    The devices are all GPUs if there are any, otherwise the CPU, split into `logical_devices` if given. UsageError if
    this machine cannot apply an option. Without `ordered`, the training is seeded but not deterministic. `keras` is the
    Keras of the program.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if options.precision == "mixed_float16" and not gpus:
        raise UsageError("--precision mixed_float16 needs GPUs, but none is visible: choose mixed_bfloat16 or float32")
    set_seed(options.seed, ordered=ordered and not options.jit, keras=keras)
    for gpu in gpus if options.memory_growth else ():
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.mixed_precision.set_global_policy(options.precision)
    if logical_devices is not None:
        split_cpu(logical_devices)
        return [f"CPU:{index}" for index in range(logical_devices)]
    return [f"GPU:{index}" for index in range(len(gpus))] or ["CPU:0"]


def chosen(devices: Sequence[str], places: Sequence[int] | None) -> list[str]:
    """The devices at these places, or all (None); UsageError for a place without a device."""
    for place in places or ():
        if place >= len(devices):
            raise UsageError(f"--devices: there is no device {place}, only 0 to {len(devices) - 1}")
    return list(devices) if places is None else [devices[place] for place in places]


def take_gpus(each: int | None, rank: int) -> int:
    """Limit this process to `each` of the machine's GPUs by its rank, or leave all (None); the number of GPUs."""
    gpus = tf.config.list_physical_devices("GPU")
    if each is None:
        return len(gpus)
    tf.config.set_visible_devices(share_of_gpus(gpus, each, rank), "GPU")
    return each


def share_of_gpus(gpus: Sequence[Any], each: int, rank: int) -> Sequence[Any]:
    """The GPUs for the process of this rank, with all processes on one machine; UsageError if there are too few."""
    share = gpus[each * rank : each * (rank + 1)]
    if len(share) < each:
        needed = each * (rank + 1)
        raise UsageError(f"--gpus-each {each} needs {needed} GPUs for process {rank} of this job, and has {len(gpus)}")
    return share


def set_seed(seed: int, *, ordered: bool = True, keras: Any = tf_keras) -> None:
    """Make runs on one machine reproducible: seed all generators; `ordered` also asks for deterministic operations."""
    keras.utils.set_random_seed(seed)
    # Code that XLA compiles for the CPU is deterministic anyway, and with determinism XLA has no gradient for MaxPool.
    if ordered:
        tf.config.experimental.enable_op_determinism()


def split_cpu(parts: int) -> None:
    """Split this machine's CPU into `parts` logical devices, which share its cores."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * parts)

"""Set up TensorFlow for a training in this process: seeds, devices, precision. Before any device is touched.

It must be called before a strategy or a tensor is made: TensorFlow takes most of this only while its devices are new.
"""

from __future__ import annotations

import argparse

import tensorflow as tf
import tf_keras as keras

from tftraining.options import UsageError


def prepare(options: argparse.Namespace, logical_devices: int | None = None, *, ordered: bool = True) -> list[str]:
    """Set what the common options ask for; the names of the devices to train on.

    They are all GPUs if there are any, otherwise the CPU, in `logical_devices` parts if that is given. UsageError if
    this machine cannot do it. A training that is not `ordered` in itself is only seeded.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if options.precision == "mixed_float16" and not gpus:
        raise UsageError("--precision mixed_float16 needs GPUs, and none is visible: take mixed_bfloat16 or float32")
    set_seed(options.seed, ordered=ordered and not options.jit)
    for gpu in gpus if options.memory_growth else ():
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.mixed_precision.set_global_policy(options.precision)
    if logical_devices is not None:
        split_cpu(logical_devices)
        return [f"CPU:{index}" for index in range(logical_devices)]
    return [f"GPU:{index}" for index in range(len(gpus))] or ["CPU:0"]


def set_seed(seed: int, *, ordered: bool = True) -> None:
    """The same numbers in every run on one machine: seeds everything, and asks for operations of a fixed order."""
    keras.utils.set_random_seed(seed)
    # What XLA compiles for the CPU has a fixed order anyway, and asked for one, XLA has no gradient for MaxPool.
    if ordered:
        tf.config.experimental.enable_op_determinism()


def split_cpu(parts: int) -> None:
    """Make `parts` logical devices of this machine's CPU, which share its cores."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * parts)

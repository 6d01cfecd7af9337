"""Tensors and variables on a mesh of devices (DTensor): sharded by their layout, trained, and gathered again.

All values leave the mesh whole, as numpy arrays, so that a state trained under one layout can be restored under any
other layout, or without a mesh. One process holds the whole mesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.experimental import dtensor

BATCH, MODEL = "batch", "model"  # the mesh dimensions: copies of the model, parts of each copy


def make_mesh(devices: Sequence[str], model_parts: int) -> dtensor.Mesh:
    """A mesh with `model_parts` devices per copy of the model; the number of devices must be a multiple of that."""
    return dtensor.create_mesh([(BATCH, len(devices) // model_parts), (MODEL, model_parts)], devices=list(devices))


def whole(tensor: Any) -> NDArray[Any]:
    """The value of a tensor or variable on a mesh, gathered from its shards."""
    value = tensor.read_value() if isinstance(tensor, dtensor.DVariable) else tensor
    layout = dtensor.fetch_layout(value)
    replicated = dtensor.relayout(value, dtensor.Layout.replicated(layout.mesh, rank=layout.rank))
    array: NDArray[Any] = dtensor.unpack(replicated)[0].numpy()
    return array


def sharded(array: NDArray[Any] | tf.Tensor, layout: dtensor.Layout) -> tf.Tensor:
    """A tensor on the mesh of `layout`; each device gets only its own shard."""
    parts = [_shard(array, layout, location) for location in layout.mesh.local_device_locations()]
    return dtensor.pack(parts, layout)


def _shard(array: NDArray[Any] | tf.Tensor, layout: dtensor.Layout, location: dict[str, int]) -> tf.Tensor:
    cuts = []
    for size, dimension in zip(array.shape, layout.sharding_specs, strict=True):
        parts = 1 if dimension == dtensor.UNSHARDED else layout.mesh.dim_size(dimension)
        index = 0 if dimension == dtensor.UNSHARDED else location[dimension]
        length, rest = divmod(int(size), parts)
        if rest:
            raise ValueError(f"a dimension of {size} cannot be split into {parts} equal parts")
        cuts.append(slice(index * length, (index + 1) * length))
    return tf.convert_to_tensor(array[tuple(cuts)])


def variable(array: NDArray[Any], layout: dtensor.Layout) -> dtensor.DVariable:
    """A variable on the mesh of `layout`."""
    return dtensor.DVariable(sharded(array, layout))


class Dense(tf.Module):  # type: ignore[misc]  # tensorflow has no types
    """A dense layer; its `kernel` (inputs, outputs) is sharded along the given `dimensions` of the mesh.

    The kernel is drawn before it is sharded (see xavier), so the layout does not change the training.
    """

    def __init__(self, mesh: dtensor.Mesh, kernel: NDArray[np.float32], dimensions: Sequence[str]) -> None:
        super().__init__()
        self.kernel = variable(kernel, dtensor.Layout(list(dimensions), mesh))
        self.bias = variable(np.zeros(kernel.shape[1], np.float32), dtensor.Layout([dimensions[1]], mesh))

    def __call__(self, inputs: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Map (n, inputs) to (n, outputs), multiplied in `dtype`."""
        product = tf.matmul(tf.cast(inputs, dtype), tf.cast(self.kernel, dtype))
        return tf.cast(product, tf.float32) + self.bias


def xavier(generator: np.random.Generator, inputs: int, outputs: int) -> NDArray[np.float32]:
    """A kernel of uniform random numbers within the limit of Glorot and Bengio (2010)."""
    limit = float(np.sqrt(6 / (inputs + outputs)))
    return generator.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)


class Adam(tf.Module):  # type: ignore[misc]
    """Adam by Kingma and Ba (2015), as in Keras; the moments have the layouts of their variables."""

    def __init__(self, variables: Sequence[dtensor.DVariable], rate: float) -> None:
        super().__init__()
        self.rate, self.decay, self.decay_of_squares, self.epsilon = rate, 0.9, 0.999, 1e-7
        self.variables_trained = list(variables)
        self.means = [_zeros_like(each) for each in variables]
        self.squares = [_zeros_like(each) for each in variables]
        mesh = variables[0].layout.mesh
        # A variable, because tracing would freeze a Python number at its value.
        self.step = variable(np.zeros((), np.float32), dtensor.Layout.replicated(mesh, rank=0))

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Take one step.

        Assigned values are never read back: in a traced step a DVariable still returns its old value (2.21).
        """
        step = self.step + 1.0
        rate = self.rate * tf.sqrt(1 - tf.pow(self.decay_of_squares, step)) / (1 - tf.pow(self.decay, step))
        slots = zip(self.variables_trained, gradients, self.means, self.squares, strict=True)
        for weights, gradient, mean_variable, square_variable in slots:
            mean = self.decay * mean_variable + (1 - self.decay) * gradient
            square = self.decay_of_squares * square_variable + (1 - self.decay_of_squares) * tf.square(gradient)
            weights.assign_sub(rate * mean / (tf.sqrt(square) + self.epsilon))
            mean_variable.assign(mean)
            square_variable.assign(square)
        self.step.assign(step)


def _zeros_like(weights: dtensor.DVariable) -> dtensor.DVariable:
    return variable(np.zeros(weights.shape, np.float32), weights.layout)

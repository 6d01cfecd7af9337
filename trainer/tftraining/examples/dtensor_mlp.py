"""Train a multi-layer perceptron with DTensor, on a mesh of 8 parts of the CPU or of all GPUs.

    python -m tftraining.examples.dtensor_mlp --data mnist --model-parts 2

Every device gets its part of each batch, and with --model-parts also only a part of the weights: the first layer is cut
by its outputs and the second by its inputs, so that one sum over the parts gives the result. Layers and optimizer are
plain TensorFlow (tftraining.lib.mesh). What is trained does not depend on the mesh, and neither does the state in
`<directory>/state.npz`: a program that is started again goes on from the last epoch, on the same mesh or another. At
the end the whole weights go to `<directory>/weights.npz` and, as a SavedModel to serve, to `<directory>/model`, and are
measured once more without a mesh.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tftraining.lib.options import (
    Defaults,
    UsageError,
    check_early,
    make_directory,
    make_parser,
    positive,
    run_program,
    write_atomically,
)

DEFAULTS = Defaults(3, 128, 0.001, batch="for all devices together", optimizer="Adam")
ACTIVATIONS = ("relu", "sigmoid")  # names of functions of tf.nn
DEVICES = 8  # logical CPU devices on a machine without GPUs


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options; SystemExit(2) if they are invalid."""
    parser = make_parser("dtensor_mlp", __doc__, DEFAULTS)
    group = parser.add_argument_group("this program")
    group.add_argument(
        "--logical-devices",
        type=positive,
        metavar="N",
        help="split the CPU into N logical devices (8 if there are no GPUs)",
    )
    group.add_argument(
        "--model-parts",
        type=positive,
        default=1,
        metavar="N",
        help="split the weights into N parts (1: replicate them)",
    )
    group.add_argument(
        "--hidden",
        type=positive,
        nargs=2,
        default=(700, 500),
        metavar="UNITS",
        help="units of the two hidden layers (700 500)",
    )
    group.add_argument(
        "--activation", choices=ACTIVATIONS, default="relu", help="activation of the hidden layers (relu)"
    )
    group.add_argument(
        "--examples", type=positive, metavar="N", help="train with the first N images only; the test has all"
    )
    return parser.parse_args(argv)


def check(options: argparse.Namespace, devices: int | None) -> None:
    """UsageError for options unsupported by DTensor, and for sizes not divisible among `devices` (None: unknown)."""
    if options.precision == "mixed_float16":
        raise UsageError(
            "--precision mixed_float16 needs a scaled loss, which this program does not have: choose mixed_bfloat16"
        )
    if devices is not None and devices % options.model_parts:
        raise UsageError(f"{devices} devices cannot be divided by --model-parts {options.model_parts}")
    if devices is not None and options.batch_size % (copies := devices // options.model_parts):
        raise UsageError(f"--batch-size {options.batch_size} is not a multiple of {copies}, the copies of the model")
    if any(units % options.model_parts for units in options.hidden):
        raise UsageError(f"--hidden {options.hidden[0]} {options.hidden[1]}: not multiples of --model-parts")


if __name__ == "__main__":
    # Answer --help and invalid options before the import of TensorFlow, which takes seconds.
    check_early("dtensor_mlp", parse(None), lambda options: check(options, options.logical_devices))

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.experimental import dtensor

from tftraining.lib import data, device_setup
from tftraining.lib.data import Examples
from tftraining.lib.input_pipeline import Order, as_tensors, epoch_batches
from tftraining.lib.mesh import BATCH, MODEL, Adam, Dense, make_mesh, sharded, whole, xavier
from tftraining.lib.train_step import metrics_of_test, metrics_of_training, per_example_losses
from tftraining.lib.training_log import TrainingLog, say

CUTS = ((dtensor.UNSHARDED, MODEL), (MODEL, dtensor.UNSHARDED), (dtensor.UNSHARDED, dtensor.UNSHARDED))

State = dict[str, NDArray[Any]]


class Perceptron(tf.Module):  # type: ignore[misc]  # tensorflow has no types
    """Three dense layers on a mesh, from images to logits."""

    def __init__(
        self, mesh: dtensor.Mesh, sizes: Sequence[int], seed: int, dtype: tf.DType, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.dtype, self.activation = dtype, getattr(tf.nn, activation)
        generator = np.random.default_rng(seed)
        shapes = zip(sizes[:-1], sizes[1:], CUTS, strict=True)
        self.layers = [Dense(mesh, xavier(generator, *shape), cut) for *shape, cut in shapes]

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        """Map images (n, pixels) to logits (n, classes)."""
        values = images
        for layer in self.layers[:-1]:
            values = self.activation(layer(values, self.dtype))
        return self.layers[-1](values, self.dtype)


class MeshTraining:
    """A perceptron and its optimizer on a mesh, with the training and test steps."""

    def __init__(self, mesh: dtensor.Mesh, sizes: Sequence[int], options: argparse.Namespace) -> None:
        self.mesh = mesh
        dtype = tf.bfloat16 if options.precision == "mixed_bfloat16" else tf.float32
        self.model = Perceptron(mesh, sizes, options.seed, dtype, options.activation)
        self.optimizer = Adam(self.model.trainable_variables, options.learning_rate)
        self.train = tf.function(self._train, jit_compile=options.jit or None)
        self.test = tf.function(self._test, jit_compile=options.jit or None)

    def _train(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = self.model(images)
            loss = tf.reduce_sum(per_example_losses(logits, labels) * weights) / tf.reduce_sum(weights)
        self.optimizer.apply(tape.gradient(loss, self.optimizer.variables_trained))
        return _told(loss, logits, labels, weights)

    def _test(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        logits = self.model(images)
        return _told(tf.reduce_sum(per_example_losses(logits, labels) * weights), logits, labels, weights)

    def on_mesh(self, images: NDArray[Any], labels: NDArray[Any], size: int) -> tuple[tf.Tensor, ...]:
        """A batch sharded on the mesh, padded to `size` examples; the padding has weight 0."""
        missing = size - len(labels)
        weights = np.pad(np.ones(len(labels), np.float32), (0, missing))
        pixels = np.pad(images.reshape(len(labels), -1), ((0, missing), (0, 0)))
        return (
            sharded(pixels, dtensor.Layout([BATCH, dtensor.UNSHARDED], self.mesh)),
            sharded(np.pad(labels, (0, missing)), dtensor.Layout([BATCH], self.mesh)),
            sharded(weights, dtensor.Layout([BATCH], self.mesh)),
        )

    def state(self) -> State:
        """The whole state that a later process needs to resume."""
        return {name: whole(each) for name, each in self._variables()}

    def restore(self, state: State) -> None:
        """Restore a state; ValueError if the state is from another network."""
        for name, each in self._variables():
            if name not in state or state[name].shape != tuple(each.shape):
                raise ValueError(f"no {name} of shape {tuple(each.shape)}")
            each.assign(sharded(state[name], each.layout))

    def _variables(self) -> Iterator[tuple[str, dtensor.DVariable]]:
        for number, layer in enumerate(self.model.layers):
            yield from ((f"dense_{number}/kernel", layer.kernel), (f"dense_{number}/bias", layer.bias))
        for name, slots in (("mean", self.optimizer.means), ("square", self.optimizer.squares)):
            yield from ((f"adam/{name}_{number}", slot) for number, slot in enumerate(slots))
        yield "adam/step", self.optimizer.step


def _told(loss: tf.Tensor, logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    right = tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32)
    return tf.stack([loss, tf.reduce_sum(right * weights), tf.reduce_sum(weights)])


def train(options: argparse.Namespace, training: MeshTraining, examples: data.Data, training_log: TrainingLog) -> State:
    """Train to the last epoch, from the last state if there is one; the state at the end."""
    steps = options.steps_per_epoch or max(len(examples.train) // options.batch_size, 1)
    order = Order(options.batch_size, options.seed, steps)
    state = load_state(Path(options.directory) / "state.npz")
    done = int(state.get("epoch", np.zeros((), np.int64)))
    if done:
        training.restore(state)
    training_log.start(done, int(state.get("adam/step", 0)), steps)
    tensors = as_tensors(examples.train)
    for epoch in range(done, options.epochs):
        training_log.begin()
        batches = training_log.follow(epoch_batches(tensors, order, epoch).as_numpy_iterator())
        tallies = [training.train(*training.on_mesh(images, labels, options.batch_size)) for images, labels in batches]
        tested = test(training, examples.test, options.batch_size)
        state = training.state()
        if options.logdir:
            training_log.weights = [tf.Variable(value, name=name) for name, value in layers_of(state).items()]
        training_log.end(epoch + 1, metrics_of_training(_sum(tallies), steps) | tested)
        save_state(Path(options.directory) / "state.npz", state | {"epoch": np.asarray(epoch + 1)})
    return training.state()


def test(training: MeshTraining, examples: Examples, batch_size: int) -> dict[str, float]:
    """Loss and accuracy over all examples, on the mesh."""
    cuts = (slice(start, start + batch_size) for start in range(0, len(examples), batch_size))
    batches = (training.on_mesh(examples.images[cut], examples.labels[cut], batch_size) for cut in cuts)
    return metrics_of_test(_sum([training.test(*batch) for batch in batches]))


def _sum(tallies: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.convert_to_tensor(np.sum([whole(each) for each in tallies], axis=0))


def layers_of(state: State) -> State:
    """The weights of the layers, without the state of the optimizer."""
    return {name: value for name, value in state.items() if name.startswith("dense_")}


def save_state(path: Path, state: State) -> None:
    """Write a state, for load_state."""
    content = io.BytesIO()
    np.savez(content, **state)  # type: ignore[arg-type]  # no name in a state is a parameter of savez
    write_atomically(path, content.getvalue())


def load_state(path: Path) -> State:
    """The state from the file of save_state; {} if there is no such file."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as state:
        return dict(state)


class Served(tf.Module):  # type: ignore[misc]
    """The perceptron with whole weights, without a mesh, as a SavedModel serves it."""

    def __init__(self, weights: State, activation: str) -> None:
        super().__init__()
        self.activation = getattr(tf.nn, activation)
        self.layers = [
            [tf.Variable(weights[f"dense_{number}/{part}"]) for part in ("kernel", "bias")] for number in range(3)
        ]

    @tf.function  # type: ignore[untyped-decorator]
    def logits(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Map images (n, height, width, 1) to logits (n, classes)."""
        values = tf.reshape(images, (tf.shape(images)[0], -1))
        for kernel, bias in self.layers[:-1]:
            values = self.activation(tf.matmul(values, kernel) + bias)
        kernel, bias = self.layers[-1]
        return {"logits": tf.matmul(values, kernel) + bias}


def save_model(served: Served, shape: Sequence[int], path: Path) -> None:
    """Write a SavedModel with the signature `serving_default`, for images (n, *shape)."""
    images = tf.TensorSpec((None, *shape), tf.float32, "images")
    tf.saved_model.save(served, str(path), signatures=served.logits.get_concrete_function(images))


def measure(served: Served, examples: Examples) -> dict[str, float]:
    """The loss and accuracy of exported weights, without a mesh."""
    logits = served.logits(tf.constant(examples.images))["logits"]
    accuracy = float(np.mean(np.argmax(logits, axis=1) == examples.labels))
    return {"accuracy": accuracy, "loss": float(tf.reduce_mean(per_example_losses(logits, examples.labels)))}


def load_data(options: argparse.Namespace) -> data.Data:
    """The data set; --examples cuts the training data, and never the test data, of which a part may be easier."""
    loaded, count = data.load(options.data, options.data_dir), options.examples
    return data.Data(Examples(loaded.train.images[:count], loaded.train.labels[:count]), loaded.test)


def run(options: argparse.Namespace) -> None:
    """Run the whole program."""
    examples = load_data(options)
    parts = options.logical_devices or (None if tf.config.list_physical_devices("GPU") else DEVICES)
    devices = device_setup.prepare(options, parts)
    check(options, len(devices))
    make_directory("dtensor_mlp", options, "data", "hidden", "activation")
    mesh = make_mesh(devices, options.model_parts)
    say(f"{len(examples.train)} images of {options.data} on {len(devices)} devices, into {options.directory}")
    training_log = TrainingLog(options.epochs, options)
    sizes = (int(np.prod(examples.train.images.shape[1:])), *options.hidden, data.CLASSES)
    state = train(options, MeshTraining(mesh, sizes, options), examples, training_log)
    save_state(Path(options.directory) / "weights.npz", layers_of(state))
    served = Served(load_state(Path(options.directory) / "weights.npz"), options.activation)
    save_model(served, examples.test.images.shape[1:], Path(options.directory) / "model")
    measured = measure(served, examples.test)
    training_log.finish({**measured, "devices": len(devices), "model_parts": options.model_parts})


def main(argv: Sequence[str] | None = None) -> int:
    """0 if the model is trained and measured; 2, with one line, for a request that cannot be fulfilled."""
    return run_program("dtensor_mlp", parse(argv), run)


if __name__ == "__main__":
    sys.exit(main())

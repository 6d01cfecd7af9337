"""Networks for pictures: one of keras.applications with new layers on top, and the weights that it begins with.

Weights that do not fit must never be taken in part, and the message names the layer. Keras is tf_keras here.
"""

from __future__ import annotations

import argparse
from typing import Any

import tensorflow as tf
import tf_keras as keras

from tftraining.lib.checkpoints import restored
from tftraining.lib.options import UsageError, is_checkpoint
from tftraining.lib.train_step import Losses, per_example_losses

HIDDEN = 512  # units of the head `dense`


def make_network(classes: int, options: argparse.Namespace) -> keras.Model:
    """The network of --network and --head, from pictures (size, size, 3) with values from -1 to 1.

    The head `linear` ends in logits, `dense` in probabilities. UsageError if the --weights do not fit.
    """
    base = _base(options)
    base.trainable = options.weights == "none" or options.fine_tune
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            _prepare(layer, options)
    head = _dense_head(base, classes) if options.head == "dense" else _linear_head(classes)
    model = keras.Sequential([base, *head])
    return restored(model, options.weights) if is_checkpoint(options.weights) else model


def _base(options: argparse.Namespace) -> keras.Model:
    arguments = {
        "input_shape": (options.size, options.size, 3),
        "include_top": False,
        "weights": None if options.weights == "none" or is_checkpoint(options.weights) else options.weights,
        "pooling": "avg" if options.head == "linear" else None,
    }
    try:
        if options.network == "resnet50":
            return keras.applications.ResNet50(**arguments)
        return keras.applications.MobileNetV2(alpha=options.width, **arguments)
    except Exception as error:  # h5py, the download and Keras each raise their own errors
        reason = " ".join(str(error).split())[:300]
        raise UsageError(f"cannot load --weights {options.weights}: {reason}") from error


def _prepare(layer: Any, options: argparse.Namespace) -> None:
    """Adapt a BatchNormalization to the training."""
    if options.weights == "none":
        layer.momentum = 0.9  # with the default of 0.99 or 0.999, inference needs thousands of steps before it works
    else:
        layer.trainable = False  # runs in inference mode: the statistics of few pictures would spoil the weights


def _linear_head(classes: int) -> list[Any]:
    layers = keras.layers
    return [layers.Dropout(0.2), layers.Dense(classes), layers.Activation("linear", dtype="float32")]


def _dense_head(base: keras.Model, classes: int) -> list[Any]:
    layers = keras.layers
    return [
        layers.AveragePooling2D(base.output_shape[1:3]),
        layers.Flatten(),
        layers.Dense(HIDDEN, activation="relu"),
        layers.Dropout(0.5),
        layers.Dense(classes),
        layers.Activation("softmax", dtype="float32"),
    ]


def losses_of(head: str, classes: int) -> Losses:
    """The loss of each example for the outputs of this head: of logits, or Keras' CategoricalCrossentropy."""
    if head == "linear":
        return per_example_losses
    # No reduction: Keras would divide by the examples of a replica, not by those of the whole batch.
    loss = keras.losses.CategoricalCrossentropy(reduction=keras.losses.Reduction.NONE)
    return lambda probabilities, labels: loss(tf.one_hot(labels, classes), probabilities)

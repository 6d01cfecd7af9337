"""The training data as TFRecord files, which tf.data can share among the workers file by file (AutoShardPolicy.FILE).

Each worker then reads only its files. This module must never leave half of the files behind.
"""

from __future__ import annotations

import os
from pathlib import Path

import tensorflow as tf

from tftraining.lib.data import Examples
from tftraining.lib.shared_folder import fill_once

FEATURES = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}


def write_records(examples: Examples, folder: Path, count: int) -> None:
    """Write the examples into `count` files of `folder`, unless it exists. Every worker may call this at once."""

    def fill(own: Path) -> None:
        for number in range(count):
            with tf.io.TFRecordWriter(str(own / f"train-{number:05}-of-{count:05}.tfrecord")) as writer:
                for place in range(number, len(examples), count):
                    writer.write(_record(examples, place))

    fill_once(folder, fill)


def _record(examples: Examples, place: int) -> bytes:
    image = tf.io.serialize_tensor(examples.images[place]).numpy()
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(examples.labels[place])])),
    }
    record: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return record


def read_records(folder: Path, shape: tuple[int, ...]) -> tf.data.Dataset:
    """All examples of the files once: float32 images of `shape` and int64 labels."""
    files = sorted(os.fspath(path) for path in folder.glob("*.tfrecord"))

    def parsed(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.io.parse_single_example(record, FEATURES)
        return tf.ensure_shape(tf.io.parse_tensor(values["image"], tf.float32), shape), values["label"]

    return tf.data.TFRecordDataset(files).map(parsed, num_parallel_calls=tf.data.AUTOTUNE)

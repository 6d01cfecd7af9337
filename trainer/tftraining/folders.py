"""Pictures in folders named after their classes: written from a data set, and read as tf.data.

    FOLDER/cats/1.png, FOLDER/dogs/7.jpg, …

Classes are the names of the folders in their order. It must never decode a file twice in the same way for the training
and the test, nor put one picture into both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from tftraining.data import DataError, Examples
from tftraining.pipeline import Order

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


@dataclass(frozen=True)
class Pictures:
    """Files and their classes, one beside the other; `names` are the classes."""

    files: tuple[str, ...]
    labels: tuple[int, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def chosen(self, places: np.ndarray) -> Pictures:
        """Only the pictures at these places, with all classes."""
        return Pictures(tuple(self.files[i] for i in places), tuple(self.labels[i] for i in places), self.names)


def write_folders(examples: Examples, folder: Path, limit: int | None = None) -> int:
    """Write the first `limit` examples as PNG files into folders 0 to 9; how many were written."""
    count = min(len(examples), limit or len(examples))
    for place in range(count):
        name = folder / str(examples.labels[place]) / f"{place:05}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.rint(examples.images[place] * 255).astype(np.uint8)
        name.write_bytes(tf.io.encode_png(pixels).numpy())
    return count


def find_pictures(folder: Path) -> Pictures:
    """All pictures in folders named after classes. DataError if there are no two classes."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: it should hold one folder a class (--make-folders writes some)")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    found = [(str(path), label) for label, name in enumerate(names) for path in _files(folder / name)]
    parts = [name for name in names if name in ("train", "test", "validation")]
    if not found and parts:
        raise DataError(f"{folder} holds {' and '.join(parts)}, not classes: name one of them, {folder / parts[-1]}")
    if len({label for _, label in found}) < 2:
        raise DataError(f"{folder} holds pictures of fewer than two classes: it should hold one folder a class")
    return Pictures(tuple(file for file, _ in found), tuple(label for _, label in found), tuple(names))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def split(pictures: Pictures, part: float, seed: int) -> tuple[Pictures, Pictures]:
    """Training and validation, of which the latter is `part` of all, the same for the same seed."""
    order = np.random.default_rng(seed).permutation(len(pictures))
    held_back = max(1, round(part * len(pictures)))
    return pictures.chosen(order[held_back:]), pictures.chosen(order[:held_back])


def picture_batches(pictures: Pictures, order: Order, size: int, epoch: int | None) -> tf.data.Dataset:
    """The pictures as float32 (batch, size, size, 3), values from -1 to 1, and int64 labels.

    In an order of their own in each epoch, or, where it is None, in the order that they have.
    """
    files, labels = list(pictures.files), list(pictures.labels)
    dataset = tf.data.Dataset.from_tensor_slices((files, tf.constant(labels, tf.int64)))
    if epoch is not None:
        dataset = dataset.shuffle(len(files), seed=hash((order.seed, epoch)), reshuffle_each_iteration=False)
        dataset = dataset.repeat() if order.steps_per_epoch else dataset
    decoded = dataset.map(lambda file, label: (read_picture(file, size), label), num_parallel_calls=tf.data.AUTOTUNE)
    batches = decoded.batch(order.batch_size)
    steps = order.steps_per_epoch if epoch is not None else None
    return (batches.take(steps) if steps else batches).prefetch(tf.data.AUTOTUNE)


def read_picture(file: tf.Tensor, size: int) -> tf.Tensor:
    """One file as float32 (size, size, 3) with values from -1 to 1, as MobileNetV2 takes it."""
    picture = tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)
    return tf.image.resize(picture, (size, size)) / 127.5 - 1.0

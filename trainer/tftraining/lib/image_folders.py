"""Images in one folder per class: written from a data set, and read as tf.data.

    FOLDER/cats/1.png, FOLDER/dogs/7.jpg, … or FOLDER/train/cats/1.png, FOLDER/test/cats/2.png, …

The sorted names of the folders are the classes. This module must never put one image into both training and test.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from tftraining.lib import data
from tftraining.lib.data import DataError, Examples
from tftraining.lib.input_pipeline import Order
from tftraining.lib.shared_folder import fill_once
from tftraining.lib.training_log import say

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
HELD_BACK = ("test", "validation")  # names of the folder beside `train`
NAMED = 3  # unreadable pictures in a message


@dataclass(frozen=True)
class Pictures:
    """Files and their labels, in the same order; `names` are the classes."""

    files: tuple[str, ...]
    labels: tuple[int, ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.files)

    def chosen(self, places: np.ndarray) -> Pictures:
        """The images at these positions, with all classes."""
        return Pictures(tuple(self.files[i] for i in places), tuple(self.labels[i] for i in places), self.names)

    def without(self, files: Collection[str]) -> Pictures:
        """The images but these, with all classes."""
        return self.chosen(np.asarray([i for i, file in enumerate(self.files) if file not in files], np.int64))


def write_folders(examples: Examples, folder: Path, limit: int | None = None) -> int:
    """Write the first `limit` examples as PNG files into folders 0 to 9; the number of files."""
    count = min(len(examples), limit or len(examples))
    for place in range(count):
        name = folder / str(examples.labels[place]) / f"{place:05}.png"
        name.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.rint(examples.images[place] * 255).astype(np.uint8)
        name.write_bytes(tf.io.encode_png(pixels).numpy())
    return count


def find_pictures(folder: Path) -> Pictures:
    """All images in the folders of the classes. DataError if there are fewer than two classes."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: it must have one folder per class (--make-folders creates them)")
    # A hidden folder, such as one of Jupyter's checkpoints, is no class.
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [(str(path), label) for label, name in enumerate(names) for path in _files(folder / name)]
    parts = [name for name in names if name in ("train", "test", "validation")]
    if not found and parts:
        raise DataError(f"{folder} holds {' and '.join(parts)}, not classes: choose one of them, {folder / parts[-1]}")
    pictures = Pictures(tuple(file for file, _ in found), tuple(label for _, label in found), tuple(names))
    check_classes(pictures, folder)
    return pictures


def check_classes(pictures: Pictures, folder: Path) -> None:
    """DataError if the images of a folder are of fewer than two classes."""
    if len(set(pictures.labels)) < 2:
        raise DataError(f"{folder} has pictures of fewer than two classes: it must have one folder per class")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def find_parts(folder: Path, part: float, seed: int) -> tuple[Pictures, Pictures]:
    """The images for training and for the test: those of the folders `train` and `test` (or `validation`) of `folder`.

    Otherwise the fraction `part` of all images is for the test. DataError if the two folders have different classes.
    """
    trees = [tree for name in HELD_BACK if _has_folders(tree := folder / name)]
    if not trees or not _has_folders(folder / "train"):
        return split(find_pictures(folder), part, seed)
    train, test = find_pictures(folder / "train"), find_pictures(trees[0])
    if different := sorted(set(train.names) ^ set(test.names)):
        raise DataError(f"{folder / 'train'} and {trees[0]} must have the same classes: only one has {different[0]}")
    return train, test


def _has_folders(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_dir() for path in folder.iterdir())


def split(pictures: Pictures, part: float, seed: int) -> tuple[Pictures, Pictures]:
    """The images for training and for validation (the fraction `part`); the same seed gives the same split."""
    order = np.random.default_rng(seed).permutation(len(pictures))
    held_back = max(1, round(part * len(pictures)))
    return pictures.chosen(order[held_back:]), pictures.chosen(order[:held_back])


def pictures_of(options: argparse.Namespace) -> tuple[Pictures, Pictures]:
    """The images for training and for the test; --make-folders writes them first. DataError if they cannot be used."""
    folder = Path(options.folders or Path(options.directory) / "pictures")
    if options.make_folders and not folder.exists():
        examples = data.load(options.data, options.data_dir).train
        fill_once(folder, lambda place: write_folders(examples, place, options.pictures))
        say(f"wrote pictures of {options.data} into {folder}")
    parts = find_parts(folder, options.validation, options.seed)
    if not options.skip_unreadable:
        return parts
    bad = {file for part in parts for file in unreadable(part)}
    for file in sorted(bad):
        say(f"skipped {file}: it cannot be decoded")
    train, test = (part.without(bad) for part in parts)
    check_classes(train, folder)
    return train, test


def picture_batches(pictures: Pictures, order: Order, size: int, epoch: int | None) -> tf.data.Dataset:
    """The images as float32 (batch, size, size, 3), values from -1 to 1, and int64 labels.

    Each epoch has an order of its own; with `epoch` None, the images keep their order.
    """
    dataset = _dataset(pictures) if epoch is None else _shuffled(pictures, order, epoch)
    batches = _decoded(dataset, size).batch(order.batch_size)
    steps = order.steps_per_epoch if epoch is not None else None
    return (batches.take(steps) if steps else batches).prefetch(tf.data.AUTOTUNE)


def shared_batches(
    pictures: Pictures, order: Order, size: int, epoch: int
) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    """Endless batches of one epoch for each worker, of which each reads and decodes its share of the pictures only.

    `order` must have a fixed number of steps. If the batches had an end or an unknown size, the workers would ask each
    other at each step whether all of them have a batch.
    """

    def batches_of(context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = _shuffled(pictures, order, epoch).shard(context.num_input_pipelines, context.input_pipeline_id)
        batches = _decoded(dataset, size).batch(order.batch_size // context.num_replicas_in_sync, drop_remainder=True)
        return batches.prefetch(tf.data.AUTOTUNE)

    return batches_of


def _dataset(pictures: Pictures) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((list(pictures.files), tf.constant(list(pictures.labels), tf.int64)))


def _shuffled(pictures: Pictures, order: Order, epoch: int) -> tf.data.Dataset:
    """The files in the order of this epoch; without an end if an epoch has a fixed number of steps."""
    seed = hash((order.seed, epoch))
    dataset = _dataset(pictures).shuffle(len(pictures), seed=seed, reshuffle_each_iteration=False)
    return dataset.repeat() if order.steps_per_epoch else dataset


def _decoded(dataset: tf.data.Dataset, size: int) -> tf.data.Dataset:
    return dataset.map(_reader(size), num_parallel_calls=tf.data.AUTOTUNE)


@functools.cache
def _reader(size: int) -> tf.types.experimental.PolymorphicFunction:
    """Replaces a file by its picture, beside the label. Traced once, not for the data set of each epoch."""
    signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((), tf.int64))
    return tf.function(lambda file, label: (read_picture(file, size), label), input_signature=signature)


def read_picture(file: tf.Tensor, size: int) -> tf.Tensor:
    """One file as float32 (size, size, 3) with values from -1 to 1, as MobileNetV2 takes it."""
    picture = tf.io.decode_image(tf.io.read_file(file), channels=3, expand_animations=False)
    return tf.image.resize(picture, (size, size)) / 127.5 - 1.0


def unreadable(pictures: Pictures) -> list[str]:
    """The files that cannot be decoded; reads all of them."""

    def fails(file: str) -> bool:
        try:
            read_picture(tf.constant(file), 1)
        except tf.errors.InvalidArgumentError:  # not those of the storage: each worker decides this alone
            return True
        return False

    with ThreadPoolExecutor() as threads:
        failed = list(threads.map(fails, pictures.files))
    return [file for file, bad in zip(pictures.files, failed, strict=True) if bad]


@contextmanager
def naming_unreadable(*parts: Pictures) -> Iterator[None]:
    """DataError with the names of the unreadable images, if there are any, instead of an error of TensorFlow.

    TensorFlow's error does not name the file. The images are searched only after such an error.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:  # of any other error the pictures are not the cause
        files = [file for part in parts for file in unreadable(part)]
        if not files:
            raise
        names = ", ".join(files[:NAMED]) + (f" and {len(files) - NAMED} more" if len(files) > NAMED else "")
        raise DataError(
            f"cannot decode {names}: replace the pictures, or leave them out by --skip-unreadable"
        ) from error

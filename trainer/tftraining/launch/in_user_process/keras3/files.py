"""The files that callbacks of Keras 3 write (cause 4): where all members of a gang name one path, the chief alone
writes; a file is written aside and renamed; and all members resume at one place, or none.

A path that differs between the members, such as that of `write_filepath`, stays each member's own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from ..surface import Part
from .gang import gathered, saves_together

BACKUP = "keras.src.callbacks.backup_and_restore"
CHECKPOINT = "keras.src.callbacks.model_checkpoint"
LOGGER, BOARD = "keras.src.callbacks.csv_logger", "keras.src.callbacks.tensorboard"
PATHS = {
    "BackupAndRestore": "backup_dir",
    "CSVLogger": "filename",
    "ModelCheckpoint": "filepath",
    "TensorBoard": "log_dir",
}
PARTS = (
    Part(BACKUP, "BackupAndRestore", uses="backup_dir _prev_weights_path _prev_training_metadata_path _load_model"),
    Part(BACKUP, "BackupAndRestore._save_model", "self", "save_weights _weights_path _training_metadata_path"),
    Part(BACKUP, "BackupAndRestore._save_model", uses="double_checkpoint"),
    Part(BACKUP, "BackupAndRestore.on_train_end", "self logs", "delete_checkpoint backup_dir"),
    Part(CHECKPOINT, "ModelCheckpoint", uses="filepath verbose best save_weights_only"),
    Part(CHECKPOINT, "ModelCheckpoint._save_model", "self epoch batch logs", "_get_file_path save save_weights"),
    Part(CHECKPOINT, "ModelCheckpoint._should_save_model", "self epoch batch logs filepath"),
    Part(LOGGER, "CSVLogger.on_train_begin", "self logs", "append append_header filename csv_file"),
    Part(LOGGER, "CSVLogger", uses="keys writer"),
    Part(BOARD, "TensorBoard", uses="log_dir _train_dir _writers _close_writers"),
    Part(BOARD, "TensorBoard._train_writer", uses="_writers"),
    Part("keras.src.callbacks.callback", "Callback.set_model", "self model", "_model"),
    Part("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.fit", uses="_initial_epoch"),
)
# The first words of the error, by which the launcher knows the failure.
LEGACY = "tftraining: the backup of another Keras"
LEGACY_BACKUP = (
    LEGACY + ": {} has a backup of tf_keras, which Keras 3 cannot read: `import tf_keras as keras`, or give "
    "BackupAndRestore another directory to start over"
)
NOT_SHARED = (
    "the members of the gang resume at different places: at (epoch, step) {}; the directory of BackupAndRestore must "
    "be on storage that all of them share, or empty for all"
)
MOST = 64  # files of callbacks that are compared
_SHARED = "_tftraining_shared"  # set on such a callback while a `fit` with several workers runs


def begin(callbacks: list[Any], strategy: Any) -> bool:
    """Before the callbacks begin: find out which paths all members name. Whether a member may resume from a backup.
    All members must call it."""
    writers = [(each, _path(each)) for each in callbacks if _path(each)]
    backups = [each for each, _ in writers if hasattr(each, "backup_dir")]
    chief = bool(strategy.extended.should_checkpoint)
    for each in backups:
        _refuse_legacy(each)
        if chief:
            _finish_rename(each)
    digests = [_digest(path) for _, path in writers][:MOST]
    members = gathered(strategy, [len(backups), *digests, *[0] * (MOST - len(digests))])
    named = set.intersection(*({int(each) for each in row[1:]} for row in members))
    for each, path in writers:
        setattr(each, _SHARED, _digest(path) in named)
        if hasattr(each, "_close_writers") and _leaves(each):
            _leave_board(each)
        if hasattr(each, "backup_dir") and not chief and not getattr(each, _SHARED):
            _finish_rename(each)
    return any(row[0] for row in members)


def compare(model: Any, strategy: Any) -> None:
    """Raise RuntimeError where the members resume at different places. All of them must call it."""
    iterations = getattr(model.optimizer, "iterations", None)
    step = 0 if iterations is None else int(iterations.numpy())
    places = {(int(epoch) + 1, int(steps)) for epoch, steps in gathered(strategy, [model._initial_epoch or 0, step])}
    if len(places) > 1:
        raise RuntimeError(NOT_SHARED.format(", ".join(map(str, sorted(places)))))


def end(callbacks: list[Any]) -> None:
    """After the callbacks have ended."""
    for each in callbacks:
        each.__dict__.pop(_SHARED, None)


def _path(callback: Any) -> str:
    """Where a callback of Keras writes; "" for another one."""
    attributes = [PATHS[cls.__name__] for cls in type(callback).__mro__ if cls.__name__ in PATHS]
    return _absolute(str(getattr(callback, attributes[0], ""))) if attributes else ""


def _absolute(path: str) -> str:
    return path if "://" in path or not path else os.path.abspath(path)


def _digest(path: str) -> int:
    return int.from_bytes(hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()[:8], "big", signed=True)


def _refuse_legacy(backup: Any) -> None:
    exists, directory = sys.modules["tensorflow"].io.gfile.exists, str(backup.backup_dir)
    if exists(os.path.join(directory, "chief", "checkpoint")) and not exists(str(backup._weights_path)):
        raise RuntimeError(LEGACY_BACKUP.format(directory))


def patch_backup(module: Any) -> None:
    """Extend BackupAndRestore."""
    cls = module.BackupAndRestore
    save, end_train = cls._save_model, cls.on_train_end

    @functools.wraps(save)
    def _save_model(self: Any) -> None:
        if not hasattr(self, _SHARED):
            save(self)
        elif not _leaves(self):
            _save_aside(self, save)
        elif saves_together(self.model):
            _save_along(self, save)

    @functools.wraps(end_train)
    def on_train_end(self: Any, logs: Any = None) -> None:
        if not _leaves(self):
            end_train(self, logs)

    cls._save_model, cls.on_train_end = _save_model, on_train_end


def _leaves(callback: Any) -> bool:
    """Whether it leaves its path to the chief."""
    return getattr(callback, _SHARED, False) and not callback.model._distribute_strategy.extended.should_checkpoint


def patch_logger(module: Any) -> None:
    """Extend CSVLogger."""
    cls = module.CSVLogger
    begin = cls.on_train_begin

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        if not _leaves(self):
            return begin(self, logs)  # type: ignore[no-any-return]
        files, size = sys.modules["tensorflow"].io.gfile, 0
        if self.append and files.exists(self.filename):
            size = int(files.stat(self.filename).length)
            self.append_header = not size
        self.csv_file, self.keys, self.writer = Unwritten(size), None, None
        return None

    cls.on_train_begin = on_train_begin


class Unwritten:
    """The file of a CSVLogger that leaves it to the chief: it has the `size` that the chief's file has."""

    closed = False

    def __init__(self, size: int) -> None:
        self.size = size

    def write(self, text: str) -> None:
        """Count what the chief writes."""
        self.size += len(text.encode())

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        """Nothing is open."""
        self.closed = True


def _leave_board(board: Any) -> None:
    """Let TensorBoard write nothing more, and remove what it has written when Keras gave it the model."""
    files, noop = sys.modules["tensorflow"].io.gfile, sys.modules["tensorflow"].summary.create_noop_writer
    board._close_writers()
    for path in files.glob(f"{board._train_dir}/events.out.tfevents.*.{socket.gethostname()}.{os.getpid()}.*"):
        files.remove(path)
    board._writers = {"train": noop(), "val": noop()}


def _save_aside(backup: Any, save: Callable[[Any], None]) -> None:
    """Save weights and metadata so that a kill at any time leaves the one backup or the other: both are written aside,
    the metadata last; then the weights are renamed, and then the metadata. _finish_rename does what is left of it."""
    weights, metadata = str(backup._weights_path), str(backup._training_metadata_path)
    if "://" in weights:
        return save(backup)
    _remove(_aside(metadata))  # first: it says that the weights aside are complete
    backup._weights_path, backup._training_metadata_path = _aside(weights), _aside(metadata)
    try:
        save(backup)
    finally:
        backup._weights_path, backup._training_metadata_path = weights, metadata
    if backup.double_checkpoint and os.path.exists(weights) and os.path.exists(metadata):
        shutil.copyfile(weights, backup._prev_weights_path)
        shutil.copyfile(metadata, backup._prev_training_metadata_path)
    os.replace(_aside(weights), weights)
    os.replace(_aside(metadata), metadata)
    return None


def _save_along(backup: Any, save: Callable[[Any], None]) -> None:
    """Take part in the chief's save, into a file that is thrown away."""
    weights, metadata = backup._weights_path, backup._training_metadata_path
    with tempfile.TemporaryDirectory() as place:
        backup._weights_path = os.path.join(place, os.path.basename(str(weights)))
        backup._training_metadata_path = os.path.join(place, os.path.basename(str(metadata)))
        try:
            save(backup)
        finally:
            backup._weights_path, backup._training_metadata_path = weights, metadata


def _finish_rename(backup: Any) -> None:
    """Rename the metadata of weights that have been renamed, where a kill came between; remove what is incomplete."""
    weights, metadata = str(backup._weights_path), str(backup._training_metadata_path)
    if "://" in weights:
        return
    if os.path.exists(_aside(metadata)) and not os.path.exists(_aside(weights)):
        os.replace(_aside(metadata), metadata)
    _remove(_aside(metadata), _aside(weights))


def _aside(path: str) -> str:
    """Where a file is written; Keras wants its ending."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".next-{name}")


def _remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def patch_checkpoint(module: Any) -> None:
    """Extend ModelCheckpoint."""
    cls = module.ModelCheckpoint
    save = cls._save_model

    @functools.wraps(save)
    def _save_model(self: Any, epoch: Any, batch: Any, logs: Any) -> None:
        if not hasattr(self, _SHARED):
            return save(self, epoch, batch, logs)  # type: ignore[no-any-return]
        if not _leaves(self):
            return _with_model(self, _Aside(self.model), lambda: save(self, epoch, batch, logs))
        verbose, self.verbose = self.verbose, 0
        try:  # it keeps the best value, as the chief does
            saves = self._should_save_model(epoch, batch, logs, "")
        finally:
            self.verbose = verbose
        if saves and saves_together(self.model):
            with tempfile.TemporaryDirectory() as place:
                if self.save_weights_only:
                    self.model.save_weights(os.path.join(place, "along.weights.h5"))
                else:
                    self.model.save(os.path.join(place, "along.keras"))
        return None

    cls._save_model = _save_model


def _with_model(callback: Any, model: Any, action: Callable[[], None]) -> None:
    before, callback._model = callback._model, model
    try:
        action()
    finally:
        callback._model = before


class _Aside:
    """A model as ModelCheckpoint saves it: into a file aside, which is renamed."""

    def __init__(self, model: Any) -> None:
        self.save = functools.partial(self._write, model.save)
        self.save_weights = functools.partial(self._write, model.save_weights)

    def _write(self, save: Callable[..., None], filepath: Any, **options: Any) -> None:
        path = os.fspath(filepath)
        if "://" in path or os.path.isdir(path):  # Keras' own error
            return save(filepath, **options)
        save(_aside(path), **options)
        os.replace(_aside(path), path)
        return None

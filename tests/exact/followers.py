"""The callbacks of the program: those of the cell, one that notes what the training does, and one that ends it.

Each note is a file that a repeated epoch writes again, so the last writer counts. Nothing here may change the training.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.exact.cells import JUST_PROGRAM, POD, Cell, Kill
from tests.exact.inputs import validation_data
from tests.exact.library import keras, plain
from tests.exact.models import optimizers
from tftraining.launch.in_user_process.memory_backup import copy_report

LAUNCHER_DIES_SECONDS = 60.0
STEP_SECONDS = 1.0  # while a launcher for one more worker starts
ENDING_SECONDS = 0.1
PLATEAU = 1e9  # no loss gets better by so much: the first epoch stays the best one


def digest(values: Iterable[Any]) -> str:
    """A digest of all bytes."""
    told = hashlib.sha256()
    for value in values:
        told.update(np.ascontiguousarray(value).tobytes())
    return told.hexdigest()[:16]


def local(variable: Any) -> Any:
    """This member's value of a variable."""
    value = plain(variable)  # callbacks of Keras 3 do not run in the scope of its strategy
    strategy = getattr(value, "distribute_strategy", None) or tf.distribute.get_strategy()
    return strategy.experimental_local_results(value)[0].numpy()


class Place:
    """The directory of the run, and which member of the gang this process is."""

    def __init__(self, directory: Path, member: int) -> None:
        self.directory, self.member = directory, member
        self.round = int(os.environ.get("TFTRAINING_ROUND", "1"))

    def path(self, name: str) -> Path:
        return self.directory / name

    def write(self, name: str, content: object) -> None:
        """A file of this member, replaced as a whole."""
        path = self.path(f"{name}-{self.member}.json")
        new = path.with_suffix(".new")
        new.write_text(json.dumps(content, default=float))
        new.rename(path)

    def add(self, name: str, line: str) -> None:
        with self.path(f"{name}-{self.member}").open("a") as file:
            file.write(f"{line}\n")

    def begin(self, part: int, epoch: int, batch: int) -> None:
        """Note where the training of this process begins. What an earlier round has noted at the end of this epoch, or
        of a later one, is undone with it: a member that has left the gang since does not note it anew."""
        self.add("resumed", f"{self.round} {part} {epoch} {batch}")
        for path in self.directory.glob(f"epoch-{part}-*.json") if self.member == 0 else ():
            if int(path.name.split("-")[2]) >= epoch:
                path.unlink()


class Killer:
    """Ends this process by SIGKILL at the points of the cell, each once, or asks for the end of its pod."""

    def __init__(self, place: Place, kills: tuple[Kill, ...]) -> None:
        self.place, self.kills = place, kills
        self._ends = False  # by an announced stop, which takes half a second of steps

    def at(self, point: str, part: int, epoch: int, batch: int = 0) -> None:
        """Note that the training is there."""
        for number, kill in enumerate(self.kills):
            here = (kill.member, kill.at, kill.part, kill.epoch) == (self.place.member, point, part, epoch)
            done = self.place.path(f"killed-{number}")
            if here and (point != "batch" or batch >= kill.batch) and not done.exists():
                self._keep_report(number)
                done.write_text(f"{self.place.round} {part} {epoch} {batch}")
                if kill.what == JUST_PROGRAM:
                    os.kill(os.getpid(), signal.SIGKILL)
                if kill.what == POD:
                    time.sleep(LAUNCHER_DIES_SECONDS)
                    raise TimeoutError("the launcher lives on")
                self._ends = True
        if self._ends:
            time.sleep(ENDING_SECONDS)

    def _keep_report(self, number: int) -> None:
        """What the program has told its launcher about its copies up to here."""
        if told := os.environ.get("TFTRAINING_MEMORY_BACKUP"):
            report = Path(json.loads(told)["directory"], copy_report.NAME)
            if report.exists():
                shutil.copyfile(report, self.place.path(f"told-{number}.json"))


def note_epoch(place: Place, part: int, epoch: int, model: Any, logs: Any, rate: float) -> None:
    """Note the state at the end of an epoch."""
    counted = model.get_layer("counted")
    place.write(
        f"epoch-{part}-{epoch}",
        {
            "seen": local(counted.seen).tolist(),
            "count": float(local(counted.count)),
            "iterations": [int(each.iterations.numpy()) for each in optimizers(model)],
            "rate": rate,
            "logs": {name: float(value) for name, value in dict(logs or {}).items()},
            "weights": digest(local(each) for each in model.trainable_variables),
        },
    )


def rate_of(model: Any) -> float:
    """The present learning rate of the first optimizer."""
    rate = optimizers(model)[0].learning_rate
    return float(rate.numpy() if hasattr(rate, "numpy") else rate)


class Stateless(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that says that it has no state, so that nothing of it begins anew."""

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        pass


class Follow(Stateless):
    """Notes each step and each epoch of `fit`, and lets the killer know.

    `scaled_at`: epoch and batch behind which the gang is scaled, so that the training waits for the others."""

    def __init__(self, place: Place, killer: Killer, part: int, scaled_at: tuple[int, int] | None) -> None:
        super().__init__()
        self.place, self.killer, self.part, self.scaled_at = place, killer, part, scaled_at
        self.epoch, self.began = 0, False

    def on_train_begin(self, logs: Any = None) -> None:
        if any(kill.at == "save" for kill in self.killer.kills):
            self.model.save_weights = self._torn(self.model.save_weights)

    def _torn(self, save: Any) -> Any:
        """Ends this process when half of the file is written."""

        def save_weights(filepath: Any, **options: Any) -> None:
            save(filepath, **options)
            path = Path(filepath)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            self.killer.at("save", self.part, self.epoch)
            path.write_bytes(whole)

        return save_weights

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        self.killer.at("epoch_begin", self.part, epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not self.began:
            self.began = True
            self.place.begin(self.part, self.epoch, batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.place.add("steps", f"{self.part} {self.epoch} {batch}")
        if self.scaled_at is not None and (self.epoch, batch) >= self.scaled_at:
            time.sleep(STEP_SECONDS)
        self.killer.at("batch", self.part, self.epoch, batch)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.killer.at("validation", self.part, self.epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        note_epoch(self.place, self.part, epoch, self.model, logs, rate_of(self.model))
        self.killer.at("epoch_end", self.part, epoch)


class Own(keras.callbacks.Callback):  # type: ignore[misc]
    """A user's callback: a number of its own, which it sets the learning rate by."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate.assign(0.01 / (1 + 0.1 * self.batches))


class OwnWithState(Own):
    """The same, with the two methods that make it part of the state."""

    def get_state(self) -> dict[str, Any]:
        return {"batches": self.batches}

    def set_state(self, state: dict[str, Any]) -> None:
        self.batches = state["batches"]


class Inside(Stateless):
    """Evaluates in the middle of each epoch."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.data = batch, validation_data()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch:
            self.model.evaluate(self.data, verbose=0)


def _falling(epoch: int, rate: float) -> float:
    return rate * 0.7 if epoch else rate


def of_cell(cell: Cell, place: Place, part: int) -> list[Any]:
    """The callbacks of the cell."""
    callbacks = keras.callbacks
    watched = "val_loss" if cell.validation == "each" else "loss"
    # Members of Keras 3 may name one path: the chief alone writes there.
    shares = cell.lib == "keras" and max(cell.workers, cell.scaled_to) > 1
    writer = 0 if shares else place.member
    made = {
        "early-stopping": lambda: callbacks.EarlyStopping(
            watched, min_delta=PLATEAU, patience=2, restore_best_weights=True
        ),
        "reduce-lr": lambda: callbacks.ReduceLROnPlateau(watched, factor=0.5, patience=1, min_delta=PLATEAU, min_lr=0),
        "checkpoint": lambda: callbacks.ModelCheckpoint(
            str(place.path(f"best-{part}-{writer}.weights.h5")),
            watched,
            save_best_only=True,
            save_weights_only=True,
        ),
        "csv": lambda: callbacks.CSVLogger(str(place.path(f"rows-{part}.csv"))),
        "csv-append": lambda: callbacks.CSVLogger(str(place.path(f"rows-more-{part}.csv")), append=True),
        "lr": lambda: callbacks.LearningRateScheduler(_falling),
        "tensorboard": lambda: callbacks.TensorBoard(str(place.path(f"board-{part}-{writer}")), update_freq=5),
        "own": Own,
        "own-state": OwnWithState,
    }
    found = [made[name]() for name in cell.callbacks]
    return [*found, Inside(cell.steps // 2)] if cell.validation == "inside" else found

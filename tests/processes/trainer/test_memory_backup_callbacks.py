"""The state of Keras' callbacks and of a program's own, saved and restored; and the file that is kept with a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pytest
import tf_keras as keras

from tftraining.launch.in_user_process.memory_backup import shuffle_seed, stored_state
from tftraining.launch.in_user_process.memory_backup.callback_state import CallbackStates

KERAS = keras.callbacks
LOSSES = [5.0, 3.0, 4.0, 4.0, 4.0, 4.0, 2.0, 2.0]  # of epochs


class Fit:
    """A `fit` of these callbacks in one process; `losses` in place of batches. The weight is the epoch."""

    def __init__(self, *callbacks: Any) -> None:
        self.model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
        self.model.compile(keras.optimizers.SGD(1.0), "mse")
        self.told: list[str] = []
        self.callbacks = KERAS.CallbackList(list(callbacks), add_history=True, model=self.model)
        self.states = CallbackStates(self.callbacks, self.told.append)

    def copy(self) -> Any:
        """What a copy has of this training."""
        buffer = np.zeros(self.states.size, np.uint8)
        present = self.states.copy_arrays(self.states.views(buffer, 0))
        return self.states.states(), buffer, present, self.model.optimizer.learning_rate.numpy()

    def begin(self, copy: Any = None) -> Fit:
        self.states.before_begin()
        self.model.stop_training = False
        self.callbacks.on_train_begin()
        if copy is not None:
            states, buffer, present, rate = copy
            self.states.take_arrays(self.states.views(buffer, 0), present)
            self.states.restore(states)
            self.states.restore_arrays()
            self.model.optimizer.learning_rate.assign(rate)
        return self

    def train(self, first: int, last: int) -> Fit:
        for epoch in range(first, last):
            self.model.set_weights([np.full_like(each, epoch) for each in self.model.get_weights()])
            self.callbacks.on_epoch_end(epoch, {"loss": LOSSES[epoch]})
            if self.model.stop_training:
                break
        return self

    def end(self) -> Any:
        """What the training ends with."""
        self.callbacks.on_train_end()
        rate = float(self.model.optimizer.learning_rate.numpy())
        return self.model.history.history, self.model.history.epoch, self.model.get_weights()[0].item(), rate


class Counts(keras.callbacks.Callback):  # type: ignore[misc]
    """Stops the training behind so many epochs, in whatever process they were."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1
        self.model.stop_training |= self.epochs == 6


class Saves(Counts):
    """The same, with its state."""

    def get_state(self) -> Any:
        return {"epochs": np.int64(self.epochs)}

    def set_state(self, state: Any) -> None:
        self.epochs = state["epochs"]


MAKE: dict[str, Any] = {
    "EarlyStopping": lambda place: KERAS.EarlyStopping("loss", patience=4, restore_best_weights=True),
    "ReduceLROnPlateau": lambda place: KERAS.ReduceLROnPlateau("loss", patience=2, cooldown=1),
    "ModelCheckpoint": lambda place: KERAS.ModelCheckpoint(
        str(place / "best-{epoch}.keras"), "loss", save_best_only=True
    ),
    "CSVLogger": lambda place: KERAS.CSVLogger(place / "log.csv"),
    "CSVLogger, append": lambda place: KERAS.CSVLogger(place / "log.csv", append=True),
    "TerminateOnNaN": lambda place: KERAS.TerminateOnNaN(),
    "LambdaCallback": lambda place: KERAS.LambdaCallback(),
    "its own": lambda place: Saves(),
}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("copied", [1, 3, 4])
def test_a_killed_training_stops_and_keeps_what_the_undisturbed_one_does(
    tmp_path: Path, name: str, copied: int
) -> None:
    places = [tmp_path / "undisturbed", tmp_path / "killed"]
    for each in places:
        each.mkdir()
        if name.endswith("append"):
            (each / "log.csv").write_text("epoch,loss\n0,9.0\n")
    undisturbed = Fit(MAKE[name](places[0])).begin().train(0, len(LOSSES)).end()
    first = Fit(MAKE[name](places[1])).begin().train(0, copied)
    copy = first.copy()
    first.train(copied, 4)  # and is killed
    resumed = Fit(MAKE[name](places[1])).begin(copy).train(copied, len(LOSSES))
    assert resumed.end() == undisturbed
    assert first.told == resumed.told == []
    files = [{path.name: path.read_bytes() for path in each.iterdir() if path.suffix == ".csv"} for each in places]
    assert files[0] == files[1]
    assert sorted(path.name for path in places[0].iterdir()) == sorted(path.name for path in places[1].iterdir())


class Fails(Saves):
    def get_state(self) -> Any:
        raise RuntimeError("no state")


class NoData(Saves):
    def get_state(self) -> Any:
        return {"model": self.model}


@pytest.mark.parametrize("callback", [Counts(), Fails(), NoData()])
def test_a_callback_whose_state_cannot_be_saved_is_named_once(callback: Any) -> None:
    fit = Fit(callback).begin().train(0, 2)
    states = [fit.copy()[0][0] for _ in range(2)]
    assert not any(state and state["fields"] for state in states)
    assert fit.told == [type(callback).__name__]


def test_the_states_of_other_callbacks_are_not_taken() -> None:
    copy = Fit(Saves()).begin().train(0, 3).copy()
    callback = Saves()
    fit = Fit(callback, KERAS.TerminateOnNaN()).begin(copy)
    assert (callback.epochs, fit.told) == (0, ["the callbacks, which are others than before"])


def test_a_log_that_has_become_shorter_is_left_alone(tmp_path: Path) -> None:
    copy = Fit(MAKE["CSVLogger"](tmp_path)).begin().train(0, 3).copy()
    (tmp_path / "log.csv").write_text("epoch")
    assert Fit(MAKE["CSVLogger"](tmp_path)).begin(copy).told == ["CSVLogger"]


# Kept with a backup in the storage.


def test_the_state_of_a_backup_is_bound_to_it(tmp_path: Path) -> None:
    weights = [np.arange(3.0), np.ones([2, 2], "f")]
    one, two = (str(tmp_path / f"ckpt-{number}") for number in (1, 2))
    stored_state.write(one, {"step": 1}, [None, weights])
    assert stored_state.read(two) is None
    stored_state.write(two, {"step": 2}, [None])
    head, arrays, _ = stored_state.read(one) or ({}, [], None)
    assert (head["step"], arrays[0]) == (1, None)
    assert [each.tobytes() for each in arrays[1] or ()] == [each.tobytes() for each in weights]
    stored_state.prune(two)
    assert [path.name for path in tmp_path.iterdir()] == ["ckpt-2.tftraining.json"]


@pytest.mark.parametrize("name", ["ckpt-1.tftraining.json", "ckpt-1.tftraining.npz"])
def test_a_damaged_file_is_no_state(tmp_path: Path, name: str) -> None:
    stored_state.write(str(tmp_path / "ckpt-1"), {}, [[np.zeros(99)]])
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-30])
    with pytest.raises((ValueError, BadZipFile)):
        stored_state.read(str(tmp_path / "ckpt-1"))


def test_a_callback_may_hold_a_class() -> None:
    """A class has a length as an attribute, and none of its own: a `fit` with such a callback had no copies."""

    class Holder(keras.callbacks.Callback):  # type: ignore[misc]
        kind: type

    callback = Holder()
    callback.kind = list
    made = CallbackStates(keras.callbacks.CallbackList([callback], model=keras.Sequential()), lambda _: None)
    assert len(made.states()) >= 1


@pytest.mark.parametrize("tf_config", ["", "{", "[]", "{}"])
def test_a_seed_needs_no_valid_tf_config(tf_config: str) -> None:
    assert shuffle_seed._task_of(tf_config) == ""

"""A failure after `fit` trains no epoch again: real launchers and TensorFlow, and programs that know nothing of us.

Each program keeps a line for every epoch that it trains in `epochs-<worker>`, and a line for every end of `fit` with
what the program sees then in `ends-<worker>`.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.gang import LocalGang

PATIENCE = 240.0
NEWCOMER = Path(__file__).parents[2] / "support/newcomer.py"

# What TensorFlow's guide on multi-worker training writes, but for the data; `ends` is what it has when `fit` is over.
HEAD = """
import json, os, sys
import numpy as np
import tensorflow as tf
{keras}
directory = os.environ["TFTRAINING_DIR"]
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
def note(name, line):
    with open(f"{{directory}}/{{name}}-{{task}}", "a") as file:
        file.write(line + "\\n")
def fail_once():
    if not os.path.exists(f"{{directory}}/failed-{{task}}"):
        note("failed", "once")
        raise RuntimeError("after fit")
class Note(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        note("epochs", str(epoch))
    def on_train_end(self, logs=None):
        note("logs", str(sorted(logs)))
def end(model, history):
    weights = [round(float(abs(each).sum()), 5) for each in model.get_weights()]
    steps = int(np.asarray(model.optimizer.iterations))
    note("ends", json.dumps([history.history, history.epoch, weights, steps, bool(model.stop_training)]))
keras.utils.set_random_seed(1)
x = np.random.rand(64, 4).astype("f")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(16)
def make():
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return model
backup = keras.callbacks.BackupAndRestore(f"{{directory}}/backup"{options})
"""
LEGACY, KERAS_3 = "import tf_keras as keras", "import keras"

ONCE = """
model = make()
stop = keras.callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True)
path = f"{directory}/{task}.weights.h5"
best = keras.callbacks.ModelCheckpoint(path, "loss", save_best_only=True, save_weights_only=True)
rate = keras.callbacks.ReduceLROnPlateau("loss", min_delta=9.0, patience=5)
callbacks = [backup, Note(), stop, best, rate]
history = model.fit(data, epochs=3, validation_data=data, callbacks=callbacks, verbose=0)
end(model, history)
told = [float(stop.best), stop.best_epoch, stop.wait, float(best.best), float(rate.best), rate.wait]
weights = round(float(sum(abs(each).sum() for each in stop.best_weights)), 5)
note("loss", str([history.history["loss"][-1], weights, *told]))
fail_once()
"""

# Both on one directory; the failure is behind the second, and with it what the first has restored.
TWICE = """
model = make()
first = model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0)
end(model, first)
model = make()
second = model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0)
end(model, second)
fail_once()
third = model.fit(data, epochs=1, callbacks=[backup, Note()], verbose=0)
"""

# A callback makes a variable, so the model of a program that trains nothing would be another one.
LATE = """
class Late(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch and not hasattr(self.model, "late"):
            self.model.late = tf.Variable(0.0)
        if epoch:
            self.model.late.assign_add(1.0)
model = make()
history = model.fit(data, epochs=3, callbacks=[backup, Note(), Late()], verbose=0)
end(model, history)
note("loss", str(float(model.late.numpy())))
fail_once()
"""

# The second fit would train a layer that the first one has frozen half-way, in a program that trains nothing again.
FREEZES = """
class Freeze(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.layers[0].trainable = False
model = make()
first = model.fit(data, epochs=2, callbacks=[backup, Note(), Freeze()], verbose=0)
model.compile("adam", "mse", metrics=["mae"])
second = model.fit(data, epochs=3, callbacks=[backup], verbose=0)
end(model, second)
fail_once()
"""

BETWEEN = """
model = make()
first = model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0)
end(model, first)
fail_once()
second = model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0)
"""

# Skips what it finds done.
SKIPS = """
for fold in range(2):
    if os.path.exists(f"{directory}/fold-{fold}.h5"):
        continue
    model = make()
    model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0)
    model.save_weights(f"{directory}/fold-{fold}.weights.h5")
    os.rename(f"{directory}/fold-{fold}.weights.h5", f"{directory}/fold-{fold}.h5")
    fail_once()
"""

ONE_LINE = """
def train(rate):
    model = make()
    model.optimizer.learning_rate = rate
    end(model, model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0))
train(0.1), train(0.001)
fail_once()
"""

EDITED = """
rate = 0.1
model = make()
model.optimizer.learning_rate = rate
end(model, model.fit(data, epochs=2, callbacks=[backup, Note()], verbose=0))
if rate == 0.1:
    text = open(__file__).read()
    open(__file__, "w").write(text.replace("rate = 0.1", "rate = 0.2", 1))
    raise RuntimeError("found a wrong rate")
"""

# All folds on one directory; killed in the last one, if at all. (No BatchNormalization: each replica has statistics of
# its own, and a checkpoint has their mean.)
FOLDS = """
def make():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model
class Kill(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if killed and (fold, epoch, task) == (2, 2, 0) and not os.path.exists(f"{directory}/failed-0"):
            note("failed", "once")
            os.kill(os.getpid(), 9)
for fold in range(3):
    keras.utils.set_random_seed(fold)
    with strategy.scope():
        model = make()
    model.fit(data.skip(fold), epochs=3, callbacks=[backup, Note(), Kill()], verbose=0)
    note("scores", str(model.evaluate(data.take(fold + 1), verbose=0)))
"""

EARLY = """
class Worse(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["told"] = float(epoch)
stop = keras.callbacks.EarlyStopping("told", mode="min", patience=2, restore_best_weights=True)
model = make()
history = model.fit(data, epochs=20, callbacks=[Worse(), backup, stop, Note()], verbose=0)
end(model, history)
fail_once()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "job"))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    yield tmp_path


class Outcome:
    """A job that has succeeded, and what its programs have noted."""

    def __init__(self, gang: LocalGang, patience: float = PATIENCE) -> None:
        self.gang = gang
        self.codes = gang.wait(patience)
        self.log = "".join(gang.log(name) for name in gang.names)

    def lines(self, name: str, worker: int = 0) -> list[str]:
        path = self.gang.directory / f"{name}-{worker}"
        return path.read_text().splitlines() if path.exists() else []

    def epochs(self, worker: int = 0) -> list[int]:
        return [int(line) for line in self.lines("epochs", worker)]

    def ends(self, worker: int = 0) -> list[Any]:
        return [json.loads(line) for line in self.lines("ends", worker)]

    def left(self) -> list[str]:
        """What is left of the copies, and of the list of them."""
        found = [str(path.relative_to(self.gang.directory)) for path in self.gang.directory.rglob("*")]
        return [path for path in found if "finished" in path or "aside" in path or "workertemp" in path]


def run(place: Path, text: str, workers: int = 1, **options: Any) -> Outcome:
    program = place / "train.py"
    program.write_text(text)
    with LocalGang(place, {"worker": workers}, **{"warmStart": True, "successPolicy": "AllWorkers", **options}) as gang:
        gang.command = [sys.executable, str(program)]
        gang.start()
        return Outcome(gang)


@pytest.mark.slow_fault
def test_a_failed_save_after_fit_repeats_no_epoch(place: Path) -> None:
    with LocalGang(place, {"worker": 2}, warmStart=True, successPolicy="AllWorkers") as gang:
        gang.command = [sys.executable, str(NEWCOMER)]
        gang.start()
        ends = gang.directory / "ends-1"
        gang.wait_for(lambda: ends.exists() and len(ends.read_text().splitlines()) == 2, PATIENCE)
        last = gang.wait_for(lambda: gang.status()["lastRestart"], PATIENCE)
        (gang.directory / "workertemp_1").mkdir()
        outcome = Outcome(gang)
        assert outcome.codes == {"worker-0": 0, "worker-1": 0}, outcome.log
        assert (last["member"], last["exitCode"]) == ("worker-1", 1), last
        ledger = gang.message("worker-0")["ledger"]
        told = gang.message("worker-0")["lastRestart"]
    for worker in range(2):
        assert outcome.epochs(worker) == [0, 1, 2, 3], outcome.log
        ends_seen = outcome.ends(worker)
        assert len(ends_seen) >= 2 and all(end == ends_seen[0] for end in ends_seen), outcome.log
    assert ledger["processFailures"] == ledger["inPlace"] >= 1
    assert (told["resumedFromEpoch"], told["resumedFromStep"], told["lostSteps"]) == (4, 20, 0), told
    assert sorted(outcome.left()) == ["workertemp_1", "workertemp_1/model.h5"], "its own, saved in the end"


def head(keras: str, options: str = "") -> str:
    return HEAD.format(keras=keras, options=options)


def assert_same_end(outcome: Outcome, ends: int = 2) -> None:
    """A restarted program has seen at the end of `fit` what the first one had seen."""
    seen = outcome.ends()
    assert len(seen) == ends, outcome.log
    assert seen[1] == seen[0]


@pytest.mark.parametrize("keras", [LEGACY, pytest.param(KERAS_3, marks=pytest.mark.slow_fault)])
def test_a_finished_fit_is_restored_after_a_restart(place: Path, keras: str) -> None:
    outcome = run(place, head(keras) + ONCE, warmStart=False)
    assert outcome.codes == {"worker-0": 0}, outcome.log
    assert outcome.epochs() == [0, 1, 2], outcome.log
    assert_same_end(outcome)
    assert len(set(outcome.lines("logs"))) == 1, "what callbacks are told at the end of fit"
    assert outcome.left() == []
    assert len(outcome.lines("loss")) == 2 and len(set(outcome.lines("loss"))) == 1, outcome.log
    assert "unrestored" not in outcome.log


@pytest.mark.slow_fault
@pytest.mark.parametrize("keras", [LEGACY, KERAS_3])
def test_a_fit_whose_callback_creates_a_variable_is_trained_again(place: Path, keras: str) -> None:
    outcome = run(place, head(keras) + LATE)
    assert outcome.codes == {"worker-0": 0}, outcome.log
    assert outcome.epochs() == [0, 1, 2, 0, 1, 2], outcome.log
    assert_same_end(outcome)
    assert outcome.lines("loss") == ["2.0", "2.0"]
    assert "a failure after this fit repeats it, for only its training creates a variable: " in outcome.log


@pytest.mark.slow_fault
@pytest.mark.parametrize("keras", [LEGACY, KERAS_3])
def test_a_fit_whose_callback_freezes_a_layer_is_trained_again(place: Path, keras: str) -> None:
    outcome = run(place, head(keras) + FREEZES)
    assert outcome.codes == {"worker-0": 0}, outcome.log
    assert outcome.epochs() == [0, 1, 0, 1], outcome.log
    assert_same_end(outcome)
    assert "repeats it, for its training has changed which variables are trained" in outcome.log


@pytest.mark.slow_fault
@pytest.mark.parametrize("keras", [LEGACY, KERAS_3])
def test_two_fits_with_one_backup_directory_are_told_apart(place: Path, keras: str) -> None:
    outcome = run(place, head(keras) + TWICE)
    assert outcome.epochs() == [0, 1, 0, 1, 0], outcome.log
    first, second, again, last = outcome.ends()
    assert (again, last) == (first, second)
    assert first != second
    assert outcome.left() == []


@pytest.mark.slow_fault
@pytest.mark.parametrize("keras", [LEGACY, KERAS_3])
def test_the_next_fit_with_the_backup_directory_trains(place: Path, keras: str) -> None:
    outcome = run(place, head(keras) + BETWEEN)
    assert outcome.epochs() == [0, 1, 0, 1], outcome.log
    assert_same_end(outcome)


@pytest.mark.slow_fault
def test_a_program_that_skips_finished_work_takes_no_other_end(place: Path) -> None:
    outcome = run(place, head(LEGACY) + SKIPS)
    assert outcome.codes == {"worker-0": 0}, outcome.log
    assert outcome.epochs() == [0, 1, 0, 1], outcome.log


@pytest.mark.slow_fault  # `make test` has their identities alone, in tests/unit (test_call_site.py)
@pytest.mark.parametrize("keras", [LEGACY, KERAS_3])
def test_two_fits_on_one_line_each_have_their_own_end(place: Path, keras: str) -> None:
    outcome = run(place, head(keras) + ONE_LINE)
    first, second, *again = outcome.ends()
    assert again == [first, second] and first != second, outcome.log
    assert outcome.epochs() == [0, 1, 0, 1], outcome.log


@pytest.mark.slow_fault
def test_an_edited_program_trains_and_a_line_says_so(place: Path) -> None:
    outcome = run(place, head(LEGACY) + EDITED)
    assert outcome.epochs() == [0, 1, 0, 1], outcome.log
    first, second = outcome.ends()
    assert first != second
    assert outcome.log.count("the program or its packages have changed since: this one trains") == 1, outcome.log
    assert outcome.left() == []


@pytest.mark.slow_fault
@pytest.mark.parametrize(("keras", "workers"), [(LEGACY, 1), (LEGACY, 2), (KERAS_3, 1)])
def test_folds_on_one_directory_have_the_scores_of_the_undisturbed_run(
    place: Path, monkeypatch: pytest.MonkeyPatch, keras: str, workers: int
) -> None:
    seen = {}
    for killed in (False, True):
        (part := place / str(killed)).mkdir()
        monkeypatch.setenv("TFTRAINING_DIR", str(part / "job"))
        strategy = "MultiWorkerMirroredStrategy" if workers > 1 else "get_strategy"
        begin = f"{keras}\nkilled = {killed}\nstrategy = tf.distribute.{strategy}()"
        outcome = run(part, head(begin) + FOLDS, workers)
        assert set(outcome.codes.values()) == {0}, outcome.log
        seen[killed] = [outcome.lines("scores", worker) for worker in range(workers)]
        assert outcome.epochs() == [0, 1, 2] * 3, outcome.log
        assert outcome.left() == []
    assert [each[-3:] for each in seen[True]] == seen[False]
    assert seen[True][0][:2] == seen[False][0][:2]


@pytest.mark.slow_fault
@pytest.mark.parametrize("options", ["", ", delete_checkpoint=False"])
@pytest.mark.parametrize("keras", [LEGACY, KERAS_3])
def test_a_fit_stopped_early_does_not_train_on(place: Path, keras: str, options: str) -> None:
    outcome = run(place, head(keras, options) + EARLY)
    assert outcome.epochs() == [0, 1, 2], outcome.log
    assert_same_end(outcome)
    assert outcome.ends()[0][4], "stopped"
    assert outcome.left() == []
    backup = list((place / "job" / "backup").rglob("*.index")) + list((place / "job" / "backup").glob("*.h5"))
    assert bool(backup) == bool(options), "the backup stays if the user wants it"


COPY = """
mkdir -p "$0/backup.finished-1" && echo "\\"$0/backup.finished-1\\"" >> "$0/.tftraining-finished-worker-0"
touch "$0/made"
"""


@pytest.mark.parametrize(("end", "code", "left"), [("exit 0", 0, False), ("exit 3", 3, False), ("sleep 60", 143, True)])
def test_copies_are_removed_with_the_end_of_the_job(place: Path, end: str, code: int, left: bool) -> None:
    with LocalGang(place, {"worker": 1}, maxRestarts=0) as gang:
        gang.command = ["sh", "-c", COPY + end, str(gang.directory)]
        gang.start()
        gang.wait_for((gang.directory / "made").exists)
        if left:
            gang.kill("worker-0", signal.SIGTERM)
        outcome = Outcome(gang, 30)
        assert outcome.codes == {"worker-0": code}, outcome.log
        assert sorted(outcome.left()) == ([".tftraining-finished-worker-0", "backup.finished-1"] if left else [])

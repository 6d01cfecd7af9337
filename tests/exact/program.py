"""The program of tests.exact: one cell, from the file that EXACT_CELL names, in the directory TFTRAINING_DIR.

It ends with `result-<member>.json`. It knows nothing of its restarts but the round, for its notes and its kills.
"""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import tensorflow as tf

import tftraining
from tests.exact import followers, inputs, models
from tests.exact.cells import BATCH, FOLDS
from tests.exact.library import CELL, keras

DIRECTORY = Path(os.environ["TFTRAINING_DIR"])
TASK = json.loads(os.environ.get("TF_CONFIG") or '{"task": {"index": 0}}')["task"]["index"]
PLACE = followers.Place(DIRECTORY, TASK)
KILLER = followers.Killer(PLACE, () if CELL.scaled_to else CELL.kills)
STRATEGY = (
    tf.distribute.MultiWorkerMirroredStrategy() if CELL.strategy or max(CELL.workers, CELL.scaled_to) > 1 else None
)
RESULT: dict[str, Any] = {"parts": []}


def make_model(number: int = 0) -> Any:
    if CELL.seeded:
        keras.utils.set_random_seed(1)
    with STRATEGY.scope() if STRATEGY is not None else nullcontext():
        return models.build(CELL, number)


def callbacks(part: int, backup: str) -> list[Any]:
    """BackupAndRestore, those of the cell, and ours behind all."""
    saves = [keras.callbacks.BackupAndRestore(str(PLACE.path(backup)))] if CELL.backup else []
    late = [Late()] if CELL.model == "late" else []
    return [
        *saves,
        *late,
        *followers.of_cell(CELL, PLACE, part),
        followers.Follow(PLACE, KILLER, part, scaled_at(part)),
    ]


def scaled_at(part: int) -> tuple[int, int] | None:
    """Epoch and batch behind which the gang is scaled while this fit runs."""
    point = CELL.kills[0] if CELL.scaled_to and PLACE.round == 1 else None
    return (point.epoch, point.batch) if point is not None and point.part == part else None


class Late(followers.Stateless):
    """Creates a variable at the begin of the second epoch, or of the first one behind it, and counts in it."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch >= 1 and not hasattr(self.model, "late"):
            self.model.late = tf.Variable(0.0, trainable=False, name="late")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if hasattr(self.model, "late"):
            self.model.late.assign_add(1.0)


def keep(part: int, model: Any, history: Any) -> None:
    """Add the end of a fit to the result."""
    RESULT["parts"].append(
        {
            "weights": [followers.digest([followers.local(each)]) for each in weights(model)],
            "optimizer": [followers.digest([followers.local(each)]) for each in models.optimizer_variables(model)],
            "iterations": [int(each.iterations.numpy()) for each in models.optimizers(model)],
            "rate": followers.rate_of(model),
            "metrics": {
                each.name: [followers.digest([followers.local(v)]) for v in each.variables] for each in model.metrics
            },
            "history": {} if history is None else history.history,
            "epochs": [] if history is None else history.epoch,
            "late": float(model.late.numpy()) if hasattr(model, "late") else None,
            "table": int(model.table.size().numpy()) if hasattr(model, "table") else None,
        }
    )


def weights(model: Any) -> list[Any]:
    """The variables of the model but those that count on each member."""
    counted = model.get_layer("counted")
    return [each for each in model.variables if each is not counted.seen and each is not counted.count]


def files() -> dict[str, Any]:
    """What the callbacks have left, in a form that does not depend on time."""
    found: dict[str, Any] = {each.name: each.read_text() for each in DIRECTORY.glob("rows-*.csv")}
    found |= {each.name: saved(each) for each in DIRECTORY.glob(f"best-*-{TASK}.weights.h5")}
    return found | {f"{each.parent.name}/{each.name}": scalars(each) for each in DIRECTORY.glob(f"board-*-{TASK}/*")}


def saved(name: Path) -> str:
    """A digest of the values in a file of weights, but those that count."""
    with h5py.File(name) as file:
        names: list[str] = []
        file.visit(names.append)
        values = [file[name][()] for name in names if isinstance(file[name], h5py.Dataset)]
    return followers.digest(each for each in values if each.shape not in ((CELL.examples,), ()))


def scalars(directory: Path) -> list[Any]:
    """The points in TensorBoard's files of the directory, but those of time: of each tag and step the last one."""
    points: dict[tuple[str, int], str] = {}
    for file in sorted(directory.glob("events.*"), key=lambda each: int(each.name.split(".")[3])):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                if value.HasField("tensor") and not value.tag.startswith(("keras", "batch_2", "graph")):
                    points[value.tag, event.step] = repr(tf.make_ndarray(value.tensor).tolist())
    return sorted([tag, step, value] for (tag, step), value in points.items())


def fit_one(part: int) -> None:
    model = make_model()
    more = {"initial_epoch": 1} if CELL.shape == "initial-epoch" else {}
    arguments = inputs.fit_arguments(CELL, DIRECTORY)
    history = model.fit(epochs=CELL.epochs, verbose=0, callbacks=callbacks(part, f"backup-{part}"), **arguments, **more)
    keep(part, model, history)


def fit_twice() -> None:
    """Two calls of `fit` on one model, with the same backup directory and other inputs."""
    model = make_model()
    first = model.fit(
        epochs=CELL.epochs, verbose=0, callbacks=callbacks(0, "backup"), **inputs.fit_arguments(CELL, DIRECTORY)
    )
    keep(0, model, first)
    second = model.fit(
        epochs=CELL.epochs, verbose=0, callbacks=callbacks(1, "backup"), **inputs.fit_arguments(CELL, DIRECTORY)
    )
    keep(1, model, second)


def fit_twice_on_one_line() -> None:
    """Two calls of `fit` on one line."""
    model, fitted = make_model(), []
    told = [inputs.fit_arguments(CELL, DIRECTORY) | {"epochs": CELL.epochs, "verbose": 0} for _ in range(2)]
    made = [callbacks(0, "backup"), callbacks(1, "backup")]
    fitted += [model.fit(callbacks=made[0], **told[0]), model.fit(callbacks=made[1], **told[1])]  # fmt: skip
    keep(0, model, fitted[0])
    keep(1, model, fitted[1])


def fit_folds() -> None:
    """A new model for each fold, all with one backup directory."""
    for fold in range(FOLDS):
        model = make_model(fold)
        model.fit(
            epochs=CELL.epochs, verbose=0, callbacks=callbacks(fold, "backup"), **inputs.fit_arguments(CELL, DIRECTORY)
        )
        score = model.evaluate(inputs.validation_data(), verbose=0)
        keep(fold, model, None)
        RESULT["parts"][-1]["score"] = score


def custom_loop() -> None:
    """A loop of its own, with three lines for the copies; the storage has a checkpoint of each epoch."""
    model = make_model()
    with STRATEGY.scope() if STRATEGY is not None else nullcontext():
        model.optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    manager = tf.train.CheckpointManager(checkpoint, str(PLACE.path(f"checkpoints-{TASK}")), max_to_keep=1)
    step = int(manager.latest_checkpoint.rpartition("-")[2]) if manager.restore_or_initialize() else 0
    backup = tftraining.MemoryBackup(checkpoint)
    step = backup.restore(step)
    data = inputs.datasets(CELL, DIRECTORY)[CELL.input]()
    data = data.skip(step)
    iterator = iter(data if STRATEGY is None else STRATEGY.experimental_distribute_dataset(data))
    PLACE.begin(0, step // CELL.steps, step % CELL.steps)
    while step < CELL.epochs * CELL.steps:
        loss = train_step(model, iterator)
        step += 1
        epoch, batch = (step - 1) // CELL.steps, (step - 1) % CELL.steps
        PLACE.add("steps", f"0 {epoch} {batch}")
        if batch + 1 == CELL.steps:
            followers.note_epoch(PLACE, 0, epoch, model, {"loss": loss}, followers.rate_of(model))
        backup.step(step)
        KILLER.at("batch", 0, epoch, batch)
        if batch + 1 == CELL.steps and CELL.backup:
            manager.save(checkpoint_number=step)
        KILLER.at("epoch_end" if batch + 1 == CELL.steps else "", 0, epoch)
    backup.done()
    keep(0, model, None)


@tf.function  # type: ignore[untyped-decorator]
def train_step(model: Any, iterator: Any) -> Any:
    def replica(data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(
                tf.reduce_sum((model(x, training=True) - y) ** 2, 1), global_batch_size=BATCH
            )
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    if STRATEGY is None:
        return replica(next(iterator))
    losses = STRATEGY.run(replica, args=(next(iterator),))
    return STRATEGY.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


if CELL.loop == "custom":
    custom_loop()
elif CELL.shape == "two-fits":
    fit_twice()
elif CELL.shape == "one-line":
    fit_twice_on_one_line()
elif CELL.shape == "folds":
    fit_folds()
else:
    fit_one(0)
RESULT["files"] = files()
PLACE.write("result", RESULT)

"""Draws cells from a seed. Pure: the same seed draws the same cells.

Each cell is a program that a user could have written, so what TensorFlow or Keras does not support is not drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.exact.cells import CALLBACKS, DRAIN, INPUTS, JUST_PROGRAM, MODELS, PARTS, POD, Cell, Kill

MOST_KILLS = 4
# A loop of its own finds its position by `skip`: inputs for which that is right.
LOOP_INPUTS = ("repeat", "repeat-shuffled", "finite-long", "repeat-first")
RATES = ("lr", "reduce-lr", "own", "own-state")  # callbacks that set the learning rate
NO_RATE = ("schedule", "loss-scale", "two-optimizers")  # models in which they cannot
LEGACY_ONLY = ("dropout-generator", "vocabulary")  # models that Keras 3 has in another form
ALONE = ("table", "late", "dropout-generator", "two-optimizers", "metric")  # not under a strategy


def cells(seed: int) -> Iterator[Cell]:
    """Cells without end. The first ones have each input, each model and each callback once, in a drawn order."""
    chance = random.Random(seed)
    todo: list[dict[str, object]] = [{"input": name} for name in INPUTS]
    todo += [{"model": name} for name in MODELS]
    todo += [{"callbacks": (name,)} for name in CALLBACKS]
    chance.shuffle(todo)
    while True:
        yield _one(chance, todo.pop() if todo else {})


def of_keras_3(drawn: Iterator[Cell]) -> Iterator[Cell]:
    """The cells that a program of Keras 3 can have."""
    return (replace(cell, lib="keras") for cell in drawn if cell.model not in LEGACY_ONLY)


def gangs(drawn: Iterator[Cell]) -> Iterator[Cell]:
    """The cells with several workers."""
    return (cell for cell in drawn if max(cell.workers, cell.scaled_to) > 1)


def _one(chance: random.Random, given: dict[str, object]) -> Cell:
    cell = _loop(chance) if chance.random() < 0.08 and not given else _fit(chance, given)
    if chance.random() < 0.06 and not given:
        cell = _gang(chance, cell)
    kills = _kills(chance, cell)
    if cell.scaled_to:
        kills = (Kill(chance.randrange(cell.epochs - 1), chance.randrange(cell.batches - 1)),)
    elif cell.workers > 1:
        kills = tuple(replace(kill, what=chance.choice([JUST_PROGRAM, JUST_PROGRAM, POD, DRAIN])) for kill in kills)
    return replace(cell, kills=kills)


def _gang(chance: random.Random, cell: Cell) -> Cell:
    """The cell with several workers, or scaled; as it is if its parts do not allow that."""
    source = INPUTS[cell.input]
    if not source.works_in_a_gang or source.unsized or cell.model in ALONE or cell.epochs > 100:
        return cell
    cell = replace(cell, strategy="", workers=chance.choice([2, 2, 3]))
    if cell.shape != "one" or cell.loop == "custom" or chance.random() < 0.5:
        return cell
    stopping = tuple(name for name in cell.callbacks if not CALLBACKS[name].stops)
    workers, scaled = chance.choice([(1, 2), (2, 1), (2, 3), (3, 2)])
    return replace(cell, workers=workers, scaled_to=scaled, callbacks=stopping)


def _loop(chance: random.Random) -> Cell:
    model = chance.choice([name for name, part in MODELS.items() if not part.fit_only])
    return Cell(
        loop="custom",
        input=chance.choice(LOOP_INPUTS),
        model=model,
        backup=chance.random() < 0.7,
        strategy=_strategy(chance),
    )


def _strategy(chance: random.Random) -> str:
    return "multi-worker" if chance.random() < 0.2 else ""


def _fit(chance: random.Random, given: dict[str, object]) -> Cell:
    if not given and chance.random() < 0.03:
        return Cell(
            input=chance.choice(["shuffled", "repeat-shuffled"]), epochs=520, steps=3, backup=chance.random() < 0.5
        )
    cell = Cell(
        input=chance.choice(list(INPUTS)),
        model=chance.choice(list(MODELS)) if chance.random() < 0.5 else "dense",
        callbacks=tuple(chance.sample(list(CALLBACKS), chance.choice([0, 0, 1, 1, 2, 3]))),
        backup=chance.random() < 0.7,
        shape=chance.choice(["one"] * 7 + ["two-fits", "one-line", "folds", "initial-epoch"]),
        validation=chance.choice(["", "", "each", "second", "inside"]),
        execution=chance.choice([1, 1, 1, 1, 4]),
        seeded=chance.random() < 0.7,
        exactness="Required" if chance.random() < 0.2 else "Preferred",
        strategy=_strategy(chance),
    )
    return possible(replace(cell, **given), given)  # type: ignore[arg-type]


def possible(cell: Cell, given: Sequence[str] | dict[str, object] = ()) -> Cell:
    """The cell without what its parts do not allow; what is `given` stays."""
    source = INPUTS[cell.input]
    if cell.model in NO_RATE and "callbacks" in given:
        cell = replace(cell, model="dense")
    if cell.model in NO_RATE:
        cell = replace(cell, callbacks=tuple(name for name in cell.callbacks if name not in RATES))
    if cell.model == "late":  # EarlyStopping cannot give it back the weights of an epoch without the variable
        cell = replace(cell, callbacks=tuple(name for name in cell.callbacks if not CALLBACKS[name].stops))
    if not source.works_in_a_gang or source.unsized or cell.model in ALONE:
        cell = replace(cell, strategy="")
    if cell.execution > 1 and (
        source.unsized or cell.validation == "inside" or cell.model in ("two-optimizers", "late")
    ):
        cell = replace(cell, execution=1)
    if cell.validation == "second" and cell.input.startswith("split"):
        cell = replace(cell, validation="")
    return cell


def _kills(chance: random.Random, cell: Cell) -> tuple[Kill, ...]:
    parts = PARTS.get(cell.shape, 1)
    first = int(cell.shape == "initial-epoch")
    found = []
    for _ in range(chance.randint(1, MOST_KILLS)):
        points = ["batch"] * 5 + ["epoch_end"] + ["epoch_begin"] * (cell.loop == "fit")
        points += ["validation"] * 2 * (cell.validation in ("each", "second") or cell.input.startswith("split"))
        epoch = max(first, chance.choice([0, cell.epochs - 1, *(chance.randrange(cell.epochs) for _ in range(2))]))
        batch = chance.choice([0, cell.batches - 1, *(chance.randrange(cell.batches) for _ in range(4))])
        at = chance.choice(points)
        part, member = chance.randrange(parts), chance.randrange(cell.workers)
        found.append(Kill(epoch, batch if at == "batch" else 0, at, part, member))
    order = {"epoch_begin": 0, "batch": 1, "validation": 2, "epoch_end": 3}
    return tuple(sorted(found, key=lambda kill: (kill.part, kill.epoch, order[kill.at], kill.batch)))

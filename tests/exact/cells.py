"""The cells of tests.exact: one program, its kills, and what the design promises for it.

Pure. A cell is plain data that travels as JSON into the program (program.py). `expected` is written from the design of
backups in memory alone, never from what the product does: the two are compared.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STEP, ANEW, EPOCH, STORAGE = "Step", "StepDrawnAnew", "Epoch", "Storage"
KINDS = (STEP, ANEW, EPOCH, STORAGE)  # the best one first
BATCH = 8
FOLDS = 3
PARTS = {"two-fits": 2, "one-line": 2, "folds": FOLDS}  # calls of `fit`; of other shapes 1
JUST_PROGRAM, POD, DRAIN = "program", "pod", "drain"


@dataclass(frozen=True)
class Kill:
    """Where a program kills itself: behind a batch, or at another point of an epoch. `part`: the fit or the fold.
    "save": while weights are saved at the end of the epoch; not drawn. `what` ends: "program"; "pod": its launcher and
    its memory too; "drain": as "pod", after a SIGTERM to the launcher. A gang's member gets a new pod."""

    epoch: int
    batch: int = 0
    at: str = "batch"
    part: int = 0
    member: int = 0
    what: str = JUST_PROGRAM


@dataclass(frozen=True)
class Cell:
    """One program and its kills, each of which happens once."""

    lib: str = "tf_keras"  # or "keras", which is Keras 3
    input: str = "repeat"
    model: str = "dense"
    optimizer: str = ""  # "legacy": that of tf_keras.optimizers.legacy; not drawn
    callbacks: tuple[str, ...] = ()
    backup: bool = True  # BackupAndRestore; a custom loop: a checkpoint at each epoch's end
    loop: str = "fit"  # or "custom"
    shape: str = "one"  # "two-fits", "one-line", "folds", "initial-epoch"
    validation: str = ""  # "each", "second", "inside"
    execution: int = 1
    seeded: bool = True  # keras.utils.set_random_seed
    exactness: str = "Preferred"
    strategy: str = ""  # "multi-worker"; always with more than one worker
    workers: int = 1
    scaled_to: int = 0  # the number of workers behind the batch of the first kill, which scales and kills nothing
    epochs: int = 4
    steps: int = 20
    kills: tuple[Kill, ...] = (Kill(2, 7),)

    @property
    def examples(self) -> int:
        """The number of examples in the data."""
        per_epoch = self.steps * BATCH * (1 if self.loop == "fit" else self.workers)
        return per_epoch * (self.epochs if INPUTS[self.input].spans_epochs else 1) - INPUTS[self.input].missing

    @property
    def batches(self) -> int:
        """The number of batches in an epoch."""
        return self.steps - (4 if self.input.startswith("split") else 0)

    def to_json(self) -> str:
        """As JSON, without the fields that have their default."""
        told = dataclasses.asdict(self)
        plain = {f.name: told[f.name] for f in dataclasses.fields(self) if getattr(self, f.name) != f.default}
        if "kills" in plain:
            plain["kills"] = [_changed(kill) for kill in self.kills]
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str) -> Cell:
        """The cell in the text; TypeError for an unknown field, KeyError for an unknown value."""
        told: dict[str, Any] = json.loads(text)
        told["callbacks"] = tuple(told.get("callbacks", ()))
        if "kills" in told:
            told["kills"] = tuple(Kill(**kill) if isinstance(kill, dict) else Kill(*kill) for kill in told["kills"])
        cell = cls(**told)
        _ = INPUTS[cell.input], MODELS[cell.model], [CALLBACKS[each] for each in cell.callbacks]
        return cell


def _changed(kill: Kill) -> dict[str, Any]:
    return {f.name: getattr(kill, f.name) for f in dataclasses.fields(kill) if getattr(kill, f.name) != f.default}


@dataclass(frozen=True)
class Input:
    """What the design says about an input. `same`: it starts the same at each epoch, whatever was read before."""

    what: str
    kind: str = STEP
    unseeded: str = ""  # the kind in a program without a seed, if it is another one
    in_keras_3: str = ""  # the kind in Keras 3, if it is another one
    same: bool = False
    spans_epochs: bool = False  # one pass over the data is the whole training
    missing: int = 0  # examples that the last batch lacks
    once: bool = True  # each example once an epoch
    finite: bool = False  # Keras takes the steps of an epoch from the input
    drawn: bool = False  # from the seed of the whole program, if it has one
    unsized: bool = False  # Keras runs a part of a step behind the last one of the first epoch of each process
    works_in_a_gang: bool = True


INPUTS: Mapping[str, Input] = {
    "arrays": Input("arrays, shuffle=False", same=True, finite=True),
    "arrays-shuffled": Input("arrays, shuffled by Keras", finite=True, drawn=True, unseeded=ANEW, in_keras_3=ANEW),
    "arrays-uneven": Input("arrays, the last batch smaller", same=True, finite=True, missing=3),
    "repeat": Input("batch().repeat()", same=True),
    "repeat-shuffled": Input("shuffle(seed).batch().repeat()"),
    "repeat-first": Input("repeat().shuffle(seed).batch(): epochs are mixed", once=False),
    "finite": Input("batch(), no steps_per_epoch", same=True, finite=True),
    "finite-uneven": Input("batch() with a smaller last one", same=True, finite=True, missing=3),
    "finite-steps": Input("batch(), steps_per_epoch as many as it has", same=True),
    "finite-long": Input("batch() over the data of all epochs, steps_per_epoch", spans_epochs=True),
    "shuffled": Input("shuffle(seed).batch()", finite=True),
    "shuffled-once": Input("shuffle(seed, reshuffle_each_iteration=False)", same=True, finite=True),
    "unseeded": Input("shuffle() without a seed", finite=True, drawn=True),
    "unseeded-repeat": Input("shuffle() without a seed, batch().repeat()", drawn=True),
    "cache-before": Input("cache().shuffle(seed)", finite=True),
    "cache-behind": Input("shuffle(seed).cache()", same=True, finite=True),
    "cache-behind-unseeded": Input("shuffle().cache()", finite=True, drawn=True),
    "cache-file": Input("cache(filename)", same=True, finite=True),
    "interleave": Input("interleaved files, repeat()", same=True),
    "interleave-parallel": Input("files interleaved in parallel, in order, repeat()", same=True),
    "interleave-sloppy": Input("files interleaved in any order, repeat()", kind=EPOCH),
    "files": Input("interleaved files: unknown size", kind=EPOCH, same=True, finite=True, unsized=True),
    "file-shards": Input("files, auto-sharded by FILE", same=True),
    "parallel-map": Input("map(num_parallel_calls).prefetch()", same=True, finite=True),
    "stateless-map": Input("map with random numbers of a seed in the example", same=True, finite=True),
    "random-map": Input("map with tf.random.uniform", finite=True, drawn=True, kind=ANEW),
    "python-map": Input("map with tf.numpy_function", kind=EPOCH, same=True, finite=True),
    "filter": Input("filter: unknown size", kind=EPOCH, same=True, finite=True, unsized=True, works_in_a_gang=False),
    "filter-repeat": Input("filter().repeat(), steps_per_epoch", same=True),
    "flat-map": Input(
        "flat_map: unknown size", kind=EPOCH, same=True, finite=True, unsized=True, works_in_a_gang=False
    ),
    "from-generator": Input(
        "Dataset.from_generator", kind=EPOCH, same=True, finite=True, unsized=True, works_in_a_gang=False
    ),
    "generator": Input("a Python generator", kind=EPOCH, once=False, works_in_a_gang=False),
    "sequence": Input("keras.utils.Sequence", kind=EPOCH, same=True, finite=True, works_in_a_gang=False),
    "sequence-shuffled": Input(
        "a Sequence that shuffles in on_epoch_end", kind=EPOCH, finite=True, works_in_a_gang=False
    ),
    "split": Input("one shuffle(seed), split by take and skip", kind=EPOCH, once=False, finite=True),
    "split-once": Input("one shuffle(seed, reshuffle_each_iteration=False), split", same=True, finite=True),
    "mixed": Input("Dataset.sample_from_datasets(seed)", kind=EPOCH, once=False),
    "zipped": Input("Dataset.zip of two shuffles with seeds", finite=True),
    "options": Input("shuffle(seed).batch() with options deterministic=False", kind=EPOCH, finite=True),
}


@dataclass(frozen=True)
class Part:
    """What the design says about a model or a callback. `anew`: the name of what begins anew at a restart, so that the
    end may differ. `storage`: there are no copies. `stops`: the number of epochs depends on the values."""

    what: str
    anew: str = ""
    storage: bool = False
    lost: bool = False  # a backup in the storage does not have all of it either
    stops: bool = False
    fit_only: bool = True


MODELS: Mapping[str, Part] = {
    "dense": Part("two layers, Adam", fit_only=False),
    "batchnorm": Part("BatchNormalization", fit_only=False),
    "dropout": Part("Dropout"),
    "dropout-generator": Part("Dropout with a tf.random.Generator, which no checkpoint has", storage=True, lost=True),
    "loss-scale": Part("LossScaleOptimizer"),
    "ema": Part("an optimizer with use_ema"),
    "schedule": Part("a learning rate schedule", fit_only=False),
    "train-step": Part("its own train_step with a variable"),
    "metric": Part("a metric whose state lasts, and weighs the loss"),
    "vocabulary": Part("StringLookup with a given vocabulary"),
    "table": Part("a MutableHashTable that training fills", storage=True),
    "late": Part("a variable created in the second epoch", storage=True),
    "two-optimizers": Part("its own compile, two optimizers"),
}

CALLBACKS: Mapping[str, Part] = {
    "early-stopping": Part("EarlyStopping(restore_best_weights)", stops=True),
    "reduce-lr": Part("ReduceLROnPlateau"),
    "checkpoint": Part("ModelCheckpoint(save_best_only)"),
    "csv": Part("CSVLogger"),
    "csv-append": Part("CSVLogger(append=True)"),
    "lr": Part("LearningRateScheduler(epoch, lr)"),
    "tensorboard": Part("TensorBoard"),
    "own-state": Part("your own, with get_state and set_state"),
    "own": Part("your own, without them", anew="Own"),
}


@dataclass(frozen=True)
class Expected:
    """What the design promises. `kind`: from the begin of `fit` on, but for what only the training shows. `anew`: what
    begins anew has to be told, and may differ."""

    kind: str
    same: bool  # at the begin of an epoch the input starts as undisturbed
    anew: tuple[str, ...]
    stops: bool
    once: bool
    unsized: bool  # Keras counts one step more where a process first finds the end of the input
    resized: bool  # another number of workers ends the training
    drawn: bool  # the undisturbed run has drawn its order by itself, so only the examples can be compared


def expected(cell: Cell) -> Expected:
    """The promise for the cell."""
    source, parts = INPUTS[cell.input], [MODELS[cell.model], *(CALLBACKS[each] for each in cell.callbacks)]
    # In a gang, a checkpoint has the mean of the averages that each worker has of its own.
    averaged = cell.workers > 1 and cell.model == "batchnorm"
    same = source.same and not averaged and not any(part.lost for part in parts)
    kind = source.kind if cell.seeded else source.unseeded or source.kind
    if cell.lib == "keras":
        kind = source.in_keras_3 or kind
    if kind == ANEW and cell.exactness == "Required":
        kind = EPOCH
    if any(part.storage for part in parts) or (cell.shape == "initial-epoch" and not cell.backup):
        kind = STORAGE
    # Each member draws an order of its own, and then takes its part of the examples.
    apart = cell.workers > 1 and (cell.input == "interleave-sloppy" or (source.drawn and not cell.seeded))
    return Expected(
        kind,
        same,
        tuple(part.anew for part in parts if part.anew),
        any(part.stops for part in parts),
        source.once
        and cell.shape != "initial-epoch"
        and not apart
        and not (cell.scaled_to and (cell.input == "file-shards" or _is_looked_at(cell))),
        source.unsized,
        cell.scaled_to > 0,
        source.drawn and not cell.seeded,
    )


def _is_looked_at(cell: Cell) -> bool:
    """Whether the shuffled input gives another order in one of the two gangs: Keras 3 looks at a batch where there is
    one worker."""
    shuffles = "shuffle" in INPUTS[cell.input].what and cell.input != "shuffled-once"
    return cell.lib == "keras" and shuffles and 1 in (cell.workers, cell.scaled_to)


def keeps(said: str, promised: str) -> bool:
    """Whether what the program has told is the promised kind; state that no copy has shows while it trains."""
    return said == promised or (promised == STORAGE and said in KINDS)

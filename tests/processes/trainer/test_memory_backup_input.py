"""Which inputs a restarted `fit` finds again at the step, and that it does: real datasets in Keras' DataHandler.

Whole trainings: tests/exact. Here each input that is trusted is read twice, once without and once with an interruption.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.python.data.ops import map_op
from tf_keras.src.engine import data_adapter

from tftraining.launch.in_user_process.memory_backup import input_kind, input_position
from tftraining.launch.in_user_process.memory_backup.input_kind import DRAWN_ANEW, EPOCH, STEP, Kind
from tftraining.launch.in_user_process.memory_backup.input_position import Position, can_skip, examples_in_a_step
from tftraining.launch.in_user_process.memory_backup.legacy_fit import LegacyFit

EPOCHS, STEPS = 4, 6
NUMBERS = tf.data.Dataset.range(12)
X = np.arange(12)


def handler(data: Any, steps: int | None = None, **more: Any) -> Any:
    """Keras' handler of the input of a `fit`."""
    more = {"batch_size": 2, "shuffle": False, **more} if isinstance(data, np.ndarray) else more
    return data_adapter.DataHandler(data, epochs=EPOCHS, steps_per_epoch=steps, steps_per_execution=None, **more)


def kind_of(made: Any) -> Kind:
    return input_kind.kind_of(made._dataset, LegacyFit(None, made).several)


def position_of(made: Any, drawn: int = 0, number: int = 0, **more: Any) -> Position:
    fit = LegacyFit(None, made)
    found = Position(fit, kind_of(made), 1, **{"on_other_reader": lambda: None, **more})
    found.drawn, found.made = drawn, number
    fit.follow(found)
    return found


def epochs(made: Any, position: Position, original: Any = None) -> Iterator[tuple[int, Any]]:
    fit: Any = position._source
    return fit.epochs(original or type(made).enumerate_epochs)  # type: ignore[no-any-return]


def read(made: Any, position: Position, epoch: int = 0, batch: int = 0) -> dict[tuple[int, int], Any]:
    """Read from this place on, as `fit` does: each batch, and the position before it."""
    seen = {}
    made._initial_epoch, made._initial_step = epoch, batch
    for present, iterator in epochs(made, position):
        for step in range(batch if present == epoch else 0, STEPS):
            seen[present, step] = (np.asarray(next(iterator)).tolist(), position.drawn, position.made)
            position.drawn += 1
    return seen


def files(data: Any) -> Any:
    return data.interleave(lambda each: tf.data.Dataset.from_tensors(each).repeat(1), cycle_length=3).batch(2)


def random_map(data: Any) -> Any:
    return data.map(lambda each: tf.random.uniform([], seed=1) + tf.cast(each, tf.float32))


AT_THE_STEP: dict[str, Callable[[], Any]] = {
    "arrays": lambda: handler(X),
    "arrays, shuffled": lambda: handler(X, shuffle=True),
    "finite": lambda: handler(NUMBERS.batch(2)),
    "repeated": lambda: handler(NUMBERS.batch(2).repeat(), STEPS),
    "over all epochs": lambda: handler(NUMBERS.repeat().shuffle(5, 1).batch(2), STEPS),
    "shuffled": lambda: handler(NUMBERS.shuffle(12, 1).batch(2).prefetch(1)),
    "shuffled, repeated": lambda: handler(NUMBERS.shuffle(12, 1).batch(2).repeat(), STEPS),
    "shuffled once": lambda: handler(NUMBERS.shuffle(12, 1, reshuffle_each_iteration=False).batch(2)),
    "cached before": lambda: handler(NUMBERS.cache().shuffle(12, 1).batch(2)),
    "cached behind": lambda: handler(NUMBERS.shuffle(12, 1).cache().batch(2)),
    "batched again": lambda: handler(NUMBERS.shuffle(12, 1).batch(4).rebatch(2)),
    "without batches": lambda: handler(NUMBERS.shuffle(12, 1).batch(4).unbatch().batch(2).repeat(), STEPS),
    "interleaved": lambda: handler(files(NUMBERS)),
    "in parallel": lambda: handler(NUMBERS.map(lambda each: each + 1, tf.data.AUTOTUNE).batch(2)),
    "random map, repeated": lambda: handler(random_map(NUMBERS).batch(2).repeat(), STEPS),
}


@pytest.fixture(autouse=True)
def without_seed() -> Iterator[None]:
    tf.random.set_seed(None)
    yield
    tf.random.set_seed(None)


@pytest.mark.parametrize("name", AT_THE_STEP)
@pytest.mark.parametrize("place", [(0, 4), (1, 0), (2, 3), (3, 5)])
def test_an_interrupted_training_reads_on_where_it_was(name: str, place: tuple[int, int]) -> None:
    tf.random.set_seed(3)
    undisturbed = AT_THE_STEP[name]()
    assert kind_of(undisturbed).at == STEP
    expected = read(undisturbed, position_of(undisturbed))
    assert len(expected) == EPOCHS * STEPS
    tf.random.set_seed(3)
    resumed = AT_THE_STEP[name]()
    assert kind_of(resumed).digest == kind_of(undisturbed).digest
    rest = read(resumed, position_of(resumed, *expected[place][1:]), *place)
    assert rest == {at: told for at, told in expected.items() if at >= place}


def test_a_cache_in_another_file_is_the_same_input(tmp_path: Path) -> None:
    one, other = (kind_of(handler(NUMBERS.cache(str(tmp_path / name)).batch(2))) for name in ("one", "other"))
    assert (one.at, one.digest) == (STEP, other.digest)


class Numbers(keras.utils.Sequence):  # type: ignore[misc]
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        return X[2 * index : 2 * index + 2]


def deterministic(data: Any, value: bool) -> Any:
    options = tf.data.Options()
    options.deterministic = value
    return data.with_options(options)


def split() -> Any:
    shuffled = NUMBERS.shuffle(12, 1)
    part = shuffled.take(8)
    part.validation = shuffled.skip(8)
    return part


def plus_one(each: Any) -> Any:
    return each + 1


def py_function(each: Any) -> Any:
    return tf.py_function(plus_one, [each], tf.int64)


def from_generator() -> Any:
    return tf.data.Dataset.from_generator(lambda: iter(X), output_signature=tf.TensorSpec([], "int64"))


ANEW: dict[str, Callable[[], Any]] = {
    "`shuffle` has no seed": lambda: NUMBERS.shuffle(12),
    "`map` draws random numbers": lambda: random_map(NUMBERS),
}
UNKNOWN: dict[str, Callable[[], Any]] = {
    "another dataset reads the same `shuffle`, so its order depends on both": split,
    "the input shuffles both before and behind `cache`": lambda: NUMBERS.shuffle(12, 1).cache().shuffle(12, 2),
    "`cache` behind a `shuffle` may never be complete": lambda: NUMBERS.shuffle(12, 1).cache().take(8),
    "`cache` keeps random numbers of `map`": lambda: random_map(NUMBERS).cache(),
    "RepeatDataset behind a `shuffle` draws an order more than once in an epoch": lambda: NUMBERS.shuffle(12, 1).repeat(
        2
    ),
    "a `shuffle` behind a `shuffle` lets the first one draw its order later": lambda: NUMBERS.shuffle(12, 1).shuffle(
        3, 2
    ),
    "a function of InterleaveDataset has a ParallelMapDatasetV2 that may not be deterministic": lambda: (
        NUMBERS.interleave(lambda each: tf.data.Dataset.range(each).map(plus_one, 2, deterministic=False))
    ),
    "the option `deterministic` of the input is False": lambda: deterministic(NUMBERS, False),
    "ParallelMapDataset is not deterministic": lambda: NUMBERS.map(plus_one, 2, deterministic=False),
    "a function of FlatMapDataset uses GeneratorDataset": from_generator,
    "a function of MapDataset uses EagerPyFunc": lambda: NUMBERS.map(py_function),
    "a function of FilterDataset draws random numbers": lambda: NUMBERS.filter(
        lambda _: tf.random.uniform([], seed=1) < 1
    ),
    "a function of InterleaveDataset uses DummySeedGenerator": lambda: NUMBERS.interleave(
        lambda each: tf.data.Dataset.range(each).shuffle(9, 1)
    ),
    "DirectedInterleaveDataset is not known to be reproducible": lambda: tf.data.Dataset.sample_from_datasets(
        [NUMBERS, NUMBERS], seed=1
    ),
}


@pytest.mark.parametrize(
    ("reason", "make", "at"),
    [(reason, make, at) for table, at in ((ANEW, DRAWN_ANEW), (UNKNOWN, EPOCH)) for reason, make in table.items()],
)
def test_an_input_that_is_not_known_to_be_reproducible_says_why(reason: str, make: Callable[[], Any], at: str) -> None:
    made = make()
    kind = kind_of(handler(made.batch(2)))
    assert (kind.at, kind.reason) == (at, reason)


@pytest.mark.parametrize("input", [Numbers(), (X[:2] for _ in X)])
def test_what_python_makes_is_not_known_to_be_reproducible(input: Any) -> None:
    assert kind_of(handler(input, STEPS)).at == EPOCH


def test_arrays_that_are_shuffled_without_a_seed_are_drawn_anew() -> None:
    assert kind_of(handler(X, shuffle=True)).at == DRAWN_ANEW


def test_another_input_has_another_digest() -> None:
    others = [NUMBERS.batch(3), NUMBERS.map(plus_one).batch(2), tf.data.Dataset.range(13).batch(2)]
    of_data = [tf.data.Dataset.from_tensor_slices(each).batch(2) for each in (X, X + 1)]
    digests = {kind_of(handler(each)).digest for each in [NUMBERS.batch(2), *others, *of_data]}
    assert len(digests) == 6


def test_an_input_of_another_tensorflow_is_resumed_at_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    made = handler(NUMBERS.map(plus_one).batch(2))
    assert kind_of(made).at == STEP
    monkeypatch.setattr(map_op, "_MapDataset", type("Later", (), {}))
    assert (kind_of(made).at, "does not use _map_func" in kind_of(made).reason) == (EPOCH, True)


def test_another_reader_of_a_shuffled_input_is_noticed() -> None:
    input_position.watch_iterators()
    shuffled, noticed = NUMBERS.shuffle(12, 1).batch(2), []
    made = handler(shuffled)
    position = position_of(made, on_other_reader=lambda: noticed.append(True))
    for epoch, _ in epochs(made, position):
        iter(NUMBERS)
        if epoch == 2:
            assert not noticed
            iter(shuffled.take(1))
    iter(shuffled)
    assert noticed == [True]


@pytest.mark.parametrize("kind", ["shuffled", "cached before"])
def test_a_later_fit_reads_on_where_the_earlier_one_is_not_repeated(kind: str) -> None:
    undisturbed, restarted = AT_THE_STEP[kind](), AT_THE_STEP[kind]()
    read(undisturbed, position_of(undisturbed))
    input_position.pass_over(restarted._dataset, kind_of(restarted), EPOCHS)
    restarted._initial_epoch = EPOCHS
    assert not list(restarted.enumerate_epochs())
    later = [handler(each._dataset) for each in (undisturbed, restarted)]
    first, second = [read(each, position_of(each)) for each in later]
    assert first == second


def test_the_order_is_unknown_where_iterators_of_an_earlier_fit_do_not_tell_it() -> None:
    made = AT_THE_STEP["shuffled, repeated"]()
    input_position.pass_over(made._dataset, kind_of(made), EPOCHS)
    later = handler(made._dataset, STEPS)
    assert input_position.readers_of(later._dataset, kind_of(later)) == [input_position.UNKNOWN]


# Strategies.

STRATEGY = tf.distribute.MirroredStrategy(["CPU:0"])
INPUTS: dict[str, Callable[[], Any]] = {
    "tf.data": lambda: NUMBERS.batch(2),
    "distributed": lambda: STRATEGY.experimental_distribute_dataset(NUMBERS.batch(2)),
    "of a function": lambda: STRATEGY.distribute_datasets_from_function(lambda _: NUMBERS.batch(2)),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("anew", [True, False])
def test_the_first_iterator_begins_at_the_position_and_later_ones_at_the_start(kind: str, anew: bool) -> None:
    adapter = types.SimpleNamespace(should_recreate_iterator=lambda: anew)
    made = types.SimpleNamespace(_dataset=INPUTS[kind](), _adapter=adapter, _inferred_steps=None)

    def original(made: Any) -> Iterator[tuple[int, Any]]:
        iterator = iter(made._dataset)
        for epoch in (3, 4):
            iterator = iter(made._dataset) if anew else iterator
            yield epoch, iterator

    assert can_skip(made._dataset)
    assert examples_in_a_step(made._dataset, 2) == (4 if kind == "of a function" else 2)
    fit = LegacyFit(None, made)
    position = Position(fit, Kind(STEP), 1, lambda: None)
    fit.follow(position)
    position.drawn, position.made, seen = 3, 5, []
    for epoch, iterator in fit.epochs(original):
        seen.append((epoch, position.drawn, next(iterator).numpy().tolist()))
        position.drawn += 1
    assert seen == [(3, 3, [6, 7]), (4, 0, [0, 1]) if anew else (4, 4, [8, 9])]
    assert fit.next_position() == ({"drawn": 0, "made": 7} if anew else {"drawn": 5, "made": 5})


def test_what_cannot_be_skipped_or_counted() -> None:
    assert not can_skip(iter([]))
    assert examples_in_a_step(iter([]), 1) is None


def files_of(directory: Path) -> tf.data.Dataset:
    path = directory / "numbers"
    path.write_text("1\n2\n")
    return tf.data.Dataset.from_tensor_slices([str(path)]).interleave(tf.data.TextLineDataset, cycle_length=1)


@pytest.mark.parametrize(
    ("policy", "has_files", "shards", "why"),
    [
        ("AUTO", False, False, ""),
        ("DATA", True, False, ""),
        ("AUTO", True, False, "the files of the input are shared out"),
        ("FILE", True, False, "the files of the input are shared out"),
        ("OFF", False, False, "the program shares out the input itself"),
        ("AUTO", False, True, "the program shares out the input itself"),
    ],
)
def test_what_another_number_of_workers_reads(
    tmp_path: Path, policy: str, has_files: bool, shards: bool, why: str
) -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(tf.data.experimental.AutoShardPolicy, policy)
    made = files_of(tmp_path) if has_files else NUMBERS
    made = made.shard(2, 0) if shards else made
    assert kind_of(handler(made.batch(2).with_options(options))).shared_out == why


def test_an_input_that_a_function_makes_for_each_worker_is_shared_out_by_the_program() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    made = strategy.distribute_datasets_from_function(lambda _: NUMBERS.batch(2))
    assert input_kind.kind_of(made, False).shared_out == input_kind.BY_PROGRAM

"""The state of a model of tf_keras, copied and restored, and inputs that are skipped, with the real TensorFlow."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tftraining.launch.in_user_process.memory_backup import input_position
from tftraining.launch.in_user_process.memory_backup.checkpoint_state import CheckpointState
from tftraining.launch.in_user_process.memory_backup.copier import Unsupported
from tftraining.launch.in_user_process.memory_backup.input_position import Position
from tftraining.launch.in_user_process.memory_backup.keras_state import State

X = np.random.default_rng(1).random((64, 8)).astype("f")


def model(width: int = 16, optimizer: Any = "adam") -> Any:
    keras.backend.clear_session()
    layers = keras.layers
    made = keras.Sequential([layers.Input((8,)), layers.Dense(width), layers.BatchNormalization(), layers.Dense(1)])
    made.compile(optimizer, "mse")
    made.optimizer.build(made.trainable_variables)
    return made


def train(made: Any, epochs: int) -> None:
    made.fit(X, X[:, :1], batch_size=16, epochs=epochs, shuffle=False, verbose=0)


def values(made: Any) -> list[Any]:
    return [each.numpy() for each in [*made.variables, *made.optimizer.variables]]


def aligned(size: int) -> Any:
    """A buffer whose addresses TensorFlow likes, as those of a mapped file are."""
    raw = np.zeros(size + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][:size]


@pytest.fixture
def policy() -> Iterator[Callable[[str], None]]:
    """A function that sets the precision of all layers, for this test."""
    yield keras.mixed_precision.set_global_policy
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize(
    "precision",
    ["float32", *(pytest.param(each, marks=pytest.mark.slow_fault) for each in ("mixed_float16", "mixed_bfloat16"))],
)
def test_what_is_restored_trains_on_as_if_nothing_had_been(policy: Callable[[str], None], precision: str) -> None:
    policy(precision)
    first = model()
    train(first, 2)
    state = State(first)
    buffer = aligned(state.size)
    state.copy_to(state.views(buffer, 0))
    train(first, 1)

    second = model()
    restored = State(second)
    assert restored.signature() == state.signature()
    restored.restore_from(restored.views(buffer, 0))
    buffer[:] = 0  # the next copy: no variable may share the memory
    assert int(second._train_counter.numpy()) == 8
    train(second, 1)
    for one, other in zip(values(first), values(second), strict=True):
        np.testing.assert_array_equal(one, other)


def test_another_model_has_another_signature(policy: Callable[[str], None]) -> None:
    signature = State(model()).signature()
    assert State(model()).signature() == signature
    assert State(model(17)).signature() != signature
    assert State(model(optimizer="sgd")).signature() != signature
    policy("float64")
    assert State(model()).signature() != signature


def test_state_that_is_no_variable_is_named() -> None:
    made = model()
    made.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    with pytest.raises(Unsupported, match="MutableHashTable has state that is no variable"):
        State(made)


def test_variables_that_come_later_are_noticed() -> None:
    made = model()
    state = State(made)
    train(made, 1)
    assert not state.grown()
    made.late = tf.Variable(1.0)
    assert state.grown()


def test_a_save_of_a_checkpoint_before_the_first_copy_creates_no_variable(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(value=tf.Variable(1.0))
    state = CheckpointState(checkpoint)
    tf.train.CheckpointManager(checkpoint, str(tmp_path), 1).save()
    assert not state.grown()
    checkpoint.late = tf.Variable(1.0)
    assert state.grown()


def test_an_optimizer_whose_variables_come_with_the_first_step_is_noticed() -> None:
    made = model()
    made.compile(keras.optimizers.legacy.Adam(), "mse")
    state = State(made)
    train(made, 1)
    assert state.grown()


DATA = tf.data.Dataset.range(100)
INPUTS: dict[str, Callable[[], Any]] = {
    "tf.data": lambda: DATA.batch(2),
    "distributed": lambda: tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(DATA.batch(2)),
    "of a function": lambda: tf.distribute.MirroredStrategy(["CPU:0"]).distribute_datasets_from_function(
        lambda _: DATA.batch(2)
    ),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("anew", [True, False])
def test_the_first_iterator_begins_at_the_position_and_later_ones_at_the_start(kind: str, anew: bool) -> None:
    adapter = types.SimpleNamespace(should_recreate_iterator=lambda: anew)
    handler = types.SimpleNamespace(_dataset=INPUTS[kind](), _adapter=adapter)

    def epochs(handler: Any) -> Any:
        iterator = iter(handler._dataset)
        for epoch in (3, 4):
            iterator = iter(handler._dataset) if anew else iterator
            yield epoch, iterator

    assert input_position.supported(handler)
    position = Position(7, 0, replicas=1)
    assert position.follows(handler)
    assert not position.follows(types.SimpleNamespace())
    seen = []
    for epoch, iterator in position.epochs(epochs, handler):
        seen.append((epoch, position.drawn, next(iterator).numpy().tolist()))
        position.drawn += 1
    assert seen[0] == (3, 7, [14, 15])
    assert seen[1] == ((4, 0, [0, 1]) if anew else (4, 8, [16, 17]))
    assert position.next_epoch() == ({"drawn": 0, "made": 4} if anew else {"drawn": 9, "made": 1})


def test_a_resumed_epoch_is_shuffled_as_it_was() -> None:
    def handler() -> Any:
        data = tf.distribute.MirroredStrategy(["CPU:0"]).experimental_distribute_dataset(DATA.shuffle(100, 3).batch(2))
        return types.SimpleNamespace(
            _dataset=data, _adapter=types.SimpleNamespace(should_recreate_iterator=lambda: True)
        )

    def epochs(handler: Any) -> Any:
        iter(handler._dataset)
        for epoch in range(4):
            yield epoch, iter(handler._dataset)

    position, whole, seen = Position(0, 0, replicas=1), handler(), {}
    assert position.follows(whole)
    for epoch, iterator in position.epochs(epochs, whole):
        seen[epoch, position.made] = [next(iterator).numpy().tolist() for _ in range(5)]
    assert sorted(seen) == [(0, 2), (1, 3), (2, 4), (3, 5)]

    resumed, rest = Position(3, 4, replicas=1), handler()  # in epoch 2
    assert resumed.follows(rest)
    again = [[next(iterator).numpy().tolist() for _ in range(2)] for _, iterator in resumed.epochs(epochs, rest)]
    assert again[0] == seen[2, 4][3:]
    assert again[1] == seen[3, 5][:2]


def test_what_cannot_be_skipped() -> None:
    assert not input_position.supported(types.SimpleNamespace(_dataset=iter([])))

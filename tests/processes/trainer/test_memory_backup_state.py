"""The state of a model of tf_keras, copied and restored, with the real TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras as keras_3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tftraining.launch.in_user_process.memory_backup import variable_count
from tftraining.launch.in_user_process.memory_backup.callback_state import CallbackStates
from tftraining.launch.in_user_process.memory_backup.checkpoint_state import CheckpointState
from tftraining.launch.in_user_process.memory_backup.keras_state import METRICS, FitState
from tftraining.launch.in_user_process.memory_backup.random_numbers import RandomNumbers
from tftraining.launch.in_user_process.memory_backup.variable_values import (
    FETCHED,
    OWN,
    TOTALS,
    Unsupported,
    VariableValues,
    way_of_sums,
)

X = np.random.default_rng(1).random((64, 8)).astype("f")


def model(width: int = 16, optimizer: Any = "adam") -> Any:
    keras.backend.clear_session()
    layers = keras.layers
    made = keras.Sequential([layers.Input((8,)), layers.Dense(width), layers.BatchNormalization(), layers.Dense(1)])
    made.compile(optimizer, "mse")
    return made


def train(made: Any, epochs: int) -> None:
    made.fit(X, X[:, :1], batch_size=16, epochs=epochs, shuffle=False, verbose=0)


def state_of(made: Any, *callbacks: Any) -> FitState:
    """The state as a `fit` of this model begins."""
    variable_count.extend()
    of_callbacks = CallbackStates(keras.callbacks.CallbackList(list(callbacks), model=made), print)
    return FitState(made, of_callbacks, RandomNumbers(), epochs=5)


def copied(state: FitState, *, members: int = 1) -> Any:
    """A copy, made by one of so many members that are all alike."""
    state.complete()
    buffer = aligned(state.size)
    state.gather(lambda sums: [members * each for each in sums])
    state.copy_to(state.views(buffer, 0))
    return buffer


def restore(made: Any, state: FitState, buffer: Any, head: dict[str, Any], *ways: bool) -> str:
    """Restore at the begin of `fit`, and late variables when its step is traced; what begins anew."""
    state.restore_from(state.views(buffer, 0), *(ways or (True, True)))
    made.evaluate(X[:3], X[:3, :1], verbose=0)  # creates the metrics
    return state.restore_late(head)


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
    state = state_of(first)
    train(first, 2)
    buffer = copied(state)
    train(first, 1)

    second = model()
    restored = state_of(second)
    assert restored.signature() == state.signature()
    assert restore(second, restored, buffer, state.late()) == ""
    buffer[:] = 0  # the next copy: no variable may share the memory
    assert int(second._train_counter.numpy()) == 8
    train(second, 1)
    for one, other in zip(values(first), values(second), strict=True):
        np.testing.assert_array_equal(one, other)


class Lasting(keras.metrics.Metric):  # type: ignore[misc]
    """A metric that keeps its value over the epochs."""

    def __init__(self) -> None:
        super().__init__(name="lasting")
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, truth: Any, predicted: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(1.0)

    def result(self) -> Any:
        return self.total

    def reset_state(self) -> None:
        pass


@pytest.mark.parametrize(
    ("own", "all_own", "members", "factor", "anew"),
    [
        (True, True, 2, 1, ""),
        (True, False, 2, 2, ""),  # of one process here: a checkpoint would have the sum, too
        (False, False, 2, 2, ""),
        (False, False, 0, 0, METRICS),  # a copy at a stop that was announced has no totals
    ],
)
def test_metrics_go_on_inside_an_epoch(own: bool, all_own: bool, members: int, factor: int, anew: str) -> None:
    first, second = model(), model()
    first.lasting, second.lasting = Lasting(), Lasting()
    state, restored = state_of(first), state_of(second)
    train(first, 2)
    if not members:
        state.gather = lambda totals: None  # type: ignore[method-assign]
    buffer = copied(state, members=members)
    assert not restored.has_late(state.late())
    assert restore(second, restored, buffer, state.late(), own, all_own) == anew
    assert float(first.metrics[0].total.numpy()) > 0
    assert [each.numpy() for each in second.metrics[0].variables] == [
        factor * each.numpy() for each in first.metrics[0].variables
    ]


def test_keras_own_metrics_alone_are_worth_no_collective_for_each_copy() -> None:
    first, second = model(), model()
    state, restored = state_of(first), state_of(second)
    train(first, 2)
    state.complete()
    state.gather(lambda sums: pytest.fail("a collective"))
    buffer = aligned(state.size)
    state.copy_to(state.views(buffer, 0))
    assert restore(second, restored, buffer, state.late(), False, False) == METRICS


class WithLasting(keras.Sequential):  # type: ignore[misc]
    """Its step uses none of Keras' own metrics, so only an evaluation creates their variables."""

    def train_step(self, data: Any) -> dict[str, Any]:
        self.lasting.update_state(*data)
        return {}


def with_lasting() -> Any:
    made = WithLasting([keras.layers.Input((8,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", metrics=["mae"])
    return made


def test_a_metric_that_lasts_is_restored_where_no_evaluation_has_made_those_of_keras() -> None:
    first, second = with_lasting(), with_lasting()
    state, restored = state_of(first), state_of(second)
    first.lasting = Lasting()
    first.lasting.total.assign(7.0)
    first.evaluate(X[:3], X[:3, :1], verbose=0)
    buffer = copied(state)
    restored.restore_from(restored.views(buffer, 0), True, True)
    assert restored.awaits_late(state.late()) is False, "metrics alone are no state without which no step is right"
    assert restored.restore_late(state.late()) == METRICS
    second.lasting = Lasting()  # by the first step
    assert not restored.has_late(state.late())
    assert restored.restore_late(state.late()) == ""
    assert float(second.lasting.total) == 7.0
    second.evaluate(X[:3], X[:3, :1], verbose=0)
    assert restored.restore_late(state.late()) == ""


def test_a_variable_that_a_callback_makes_at_the_begin_of_an_epoch_is_awaited() -> None:
    first, second = model(), model()
    state, restored = state_of(first), state_of(second)
    first.late = tf.Variable(3.0, name="late")
    buffer = copied(state)
    restored.restore_from(restored.views(buffer, 0), True, True)
    assert restored.awaits_late(state.late())
    second.late = tf.Variable(0.0, name="late")
    assert not restored.awaits_late(state.late())
    assert restored.restore_late(state.late()) == ""
    assert float(second.late) == 3.0


def test_behind_the_begin_of_an_epoch_small_values_come_back_and_large_ones_only_if_it_is_asked_for() -> None:
    made = model(optimizer=keras.optimizers.Adam(0.5))
    state = state_of(made)
    train(made, 1)
    buffer = copied(state)
    trained = made.layers[0].kernel.numpy()
    for everything in (False, True):
        state.restore_from(state.views(buffer, 0), True, True)
        made.optimizer.learning_rate.assign(0.25)
        made.layers[0].kernel.assign(0 * trained)
        state.restore_again(state.late(), everything=everything)
        assert float(made.optimizer.learning_rate.numpy()) == 0.5
    np.testing.assert_array_equal(made.layers[0].kernel.numpy(), trained)


def test_only_values_that_last_are_judged() -> None:
    made = model()
    state = state_of(made)
    train(made, 1)
    state.complete()
    made.metrics[0].total.assign(float("nan"))  # the mean loss, after one bad step
    assert state.is_finite()
    made.layers[0].kernel.assign(float("nan") * made.layers[0].kernel)
    assert not state.is_finite()


def test_a_history_without_room_begins_anew(capsys: pytest.CaptureFixture[str]) -> None:
    made, history = model(), keras.callbacks.History()
    state = state_of(made, history)
    train(made, 1)
    history.history = {"loss": [0.1] * 30_000}
    copied(state)
    assert capsys.readouterr().out == "History\n"


SUMS = [OWN, TOTALS, FETCHED]


def test_the_sums_of_replicas() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        on_read = {"synchronization": tf.VariableSynchronization.ON_READ, "trainable": False}
        total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM, **on_read)
        mean = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN, **on_read)

    def parts(each: Any) -> list[float]:
        return [float(part.numpy()) for part in strategy.experimental_local_results(each)]

    for each in (total, mean):
        for number, part in enumerate(strategy.experimental_local_results(each)):
            part.assign(1.0 + 2 * number)
    state = VariableValues([total, mean], strategy)
    assert state.local_sums() == [4.0]
    buffer = aligned(state.size)
    views = state.views(buffer, 0)
    state.copy_to(views)
    state.set_totals(views, [10.0])  # of four replicas, two of them elsewhere
    state._replicas = 4
    for way, shares in zip(SUMS, ([1.0, 3.0], [2.5, 2.5], [0.0, 0.0]), strict=True):
        state.restore_from(views, way)
        assert parts(total) == shares
        assert parts(mean) == [1.0, 3.0]


def test_how_a_member_gets_the_sums_back() -> None:
    told = {(own, total): way_of_sums(own, False, has_totals=total) for own in (True, False) for total in (True, False)}
    assert told == {(True, True): TOTALS, (False, True): TOTALS, (True, False): OWN, (False, False): FETCHED}
    assert way_of_sums(True, True, has_totals=True) == OWN


def test_another_model_has_another_signature(policy: Callable[[str], None]) -> None:
    signature = state_of(model()).signature()
    assert state_of(model()).signature() == signature
    assert state_of(model(17)).signature() != signature
    assert state_of(model(optimizer="sgd")).signature() != signature
    policy("float64")
    assert state_of(model()).signature() != signature


def test_state_that_is_no_variable_is_named() -> None:
    made = model()
    made.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    with pytest.raises(Unsupported, match="MutableHashTable has state that is no variable"):
        state_of(made)


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (lambda: tf.Variable(""), "has the type string"),  # false as a boolean
        (lambda: tf.Variable(["a", "b"]), "has the type string"),
        (lambda: keras_3.optimizers.Adam(keras_3.optimizers.schedules.CosineDecay(0.1, 9)), ""),
        (lambda: keras_3.Variable("zeros", shape=(2,)), ""),
    ],
    ids=["empty string", "strings", "optimizer of Keras 3", "variable of Keras 3"],
)
def test_what_a_checkpoint_tracks(made: Callable[[], Any], match: str) -> None:
    checkpoint = tf.train.Checkpoint(tracked=made())
    if not match:
        assert CheckpointState(checkpoint).size > 0
        return
    with pytest.raises(Unsupported, match=match):
        CheckpointState(checkpoint)


def member(number: int) -> tuple[Any, CheckpointState]:
    """A model of Keras 3 in a gang of two, with moving statistics of this member's own, and its state."""
    gang = SimpleNamespace(_in_multi_worker_mode=lambda: True, _num_workers=2, _id_in_cluster=number)
    strategy = SimpleNamespace(extended=gang, num_replicas_in_sync=2, experimental_local_results=lambda each: (each,))
    layer = keras_3.layers.BatchNormalization()
    layer.build((None, 3))
    layer.moving_mean.assign([number, 2.0, 3.0])
    layer.gamma.assign([number] * 3)
    layer.gamma.value.distribute_strategy = strategy
    return layer, CheckpointState(tf.train.Checkpoint(layer=layer))


def test_a_member_has_its_own_moving_statistics_in_the_copy_of_another_one() -> None:
    (_, chief), (other, state) = member(0), member(1)
    for each in (chief, state):
        each.complete()
    chief.gather(lambda own: [one + two for one, two in zip(own, state._apart.rows(), strict=True)])  # type: ignore[union-attr]
    buffer = bytearray(chief.size)
    chief.copy_to(chief.views(buffer, 0))
    other.moving_mean.assign([7.0, 7.0, 7.0])
    state.restore_from(state.views(buffer, 0), own=False, all_own=False)
    assert other.gamma.numpy().tolist() == [0, 0, 0]
    assert other.moving_mean.numpy().tolist() == [1, 2, 3]


def member_of_tf_keras(number: int, has_fit: bool) -> tuple[Any, Any]:
    """The moving mean of a model of tf_keras that keeps it itself in a gang of two, and the state."""
    gang = SimpleNamespace(_in_multi_worker_mode=lambda: True, _num_workers=2, _id_in_cluster=number)
    strategy = SimpleNamespace(extended=gang, num_replicas_in_sync=2, experimental_local_results=lambda each: (each,))
    made = model(3)
    mean = made.layers[1].moving_mean
    assert mean.synchronization == tf.VariableSynchronization.ON_READ
    mean.assign([number, 2.0, 3.0])
    if has_fit:
        made._distribution_strategy = strategy
        return mean, state_of(made)
    mean.distribute_strategy = strategy
    return mean, CheckpointState(tf.train.Checkpoint(model=made))


@pytest.mark.parametrize("has_fit", [True, False])
@pytest.mark.parametrize("leaves", [False, True], ids=["", "a member of an earlier version"])
def test_a_member_has_its_own_averages_of_tf_keras_in_the_copy_of_another_one(has_fit: bool, leaves: bool) -> None:
    (_, chief), (mean, state) = member_of_tf_keras(0, has_fit), member_of_tf_keras(1, has_fit)
    for each in (chief, state):
        if leaves:
            each.leave_averages()
        each.complete()
    assert chief.gathers() is not leaves
    if chief.gathers():
        chief.gather(lambda own: [one + two for one, two in zip(own, state._apart.rows(), strict=True)])
    buffer = aligned(chief.size)
    chief.copy_to(chief.views(buffer, 0))
    mean.assign([7.0, 7.0, 7.0])
    state.restore_from(state.views(buffer, 0), own=False, all_own=False)
    assert mean.numpy().tolist() == [0 if leaves else 1, 2, 3]


def test_variables_that_come_later_are_noticed() -> None:
    made = model()
    state = state_of(made)
    train(made, 1)
    state.complete()
    train(made, 1)
    assert not state.grown()
    elsewhere, before = tf.Variable(1.0), variable_count.created()  # tracked by nothing
    assert not state.grown()
    made.late = tf.Variable(1.0)
    made.late.assign_add(1.0)
    assert variable_count.created() == before + 1
    assert state.grown()
    del elsewhere


def test_a_save_of_a_checkpoint_before_the_first_copy_creates_no_variable(tmp_path: Path) -> None:
    checkpoint = tf.train.Checkpoint(value=tf.Variable(1.0))
    state = CheckpointState(checkpoint)
    tf.train.CheckpointManager(checkpoint, str(tmp_path), 1).save()
    assert not state.grown()
    checkpoint.late = tf.Variable(1.0)
    assert state.grown()

"""Random numbers that go on after a restart, byte for byte those of TensorFlow; and the seeds that `shuffle` gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.python.data.ops import shuffle_op

from tftraining.launch.in_user_process.memory_backup import random_numbers, shuffle_seed
from tftraining.launch.in_user_process.memory_backup.random_numbers import RandomNumbers

DRAW: dict[str, Callable[..., Any]] = {
    "uniform": tf.random.uniform,
    "normal": tf.random.normal,
    "truncated": tf.random.truncated_normal,
}


@pytest.fixture
def counted() -> Iterator[RandomNumbers]:
    """The counters of a `fit` that runs."""
    random_numbers.extend()
    numbers = RandomNumbers()
    numbers.begin()
    yield numbers
    numbers.end()


def drawn(draw: Callable[[], Any], steps: int, name: str = "train_function") -> list[bytes]:
    """What so many steps of a function of this name draw."""
    tf.random.set_seed(5)
    draw.__name__ = name
    step = tf.function(draw)
    return [step().numpy().tobytes() for _ in range(steps)]


@pytest.mark.parametrize("name", DRAW)
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_the_numbers_are_those_of_tensorflow_and_go_on(counted: RandomNumbers, name: str, kind: str) -> None:
    def draw() -> Any:
        return tf.concat([DRAW[name]([3, 7], seed=seed, dtype=kind) for seed in (1, 2)], 0)

    expected = drawn(draw, 4, "another_function")
    assert len(set(expected)) == 4
    assert drawn(draw, 2) == expected[:2]
    resumed = RandomNumbers()
    resumed.resume(counted.offsets())
    resumed.begin()
    assert drawn(draw, 2) == expected[2:]
    resumed.end()


def in_a_loop() -> Any:
    """Three steps at a time, as with `steps_per_execution`."""
    found = tf.zeros([3, 5])
    for place in tf.range(3):
        found = tf.tensor_scatter_nd_update(found, [[place]], [tf.random.normal([5], seed=1)])
    return found


def test_in_a_loop_they_are_in_order_where_those_of_tensorflow_are_in_any(counted: RandomNumbers) -> None:
    single = drawn(lambda: tf.random.normal([5], seed=1), 9, "another_function")
    assert b"".join(drawn(in_a_loop, 3)) == b"".join(single)


def test_they_are_the_same_with_a_seed_of_the_program(counted: RandomNumbers) -> None:
    def draw() -> Any:
        return tf.random.uniform([2]) + tf.random.uniform([2])

    assert drawn(draw, 3) == drawn(draw, 3, "another_function")
    assert len(counted.offsets()) == 2


def of_another_function() -> Any:
    return tf.function(lambda: tf.random.uniform([2], seed=1))()  # as with `jit_compile`


def of_another_operation() -> Any:
    return tf.random.shuffle(tf.range(9), seed=1)


@pytest.mark.parametrize("draw", [of_another_function, of_another_operation])
def test_what_is_left_alone_is_told(counted: RandomNumbers, draw: Callable[[], Any]) -> None:
    drawn(draw, 2)
    assert counted.offsets() == []
    assert counted.begins_anew


def test_more_operations_than_a_copy_has_room_for_are_left_alone(
    counted: RandomNumbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_numbers, "MOST", 2)
    drawn(lambda: tf.add_n([tf.random.uniform([2], seed=1 + each) for each in range(3)]), 1)
    assert (len(counted.offsets()), counted.why) == (2, "the step has more than 2 of them")


def test_a_model_that_is_saved_while_it_trains_has_no_counters(counted: RandomNumbers, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(tf.ones([8, 4]), tf.ones([8, 1]), batch_size=2, verbose=0)
    assert counted.offsets()
    model.save(tmp_path / "model", save_format="tf")
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    x = tf.ones([1, 4])
    assert loaded(x, training=False).numpy() == model(x).numpy()
    assert len({float(loaded(x, training=True)[0, 0]) for _ in range(20)}) > 1  # it drops, and needs no counter


# Seeds of `shuffle`.


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[int]]]:
    """A function that gives the order of a shuffled dataset in a job with this UID."""
    begin = shuffle_op._ShuffleDataset.__init__

    def order(uid: str, *seeds: int | None, number: int = 0) -> list[int]:
        monkeypatch.setattr(shuffle_op._ShuffleDataset, "__init__", begin)
        shuffle_seed.install(json.dumps({"uid": uid}), "")
        data = [tf.data.Dataset.range(50).shuffle(50, *seeds) for _ in range(2)]
        return [int(each) for each in data[number]]

    yield order
    tf.random.set_seed(None)


def test_a_shuffle_without_a_seed_has_one_order_in_a_job_and_another_in_the_next(in_job: Callable[..., Any]) -> None:
    tf.random.set_seed(None)
    order = in_job("one")
    assert order == in_job("one")
    assert order not in (in_job("two"), in_job("one", number=1))
    assert in_job("one", 3) == in_job("two", 3)
    assert in_job("") != in_job("")
    tf.random.set_seed(1)
    seeded = in_job("one")
    tf.random.set_seed(1)
    assert in_job("two") == seeded

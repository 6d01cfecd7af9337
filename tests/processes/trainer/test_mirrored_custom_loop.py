"""The custom loop on two logical devices: what it computes is what one device computes, in every style.

Each training here takes a few seconds on digits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras as keras_3
import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from tests.support.trainer.programs import Program, check_logs, check_picture, history, run
from tftraining.examples import mirrored_custom_loop as program
from tftraining.lib import data, device_setup
from tftraining.lib.checkpoints import restored
from tftraining.lib.custom_loop import Training
from tftraining.lib.data import Data, Examples
from tftraining.lib.input_pipeline import Order, epoch_batches, plain_batches
from tftraining.lib.options import STYLES, UsageError
from tftraining.lib.schedule import learning_rate
from tftraining.lib.train_step import evaluate, metrics_of_training, per_example_losses, scaled_loss

NAME = "mirrored_custom_loop"
DECAY = 0.01
GOOD = 0.9  # test accuracy after 5 epochs of digits; an undisturbed run reaches 0.93


@pytest.fixture(autouse=True)
def seeded() -> None:
    device_setup.set_seed(1)


@pytest.fixture(scope="module")
def digits() -> Data:
    return data.load("digits")


def make_training(devices: int, *arguments: str) -> Training:
    options = program.parse(["--batch-size", str(64 // devices), *arguments])
    strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(devices)])
    device_setup.set_seed(1)
    return program.make_training(strategy, data.load("digits").train, options)


def weights_after_an_epoch(examples: Examples, training: Training, style: str) -> list[np.ndarray]:
    order = Order(64, seed=3)
    training.train(style, epoch_batches(examples, order, 0), order.steps(len(examples)))
    return [weights.numpy() for weights in training.train_step.model.trainable_variables]


@pytest.fixture(scope="module")
def one(digits: Data) -> list[np.ndarray]:
    """What one device computes."""
    return weights_after_an_epoch(digits.train, make_training(1, "--weight-decay", str(DECAY)), "dataset")


@pytest.mark.parametrize("style", STYLES)
def test_two_devices_train_what_one_does(digits: Data, one: list[np.ndarray], style: str) -> None:
    """With a loss of the weights, and with a last batch that is smaller than the others (1,500 = 23 x 64 + 28)."""
    two = weights_after_an_epoch(digits.train, make_training(2, "--weight-decay", str(DECAY)), style)
    for first, second in zip(one, two, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)


def test_accumulated_gradients_train_the_same(digits: Data, one: list[np.ndarray]) -> None:
    """Four parts of a batch, one after the other, on each of two devices; of a smaller last batch, too."""
    training = make_training(2, "--weight-decay", str(DECAY), "--accumulate", "4")
    for first, second in zip(one, weights_after_an_epoch(digits.train, training, "epoch"), strict=True):
        np.testing.assert_allclose(first, second, atol=1e-5)


def test_the_learning_rate_follows_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gang with one of its four workers, with both Keras versions."""
    monkeypatch.setenv("TFTRAINING_WORKERS", "1")
    monkeypatch.setenv("TFTRAINING_MAX_WORKERS", "4")
    arguments = ["--learning-rate", "0.4", "--scale-learning-rate"]
    for each in (keras, keras_3):

        def rates(*options: str, library: Any = each) -> list[float]:
            schedule = learning_rate(program.parse([*arguments, *options]), 100, library)
            return [round(float(schedule(step)), 4) for step in (0, 5, 10, 55, 100)]

        assert rates() == [0.1, 0.1, 0.1, 0.1, 0.1]
        assert rates("--warmup-steps", "10") == [0.0, 0.05, 0.1, 0.1, 0.1]
        assert rates("--warmup-steps", "10", "--schedule", "cosine") == [0.0, 0.05, 0.1, 0.05, 0.0]
        assert rates("--schedule", "cosine")[0] == 0.1
    assert learning_rate(program.parse(["--learning-rate", "0.4"]), 100, keras) == 0.4


def test_the_loss_is_that_of_a_single_device(digits: Data) -> None:
    """Its examples and its weights: the mean over the batch, and the loss of the weights once."""
    training = make_training(2, "--weight-decay", str(DECAY))
    images, labels = digits.train.images[:64], digits.train.labels[:64]
    model = training.train_step.model
    squares = sum(float(tf.reduce_sum(each**2)) for each in model.trainable_variables if len(each.shape) > 1)
    expected = float(tf.reduce_mean(per_example_losses(model(images), labels))) + DECAY * squares
    batches = tf.data.Dataset.from_tensors((images, labels))
    found = metrics_of_training(training.train("dataset", batches, 1), 1)["loss"]
    assert found == pytest.approx(expected, rel=1e-5)


def test_a_training_is_on_the_chosen_devices() -> None:
    devices = device_setup.chosen([f"CPU:{index}" for index in range(8)], [0, 2])
    assert tf.distribute.MirroredStrategy(devices).extended.worker_devices == tuple(
        f"/job:localhost/replica:0/task:0/device:{device}" for device in ("CPU:0", "CPU:2")
    )
    assert device_setup.chosen(["GPU:0", "GPU:1"], None) == ["GPU:0", "GPU:1"]
    with pytest.raises(UsageError, match="--devices: there is no device 2, only 0 to 1"):
        device_setup.chosen(["GPU:0", "GPU:1"], [0, 2])


def test_the_parts_of_the_loss_add_up() -> None:
    losses = tf.constant([1.0, 2.0, 3.0, 6.0])
    parts = [float(scaled_loss(losses[:3], [], 4)), float(scaled_loss(losses[3:], [], 4))]
    assert sum(parts) == pytest.approx(3.0)


def replica_losses(values: list[list[float]]) -> tuple[tf.distribute.Strategy, tf.distribute.DistributedValues]:
    """What each of two replicas computes of its share of a batch of four examples."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    losses = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group])
    )
    return strategy, strategy.run(lambda each: scaled_loss(each, [], 4), args=(losses,))


def test_the_mean_of_the_means_is_not_the_loss() -> None:
    """The parts of the loss are divided by the size of the whole batch already: they are summed, not averaged."""
    strategy, parts = replica_losses([[2.0, 3.0], [4.0, 5.0]])
    assert [float(part) for part in strategy.experimental_local_results(parts)] == [1.25, 2.25]
    assert float(strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)) == 3.5
    assert float(strategy.reduce(tf.distribute.ReduceOp.MEAN, parts, axis=None)) == 1.75


def test_an_example_counts_by_its_weight() -> None:
    losses, weights = tf.constant([1.0, 2.0, 3.0, 6.0]), tf.constant([1.0, 0.0, 2.0, 1.0])
    parts = [float(scaled_loss(losses[cut], [], 4, weights[cut])) for cut in (slice(0, 3), slice(3, 4))]
    assert parts == pytest.approx([7 / 4, 6 / 4])


def test_an_example_with_several_labels_has_the_mean_of_their_losses() -> None:
    """One label for each of 2 x 3 pixels; the loss is that of Keras."""
    logits, labels = tf.random.stateless_normal((4, 2, 3, 5), (1, 2)), tf.constant(np.arange(24).reshape(4, 2, 3) % 5)
    losses = per_example_losses(logits, labels)
    assert losses.shape == (4,)
    expected = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
    assert float(scaled_loss(losses, [], 4)) == pytest.approx(float(expected), rel=1e-5)


def test_weights_of_zero_train_nothing(digits: Data) -> None:
    """The third part of a batch is the weights of its examples, on both devices."""
    training = make_training(2)
    before = [weights.numpy() for weights in training.train_step.model.trainable_variables]
    images, labels = digits.train.images[:64], digits.train.labels[:64]
    training.train("dataset", tf.data.Dataset.from_tensors((images, labels, np.zeros(64, np.float32))), 1)
    for first, second in zip(before, training.train_step.model.trainable_variables, strict=True):
        np.testing.assert_array_equal(first, second.numpy())


def test_a_checkpoint_is_restored_without_strategy(digits: Data, tmp_path: Path) -> None:
    """Same predictions, and the same accuracy on the test data."""
    training = make_training(2)
    weights_after_an_epoch(digits.train, training, "epoch")
    model = training.train_step.model
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    alone = restored(program.make_model((8, 8, 1)), path)
    np.testing.assert_allclose(alone(digits.test.images), model(digits.test.images), atol=1e-5)
    batches = plain_batches(digits.test, 100)
    measured, tested = evaluate(alone, batches), training.test(training.distributed(batches))
    assert measured == pytest.approx(tested, rel=1e-5)


@pytest.mark.slow_fault
def test_a_killed_training_ends_as_one_that_was_left_alone(tmp_path: Path) -> None:
    """To the last digit: the same seed gives the same training, and a resumed one has the same data."""
    arguments = ("--logical-devices", "2", "--batch-size", "32", "--epochs", "5")
    with Program(NAME, tmp_path / "killed", *arguments) as killed:
        killed.wait_for_line("epoch 3/")
        killed.kill()
    with Program(NAME, tmp_path / "killed", *arguments) as resumed:
        result = resumed.result()
        assert result["resumed_from"] in (2, 4)
        assert resumed.lines()[1].startswith(f"resumed from epoch {result['resumed_from']} ")
    pictures = ("--plot", str(tmp_path / "curves.png"), "--logdir", str(tmp_path / "logs"), "--profile-steps", "10:20")
    undisturbed = run(NAME, tmp_path / "undisturbed", *arguments, *pictures)
    assert undisturbed["accuracy"] == result["accuracy"] > GOOD
    assert history(tmp_path / "undisturbed") == history(tmp_path / "killed")
    check_picture(tmp_path / "curves.png", tmp_path / "undisturbed")
    check_logs(tmp_path / "logs")


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    "option",
    [
        ("--jit", "--accumulate", "4"),
        ("--precision", "mixed_bfloat16", "--schedule", "cosine", "--warmup-steps", "10", "--epochs", "10"),
        ("--style", "iterator", "--devices", "1"),
    ],
)
def test_it_trains_with_each_option(tmp_path: Path, option: tuple[str, ...]) -> None:
    result = run(NAME, tmp_path, "--logical-devices", "2", "--batch-size", "32", "--epochs", "5", *option)
    assert result["accuracy"] > GOOD
    assert result["devices"] == (1 if "--devices" in option else 2)

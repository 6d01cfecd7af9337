"""The perceptron on a mesh: layouts, what every layout trains, and the weights that come out whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras
from tensorflow.experimental import dtensor

from tests.support.trainer.programs import Program, check_picture, history, run
from tftraining.examples import dtensor_mlp as program
from tftraining.lib import data, mesh
from tftraining.lib.data import Data
from tftraining.lib.options import UsageError

NAME = "dtensor_mlp"
SIZES = (64, 32, 16, 10)
STEPS = 5
GOOD = 0.85  # test accuracy after 5 epochs of digits; an undisturbed run reaches 0.87
CPUS = [f"CPU:{index}" for index in range(8)]
SERVE = """
import sys
import numpy as np
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
np.save(sys.argv[3], served(images=tf.constant(np.load(sys.argv[2])))["logits"])
"""


@pytest.fixture(scope="module")
def digits() -> Data:
    return data.load("digits")


def make_training(model_parts: int, *arguments: str) -> program.MeshTraining:
    options = program.parse(["--model-parts", str(model_parts), *arguments])
    return program.MeshTraining(mesh.make_mesh(CPUS, model_parts), SIZES, options)


def train_a_little(training: program.MeshTraining, digits: Data) -> program.State:
    for step in range(STEPS):
        cut = slice(64 * step, 64 * (step + 1))
        training.train(*training.on_mesh(digits.train.images[cut], digits.train.labels[cut], 64))
    return training.state()


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_layouts_are_as_promised(parts: int) -> None:
    """The batch is cut over the copies of the model; of the weights each device holds only its part."""
    training = make_training(parts)
    images, labels, _ = training.on_mesh(np.zeros((16, 8, 8, 1), np.float32), np.zeros(16, np.int64), 16)
    assert [part.shape[0] for part in dtensor.unpack(images)] == [16 * parts // 8] * 8
    assert dtensor.fetch_layout(labels).sharding_specs == ["batch"]
    shapes = [dtensor.unpack(layer.kernel.read_value())[0].shape for layer in training.model.layers]
    assert shapes == [(64, 32 // parts), (32 // parts, 16), (16, 10)]
    moments = [slot.layout for slot in training.optimizer.means]
    assert moments == [weights.layout for weights in training.optimizer.variables_trained]


def test_what_is_packed_is_what_comes_out() -> None:
    array = np.arange(8 * 6, dtype=np.float32).reshape(8, 6)
    for cut in (("batch", "model"), ("model", dtensor.UNSHARDED), (dtensor.UNSHARDED, dtensor.UNSHARDED)):
        layout = dtensor.Layout(list(cut), mesh.make_mesh(CPUS, 2))
        np.testing.assert_array_equal(mesh.whole(mesh.sharded(array, layout)), array)


@pytest.mark.parametrize("activation", program.ACTIVATIONS)
def test_a_saved_model_serves_what_the_mesh_has_trained(digits: Data, tmp_path: Path, activation: str) -> None:
    training = make_training(4, "--activation", activation)
    state = train_a_little(training, digits)
    program.save_model(program.Served(state, activation), (8, 8, 1), tmp_path / "model")
    served = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    images = digits.test.images[:50]
    logits = served(images=tf.constant(images))["logits"]
    on_mesh = training.model(training.on_mesh(images, digits.test.labels[:50], 56)[0])
    np.testing.assert_allclose(logits, mesh.whole(on_mesh)[:50], atol=1e-5)


class Replicated(tf.Module):  # type: ignore[misc]
    """A perceptron with whole weights on each device, which a SavedModel can have."""

    def __init__(self, model: program.Perceptron) -> None:
        super().__init__()
        self.model = model

    @tf.function(input_signature=[tf.TensorSpec((None, SIZES[0]), tf.float32)])  # type: ignore[untyped-decorator]
    def logits(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": self.model(images)}


@pytest.mark.slow_fault
def test_a_checkpoint_of_sharded_variables_becomes_a_saved_model(
    digits: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/programs.md says: restored into variables with replicated layouts, saved, and served by a process that
    knows no mesh."""
    training = make_training(4)
    train_a_little(training, digits)
    checkpoint = tf.train.Checkpoint(model=training.model).save(str(tmp_path / "checkpoints" / "state"))
    monkeypatch.setattr(program, "CUTS", ((dtensor.UNSHARDED, dtensor.UNSHARDED),) * 3)
    replicated = program.Perceptron(mesh.make_mesh(CPUS, 4), SIZES, 2, tf.float32)
    assert all(layer.kernel.layout.is_fully_replicated() for layer in replicated.layers)
    assert not training.model.layers[0].kernel.layout.is_fully_replicated()
    tf.train.Checkpoint(model=replicated).restore(checkpoint).assert_consumed()
    served = Replicated(replicated)
    tf.saved_model.save(served, str(tmp_path / "model"), signatures=served.logits)
    images, labels = digits.test.images[:48], digits.test.labels[:48]
    np.save(tmp_path / "images.npy", images.reshape(48, -1))
    places = [str(tmp_path / name) for name in ("model", "images.npy", "logits.npy")]
    subprocess.run([sys.executable, "-c", SERVE, *places], check=True, timeout=120)
    on_mesh = training.model(training.on_mesh(images, labels, 48)[0])
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), mesh.whole(on_mesh), atol=1e-5)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="7 cannot be split into 4"):
        mesh.sharded(np.zeros(7), dtensor.Layout(["batch"], mesh.make_mesh(CPUS, 2)))


def test_every_layout_trains_the_same_as_a_plain_program(digits: Data) -> None:
    """Five steps of our layers and our Adam, against those of Keras without a mesh."""
    start = make_training(1).state()
    model = keras.Sequential([keras.layers.Dense(units, activation="relu") for units in SIZES[1:-1]])
    model.add(keras.layers.Dense(SIZES[-1]))
    model.build((None, SIZES[0]))
    model.set_weights([start[f"dense_{number}/{part}"] for number in range(3) for part in ("kernel", "bias")])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001, epsilon=1e-7), loss)
    for step in range(STEPS):
        cut = slice(64 * step, 64 * (step + 1))
        model.train_on_batch(digits.train.images[cut].reshape(64, -1), digits.train.labels[cut])
    for parts in (1, 4):
        state = train_a_little(make_training(parts), digits)
        trained = [state[f"dense_{number}/{part}"] for number in range(3) for part in ("kernel", "bias")]
        for expected, found in zip(model.get_weights(), trained, strict=True):
            np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_state_moves_to_another_mesh(digits: Data, tmp_path: Path) -> None:
    """And says the same of the test data there, and outside of any mesh."""
    one = make_training(1)
    program.save_state(tmp_path / "state.npz", train_a_little(one, digits))
    other = make_training(4, "--seed", "2")
    other.restore(program.load_state(tmp_path / "state.npz"))
    on_one, on_other = program.test(one, digits.test, 64), program.test(other, digits.test, 64)
    assert on_one == pytest.approx(on_other, rel=1e-5)
    alone = program.measure(program.Served(program.load_state(tmp_path / "state.npz"), "relu"), digits.test)
    assert alone["accuracy"] == pytest.approx(on_one["test_accuracy"])
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]


def test_examples_that_fill_up_a_batch_count_for_nothing(digits: Data) -> None:
    training = make_training(1)
    images, labels = digits.test.images[:50], digits.test.labels[:50]
    small, large = (training.test(*training.on_mesh(images, labels, size)) for size in (56, 128))
    np.testing.assert_allclose(mesh.whole(small), mesh.whole(large), rtol=1e-5)


def test_examples_cut_the_training_data_only(digits: Data) -> None:
    """The first half of MNIST's test file is the harder one."""
    cut = program.load_data(program.parse(["--examples", "100"]))
    assert (len(cut.train), len(cut.test)) == (100, len(digits.test))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model-parts", "3"], "8 devices cannot be divided"),
        (["--batch-size", "12"], "not a multiple of 8"),
        (["--model-parts", "8", "--hidden", "12", "8"], "not multiples of --model-parts"),
        (["--precision", "mixed_float16"], "mixed_bfloat16"),
    ],
)
def test_what_cannot_work_is_said(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program.check(program.parse(arguments), 8)


@pytest.mark.slow_fault
def test_a_killed_training_goes_on_as_one_that_was_left_alone(tmp_path: Path) -> None:
    arguments = ("--epochs", "5", "--hidden", "128", "64")
    with Program(NAME, tmp_path / "killed", *arguments) as killed:
        killed.wait_for_line("epoch 2/")
        killed.kill()
    result = run(NAME, tmp_path / "killed", *arguments)
    assert 1 <= result["resumed_from"] < 5
    picture = tmp_path / "curves.png"
    undisturbed = run(NAME, tmp_path / "undisturbed", *arguments, "--plot", str(picture))
    assert undisturbed["accuracy"] == result["accuracy"] > GOOD
    assert history(tmp_path / "undisturbed") == history(tmp_path / "killed")
    check_picture(picture, tmp_path / "undisturbed")


@pytest.mark.slow_fault
@pytest.mark.parametrize("option", [("--model-parts", "2"), ("--precision", "mixed_bfloat16")])
def test_it_trains_with_each_option(tmp_path: Path, option: tuple[str, ...]) -> None:
    result = run(NAME, tmp_path, "--epochs", "5", "--hidden", "128", "64", *option)
    assert result["accuracy"] > GOOD

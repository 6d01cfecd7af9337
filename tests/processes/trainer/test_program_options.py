"""The options of the programs that docs/programs.md lists, each with a training of a few steps: the loss falls."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.support.trainer.programs import check_histograms, history, run

PICTURES = ("--make-folders", "--pictures", "200", "--batch-size", "16", "--learning-rate", "0.01")
MLP = ("--hidden", "64", "32", "--steps-per-epoch", "10")
BFLOAT16 = ("--precision", "mixed_bfloat16")
DEVICES = ("--logical-devices", "4", "--devices", "0,2")
CASES = [
    ("transfer_learning", (*PICTURES, "--head", "dense", "--size", "64")),
    ("transfer_learning", (*PICTURES, "--jit")),
    ("transfer_learning", (*PICTURES, *BFLOAT16)),
    ("transfer_learning", (*PICTURES, *DEVICES)),
    ("mirrored_custom_loop", ("--steps-per-epoch", "10", *DEVICES)),
    ("multi_worker_mnist", ("--steps-per-epoch", "10", "--loop", "custom", "--jit")),
    ("multi_worker_mnist", ("--steps-per-epoch", "10", "--loop", "custom", *BFLOAT16)),
    ("multi_worker_mnist", ("--steps-per-epoch", "10", "--validation-steps", "1")),
    ("multi_worker_mnist", ("--steps-per-epoch", "10", "--loop", "custom", "--validation-steps", "1")),
    ("parameter_server", ("--steps-per-epoch", "20", *BFLOAT16)),
    ("parameter_server", ("--steps-per-epoch", "20", "--loop", "custom", *BFLOAT16)),
    ("dtensor_mlp", (*MLP, "--jit")),
]


@pytest.mark.slow_fault
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[" ".join((name, *each)) for name, each in CASES])
def test_it_trains_with_this_option(tmp_path: Path, name: str, arguments: tuple[str, ...]) -> None:
    result = run(name, tmp_path, "--epochs", "2", *arguments)
    first, last = history(tmp_path)
    assert last["loss"] < first["loss"] < math.inf
    assert (tmp_path / "model" / "saved_model.pb").exists()
    if "--devices" in arguments:
        assert result["devices"] == 2
    if "--validation-steps" in arguments:
        assert 0 < last["test_accuracy"] <= 1


@pytest.mark.slow_fault
@pytest.mark.parametrize(
    ("name", "arguments"), [("dtensor_mlp", MLP), ("parameter_server", ("--loop", "custom", "--steps-per-epoch", "20"))]
)
def test_the_logs_have_histograms_of_the_weights(tmp_path: Path, name: str, arguments: tuple[str, ...]) -> None:
    run(name, tmp_path / "job", "--epochs", "2", "--logdir", str(tmp_path / "logs"), *arguments)
    check_histograms(tmp_path / "logs")

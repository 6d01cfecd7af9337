"""An unchanged program of Keras 3 trains several workers: as one process does with the batches of all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.ports import free_ports
from tests.support.repository import REPOSITORY
from tests.support.trainer import keras3_program
from tests.support.trainer.keras3_program import CASES
from tftraining.launch.in_user_process import hooks

PATIENCE = 900.0  # seconds; five cases take 15 on an idle machine
CLOSE = 1e-6
ACTIVE = "tftraining: fit of Keras 3"
FEW = ["clipped", "unknown-size"]


class Trained(NamedTuple):
    """What a process has trained."""

    told: dict[str, Any]
    weights: list[Any]


class Run:
    """Programs that train in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def train(self, members: int, cases: list[str], library: str = "keras", **variables: str) -> list[str]:
        """Train the cases in a gang; what each member has written to its standard error."""
        ports = free_ports(members)
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(members)]
        variables |= {"TMPDIR": str(self.directory), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        environment = {**os.environ, **variables, "PYTHONPATH": hooks.python_path(str(REPOSITORY))}
        command = [sys.executable, "-m", keras3_program.__name__, str(self.directory / f"{library}{members}"), library]

        def run(config: str) -> str:
            done = subprocess.run(
                [*command, *cases],
                env={**environment, "TF_CONFIG": config},
                stderr=subprocess.PIPE,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-3000:]
            return done.stderr

        with ThreadPoolExecutor(members) as pool:
            return list(pool.map(run, configs))

    def result(self, members: int, case: str, task: int, library: str = "keras") -> Trained:
        path = self.directory / f"{library}{members}.{case}.{task}"
        with np.load(f"{path}.npz") as weights:
            return Trained(json.loads(Path(f"{path}.json").read_text()), [weights[name] for name in weights.files])


def distance(one: list[Any], other: list[Any]) -> float:
    """The largest difference of two lists of arrays."""
    assert len(one) == len(other)
    return max(float(np.abs(np.asarray(a, "f8") - np.asarray(b, "f8")).max()) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    yield Run(tmp_path_factory.mktemp("keras3"))


def check(run: Run, members: int, case: str, close: float = CLOSE) -> None:
    """The members agree with one another, and with one process."""
    gang = [run.result(members, case, index) for index in range(members)]
    assert all(each.told == gang[0].told for each in gang)
    assert all(distance(each.weights, gang[0].weights) == 0 for each in gang)
    assert gang[0].told["iterations"] == CASES[case].iterations
    with warnings.catch_warnings(action="ignore"):  # "Your input ran out of data"
        alone, weights = keras3_program.train(keras, CASES[CASES[case].like or case], tf.distribute.get_strategy())
    assert distance(gang[0].weights, weights) < close
    for name, values in alone["history"].items():
        assert gang[0].told["history"][name] == pytest.approx(values, abs=5 * close), name
    assert gang[0].told["evaluated"] == pytest.approx(alone["evaluated"], abs=5 * close)
    assert distance(gang[0].told["predicted"], alone["predicted"]) < 5 * close


def test_two_workers_train_as_one_process(run: Run) -> None:
    lines = run.train(2, [*FEW, "normalized"])
    assert [text.count(ACTIVE) for text in lines] == [1, 1]
    for case in FEW:
        check(run, 2, case)
    # Each worker normalizes its own share of a batch; the statistics that it saves are those of all.
    first, second = (run.result(2, "normalized", index) for index in range(2))
    assert distance(first.weights, second.weights) == 0
    assert first.told == second.told
    assert first.told["evaluated"] == {
        name.removeprefix("val_"): values[-1] for name, values in first.told["history"].items() if "val_" in name
    }

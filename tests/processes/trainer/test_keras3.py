"""An unchanged program of Keras 3 trains several workers: as one process does with the batches of all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.ports import free_ports
from tests.support.repository import REPOSITORY
from tests.support.trainer import keras3_program
from tests.support.trainer.keras3_program import CASES
from tftraining.launch.failure.exit import KERAS3_FIT, kind_of
from tftraining.launch.in_user_process import hooks

PATIENCE = 1800.0  # seconds; all cases take 100 on an idle machine
CLOSE = 1e-6
ACTIVE = "tftraining: fit of Keras 3"
FEW = ["clipped"]  # the slow tests have all


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
        command = [keras3_program.__name__, str(self.directory / f"{library}{members}"), library]
        return self.start(members, [*command, *cases], variables)

    def start(self, members: int, command: list[str], variables: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Run a module in a gang; what each member has written to its standard error."""
        cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(members)]}
        configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(members)]
        settings = {"TMPDIR": str(self.directory), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        path = {"PYTHONPATH": hooks.python_path(str(REPOSITORY))}

        def run(config: str) -> str:
            done = subprocess.run(
                [sys.executable, "-m", *command],
                env={**os.environ, **settings, **path, **variables, "TF_CONFIG": config},
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


ALL = [name for name in CASES if name not in ("normalized", "uneven", "one-left")]
LEGACY = ["normalized", "uneven"]  # shares that are not as one process's batch


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


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two workers that have trained all cases, and some with tf_keras."""
    run = Run(tmp_path_factory.mktemp("two"))
    run.train(2, [*ALL, *LEGACY, "one-left"])
    run.train(2, [*LEGACY, "one-left"], "tf_keras")
    return run


@pytest.mark.slow_fault
@pytest.mark.parametrize("case", ALL)
def test_each_program_of_two_workers_trains_as_one_process(case: str, two: Run) -> None:
    check(two, 2, case, 1e-3 if case == "half" else CLOSE)


def check_legacy(run: Run, members: int, case: str) -> None:
    """The members agree, and have trained as a gang of tf_keras. What it evaluates has each worker's own statistics."""
    gang = [run.result(members, case, index) for index in range(members)]
    assert all(each.told == gang[0].told and distance(each.weights, gang[0].weights) == 0 for each in gang)
    legacy = run.result(members, case, 0, "tf_keras")
    assert distance(gang[0].weights, legacy.weights) < CLOSE
    assert gang[0].told["history"]["loss"] == pytest.approx(legacy.told["history"]["loss"], abs=CLOSE)


@pytest.mark.slow_fault
@pytest.mark.parametrize("case", LEGACY)
def test_two_workers_train_as_those_of_tf_keras(case: str, two: Run) -> None:
    check_legacy(two, 2, case)


@pytest.mark.slow_fault
def test_an_empty_share_leaves_the_statistics_finite(two: Run) -> None:
    first, second = (two.result(2, "one-left", index) for index in range(2))
    legacy = two.result(2, "one-left", 0, "tf_keras")
    assert distance(first.weights, second.weights) == 0
    assert all(np.isfinite(each).all() for each in first.weights)
    assert distance(first.weights, legacy.weights) < 0.02  # tf_keras averages only what it saves


@pytest.mark.slow_fault
def test_three_workers_with_shares_of_different_sizes_train_as_those_of_tf_keras(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = Run(tmp_path_factory.mktemp("three"))
    run.train(3, ["plain", "normalized"])
    run.train(3, ["plain", "normalized"], "tf_keras")
    for case in ("plain", "normalized"):
        check_legacy(run, 3, case)


@pytest.fixture(scope="module")
def callbacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The directory of two workers with callbacks, and what each has told."""
    run = Run(tmp_path_factory.mktemp("callbacks"))
    run.start(2, ["tests.support.trainer.keras3_callbacks", str(run.directory)])
    return run.directory, [json.loads((run.directory / f"told.{task}.json").read_text()) for task in range(2)]


@pytest.mark.slow_fault
def test_an_overflow_in_one_worker_lowers_the_scale_of_all(callbacks: tuple[Path, list[dict[str, Any]]]) -> None:
    first, second = (told["overflow"] for told in callbacks[1])
    assert first == second
    assert len(set(first["scales"][:3])) == 1
    assert first["scales"][3] == first["scales"][2] / 2


@pytest.mark.slow_fault
def test_callbacks_decide_alike_and_the_chief_writes_what_all_name(
    callbacks: tuple[Path, list[dict[str, Any]]],
) -> None:
    place, told = callbacks
    first, second = (each["deciding"] for each in told)
    assert {**first, "saved": 0, "process": 0} == {**second, "saved": 0, "process": 0}
    own = [str(place / str(task) / ".next-last.keras") for task in range(2)]
    assert second["saved"] == [own[1]]
    assert {own[0], str(place / "shared" / ".next-best.keras"), str(place / "shared" / ".next-1.weights.h5")} <= set(
        first["saved"]
    )
    assert not list(place.rglob(".next-*"))
    tables = [(place / str(task) / "log.csv").read_text() for task in range(2)]
    assert tables[0] == tables[1] == (place / "shared" / "log.csv").read_text()
    events = [path.name for path in (place / "shared" / "board").rglob("events.*")]
    assert len(events) == 2 and all(f".{first['process']}." in name for name in events), events
    assert len(tables[0].splitlines()) == len(first["history"]["loss"]) + 1
    with warnings.catch_warnings(action="ignore"):
        best = keras.models.load_model(place / "shared" / "best.keras", custom_objects={"Counting": keras.Model})
    assert best.evaluate(keras3_program.examples(65), verbose=0)[0] == pytest.approx(
        min(first["history"]["val_loss"]), abs=CLOSE
    )


@pytest.mark.slow_fault
def test_a_backup_of_the_gang_resumes_exactly(callbacks: tuple[Path, list[dict[str, Any]]]) -> None:
    for task, told in enumerate(each["resumed"] for each in callbacks[1]):
        assert told["error"].startswith("InterruptedError")
        assert told["left"] == ["latest.weights.h5", "training_metadata.json"]
        assert told["saved"] == (0 if task else 2)
        assert told["epochs"] == [2, 3]
        assert told["gone"] or task  # the chief removes it
        assert told["digests"][0] == told["digests"][1]


@pytest.mark.slow_fault
def test_members_that_resume_at_different_places_say_so(callbacks: tuple[Path, list[dict[str, Any]]]) -> None:
    for told in (each["not_shared"] for each in callbacks[1]):
        assert told["saved"] == 2  # each its own
        assert told["error"].startswith("RuntimeError: the members of the gang resume at different places: at (epoch")
        assert kind_of(1, (told["refused"],)) == KERAS3_FIT


@pytest.mark.slow_fault
def test_a_custom_loop_averages_moving_statistics(callbacks: tuple[Path, list[dict[str, Any]]]) -> None:
    first, second = (told["averaged"] for told in callbacks[1])
    assert first["before"] != second["before"]
    assert first["after"] == second["after"] not in (first["before"], second["before"])


@pytest.mark.slow_fault
def test_what_keras_refuses_is_as_the_page_says(callbacks: tuple[Path, list[dict[str, Any]]]) -> None:
    told = [each["refusals"] for each in callbacks[1]]
    assert all("called while defining a new graph or a tf.function" in each["accumulation"] for each in told)
    # The one that is refused first may take the other along.
    assert any("Collectives are not yet implemented for CPU devices" in each["compiled"] for each in told)

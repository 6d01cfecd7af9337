"""A Keras whose names have changed is left alone: nothing crashes, nothing is trained otherwise, and one line says so.

Each case changes one name in a copy of Keras, in all modules: as Keras itself would. A row with `unknown` "" changes
nothing. docs/keras3.md has what each patch touches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

from tests.support.launchers import changed_keras, changed_package

ALL = "neither progress nor backups in memory nor finished fits of Keras"
PROGRESS = "no progress of Keras"
MEMORY = "no backups in memory"
FINISHED = "does not save the end of a fit"
PATIENCE = 900.0  # seconds; seventeen cases take 90 on an idle machine


class Case(NamedTuple):
    unknown: str  # what is changed, as the line names it
    lost: str  # the begin of that line
    pattern: str
    replacement: str
    reports: bool = True
    resumes: bool = True  # within the epoch, from memory
    package: str = "tf_keras"

    def __str__(self) -> str:
        return f"{self.package} {self.unknown}".strip()


def renamed(name: str, unknown: str, lost: str, **more: Any) -> Case:
    return Case(unknown, lost, rf"\b{name}\b", f"{name}_of_later", **more)


def with_parameter(cls: str, method: str, parameters: str, lost: str, **more: Any) -> Case:
    """A method of a class has one more parameter."""
    pattern = rf"(\nclass {cls}\b(?:(?!\nclass ).)*?def {method}\({parameters})\)"
    return Case(f"{cls}.{method}", lost, pattern, r"\1, later=None)", **more)


NOTHING: dict[str, Any] = {"reports": False, "resumes": False}
UNCHANGED = Case("", "", "^", "")
UNCHANGED_3 = Case("", "", "^", "", package="keras")
HANDLER, FIT = "DataHandler", "Model.fit of tf_keras.src.engine.training"
FEW = [
    UNCHANGED,
    with_parameter("CallbackList", "on_train_batch_end", "self, batch, logs=None", ALL, **NOTHING),
    renamed("_train_counter", f"{FIT} does not use _train_counter", PROGRESS, **NOTHING),
    renamed("_initial_epoch", "_initial_epoch", MEMORY, resumes=False),
]
MORE = [
    UNCHANGED,
    renamed("CallbackList", "CallbackList.on_train_begin", ALL, **NOTHING),
    renamed("_backup", "BackupAndRestore._backup", PROGRESS, reports=False),
    with_parameter("WorkerTrainingState", "restore", "self", MEMORY, resumes=False),
    *(
        renamed(name, name, MEMORY, resumes=False)
        for name in (
            *(
                "_dataset",
                "_initial_step",
                "_adapter",
                "_inferred_steps",
                "_insufficient_data",
                "_history",
                "step_increment",
            ),
            *("enumerate_epochs", "should_recreate_iterator", "make_train_function", "write_checkpoint_manager"),
            "_dataset",
        )
    ),
    renamed("_training_state", "_training_state", FINISHED),
    renamed("_ckpt_saved_batch", "_ckpt_saved_batch", FINISHED),
    UNCHANGED_3,
    renamed("CallbackList", "CallbackList.on_train_begin", ALL, package="keras", **NOTHING),
    renamed("_weights_path", "_weights_path", FINISHED, resumes=False, package="keras"),
    renamed("_initial_epoch", "_initial_epoch", FINISHED, resumes=False, package="keras"),
    *(
        renamed(name, name, MEMORY, resumes=False, package="keras")
        for name in ("_enumerate_iterator", "_steps_seen", "_get_iterator", "_distributed_dataset", "_async_train")
    ),
    Case("this is no fit of Keras", MEMORY, r"(?<!\.)\bepoch_iterator\b", "later", resumes=False, package="keras"),
]


def train(cases: list[Case], factory: pytest.TempPathFactory) -> list[tuple[Case, dict[str, Any]]]:
    """All cases, and what each has told."""
    places = [factory.mktemp("case") for _ in cases]
    for case, place in zip(cases, places, strict=True):
        assert changed_package.make(place / "packages", case.package, case.pattern, case.replacement), case
        (place / "case.json").write_text(json.dumps({"package": case.package}))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "TMPDIR": str(places[0])}
    command = [sys.executable, "-m", changed_keras.__name__, *map(str, places)]
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE)
    return [(case, json.loads((place / "told.json").read_text())) for case, place in zip(cases, places, strict=True)]


def check(case: Case, outcomes: list[tuple[Case, dict[str, Any]]]) -> None:
    told = next(each for other, each in outcomes if other == case)
    unchanged = next(each for other, each in outcomes if other.package == case.package and not other.unknown)
    assert told["codes"] == [-9, 0], told["lines"]
    assert told["digest"] == unchanged["digest"] != ""
    own = [[line for line in lines if line.startswith("tftraining:")] for lines in told["lines"]]
    assert any("resumed from memory" in line for line in own[1]) == case.resumes, own
    if case.unknown:
        guards = [[line for line in lines if line.startswith(f"tftraining: {case.lost}: ")] for lines in own]
        assert [sum(case.unknown in line for line in lines) for lines in guards] == [1, 1], own
    assert (told["progress"][1:] == [120, 3]) == case.reports, told["progress"]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, dict[str, Any]]]:
    return train(FEW, tmp_path_factory)


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, dict[str, Any]]]:
    return train(MORE, tmp_path_factory)


@pytest.mark.parametrize("case", FEW, ids=str)
def test_a_changed_keras_trains_as_without_the_hooks(case: Case, few: list[tuple[Case, dict[str, Any]]]) -> None:
    check(case, few)


@pytest.mark.slow_fault
@pytest.mark.parametrize("case", MORE, ids=str)
def test_each_changed_name(case: Case, more: list[tuple[Case, dict[str, Any]]]) -> None:
    check(case, more)

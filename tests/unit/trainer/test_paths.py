"""Where each process writes its part of a common save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tftraining.cluster import Task
from tftraining.paths import remove_own_temporary_directory, write_filepath

CHIEF = Task("worker", 0, 3, is_chief=True)
WORKER = Task("worker", 2, 3, is_chief=False)
WORKER_BESIDE_CHIEF = Task("worker", 0, 3, is_chief=False)


def test_the_chief_writes_the_real_thing_and_each_other_worker_its_own_copy(tmp_path: Path) -> None:
    model = str(tmp_path / "job" / "model")
    assert write_filepath(model, CHIEF) == model
    assert write_filepath(model, WORKER) == str(tmp_path / "job" / "workertemp_2" / "model")
    assert write_filepath(model, WORKER_BESIDE_CHIEF) == str(tmp_path / "job" / "workertemp_0" / "model")


def test_without_a_task_it_is_that_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gang = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(gang))
    assert write_filepath(str(tmp_path / "model")) == str(tmp_path / "workertemp_1" / "model")
    monkeypatch.delenv("TF_CONFIG")
    assert write_filepath(str(tmp_path / "model")) == str(tmp_path / "model")


def test_the_directory_to_write_into_is_there(tmp_path: Path) -> None:
    for task in (CHIEF, WORKER, CHIEF, WORKER):
        Path(write_filepath(str(tmp_path / "a" / "b" / "model.h5"), task)).write_text("x")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["model.h5", "workertemp_2"]


def test_a_bucket_has_no_directories_to_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_filepath("gs://bucket/job/model.keras", CHIEF) == "gs://bucket/job/model.keras"
    assert write_filepath("gs://bucket/job/model.keras", WORKER) == "gs://bucket/job/workertemp_2/model.keras"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("task", [CHIEF, WORKER])
def test_another_url_is_refused_and_no_directory_of_its_name_is_made(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="s3://bucket/model is a URL of a storage that is not supported"):
        write_filepath("s3://bucket/model", task)
    assert list(tmp_path.iterdir()) == []


def test_plain_names_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_filepath("model", CHIEF) == "model"
    assert write_filepath("model", WORKER) == "workertemp_2/model"


def test_a_worker_removes_its_own_temporary_directory_only(tmp_path: Path) -> None:
    for task in (CHIEF, WORKER, WORKER_BESIDE_CHIEF):
        Path(write_filepath(str(tmp_path / "model"), task)).write_text("x")
    remove_own_temporary_directory(str(tmp_path), CHIEF)
    remove_own_temporary_directory(str(tmp_path), WORKER)
    remove_own_temporary_directory(str(tmp_path), WORKER)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "workertemp_0"]

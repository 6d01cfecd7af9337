"""What a job leaves: temporary directories go, models are found."""

import time
from pathlib import Path

from tests.support.control_plane.manifests import changed, minimal
from tftraining_client.local.artifacts import clean, models
from tftraining_client.local.process_spec import local_job
from tftraining_client.validation import validate

STORAGE = {"spec.storage": {"volume": {"hostPath": {"path": "/data"}}, "saveDirs": [".", "backup"]}}


async def test_only_temporary_directories_of_the_other_workers_go(tmp_path: Path) -> None:
    local = local_job(validate(changed(minimal(), STORAGE)), tmp_path)
    assert local.directory is not None
    for name in ("workertemp_1", "backup/workertemp_1", "workertemp_0", "workertemp_2", "model"):
        (local.directory / name).mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert await clean(local, scratch) == "2 temporary save directories removed"
    left = sorted(each.name for each in local.directory.iterdir())
    assert left == ["backup", "model", "workertemp_0", "workertemp_2"]


async def test_a_link_is_not_followed_and_that_is_told(tmp_path: Path) -> None:
    local = local_job(validate(changed(minimal(), STORAGE)), tmp_path)
    assert local.directory is not None
    local.directory.mkdir()
    (tmp_path / "precious").mkdir()
    (local.directory / "workertemp_1").symlink_to(tmp_path / "precious")
    said = await clean(local, tmp_path)
    assert said == "0 temporary save directories removed; left workertemp_1: a symbolic link; skipped"
    assert (tmp_path / "precious").is_dir()


async def test_without_storage_there_is_nothing(tmp_path: Path) -> None:
    assert await clean(local_job(validate(minimal()), tmp_path), tmp_path) == "nothing to remove"


def test_models(tmp_path: Path) -> None:
    for name in ("model", "exports/2", "workertemp_1/model"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "saved_model.pb").touch()
    (tmp_path / "best.keras").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    found = models(tmp_path, time.time() - 60)
    assert {str(each.relative_to(tmp_path)) for each in found} == {"model", "exports/2", "best.keras"}
    assert models(tmp_path, time.time() + 60) == []
    assert models(tmp_path / "not there", 0) == []

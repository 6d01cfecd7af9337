"""A backup of Keras 3 that is killed at any time leaves the one backup or the other, never half of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.in_user_process.keras3 import files


class Killed(Exception):
    pass


class Backup:
    """What Keras' BackupAndRestore has."""

    double_checkpoint = False

    def __init__(self, directory: Path) -> None:
        self.backup_dir = directory
        self._weights_path = str(directory / "latest.weights.h5")
        self._training_metadata_path = str(directory / "training_metadata.json")
        self._prev_weights_path = f"{self._weights_path}.bkp"
        self._prev_training_metadata_path = f"{self._training_metadata_path}.bkp"

    def held(self) -> tuple[str, str]:
        return Path(self._weights_path).read_text(), Path(self._training_metadata_path).read_text()


def saving(text: str, kill: Callable[[], None] = lambda: None) -> Callable[[Any], None]:
    """Keras' _save_model."""

    def save(backup: Any) -> None:
        for path in (backup._weights_path, backup._training_metadata_path):
            kill()
            Path(path).write_text("half")
            kill()
            Path(path).write_text(text)
        kill()

    return save


@pytest.mark.parametrize("at", range(9))
@pytest.mark.parametrize("double", [False, True])
def test_a_killed_save_leaves_one_backup(
    at: int, double: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = Backup(tmp_path)
    backup.double_checkpoint = double
    files._save_aside(backup, saving("old"))
    left, replace = [at], os.replace

    def kill() -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1

    def replacing(source: str, target: str) -> None:
        kill()
        replace(source, target)
        kill()

    monkeypatch.setattr(os, "replace", replacing)
    with pytest.raises(Killed):
        files._save_aside(backup, saving("new", kill))
    monkeypatch.undo()
    files._finish_rename(backup)
    assert backup.held() in (("old", "old"), ("new", "new"))
    assert backup.held()[0] == ("new" if at >= 6 else "old")
    kept = {"latest.weights.h5", "training_metadata.json"}
    assert {path.name for path in tmp_path.iterdir()} - kept <= {f"{name}.bkp" for name in kept}
    files._save_aside(backup, saving("newer"))
    assert backup.held() == ("newer", "newer")


def test_a_path_is_one_whatever_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files._absolute("a/../b") == str(tmp_path / "b")
    assert files._absolute("gs://bucket/b") == "gs://bucket/b"

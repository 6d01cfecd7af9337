"""Where a member of a gang keeps files that only its own pod sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import mounts, private_files
from tftraining.launch.in_user_process.private_files import PrivateFiles

MOUNTINFO = """\
1 0 0:1 / / rw - overlay overlay rw
2 1 0:2 / /training rw - nfs4 server:/x rw
3 1 0:3 / /data rw - nfs4 server:/y rw
4 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/code /code rw - ext4 /dev/sda rw
5 1 8:1 /disk /disk rw - ext4 /dev/sda rw
"""


class BackupAndRestore:
    def __init__(self, path: str) -> None:
        self.backup_dir = path


class ModelCheckpoint:
    def __init__(self, path: str) -> None:
        self.filepath = path


class Mine(ModelCheckpoint):
    pass


@pytest.fixture(autouse=True)
def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "read_mounts", lambda: mounts.parse_mounts(MOUNTINFO))


def member(index: int = 0, count: int = 2, host: str = "10.0.0.1", **environment: str) -> PrivateFiles:
    workers = [f"{host}:{port}" for port in range(count)]
    config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    return PrivateFiles({"TF_CONFIG": json.dumps(config), "TFTRAINING_DIR": "/training", **environment})


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/tmp/backup", "BackupAndRestore keeps /tmp/backup outside the job's storage"),
        ("/code/training_checkpoints", "BackupAndRestore keeps /code/training_checkpoints"),
        ("/training/backup", ""),
        ("/training/../training/backup", ""),
        ("/training2/backup", "BackupAndRestore keeps /training2/backup"),
        ("/data/backup", ""),
        ("/disk/backup", ""),
        ("gs://bucket/backup", ""),
    ],
)
def test_a_backup_is_for_all_pods(path: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = member(index=1)
    own.look_at([BackupAndRestore(path), object()])
    own.look_at([BackupAndRestore(path)])
    told = capsys.readouterr().err
    assert (words in told, told.count("\n")) == (True, bool(words)), "once"


def test_without_storage_or_in_a_bucket_every_disk_is_private(capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("", "gs://bucket/job"):
        member(TFTRAINING_DIR=place).look_at([BackupAndRestore("/training2/backup")])
        assert "TFTRAINING_DIR (spec.storage)" in capsys.readouterr().err


def test_a_local_run_tells_what_a_cluster_would_lose(capsys: pytest.CaptureFixture[str]) -> None:
    own = member(host="127.0.0.1")
    own.look_at([BackupAndRestore("/disk/backup"), BackupAndRestore("/data/backup")])
    assert capsys.readouterr().err.count("/disk/backup") == 1


@pytest.mark.parametrize(("own", "told"), [(member(), 1), (member(index=1), 0), (member(count=1), 0)])
def test_only_the_chiefs_models_count(own: PrivateFiles, told: int, capsys: pytest.CaptureFixture[str]) -> None:
    own.look_at([Mine("/tmp/m/{epoch}.keras")])
    own._look_at_output(Path("/tmp/m/last.keras"))
    own._look_at_output(object())
    assert capsys.readouterr().err.count("outside the job's storage") == told


def test_one_process_alone_needs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    member(count=1).look_at([BackupAndRestore("/tmp/backup")])
    PrivateFiles({}).look_at([BackupAndRestore("/tmp/backup")])
    assert private_files.PrivateFiles({"TF_CONFIG": "nonsense"})._is_member is False
    assert capsys.readouterr().err == ""

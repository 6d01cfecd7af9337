"""A training whose storage is a bucket, with the real TensorFlow against an emulator of Google Cloud Storage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import binaries
from testbed.shell import Impossible
from tests.support.needed import need_or_skip
from tests.support.trainer.bucket import OWN_WORLD

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network and mounts of its own")
PATIENCE = 400.0


def train(folder: Path, **options: Any) -> dict[str, Any]:
    """What a training with a killed worker in its own world shows."""
    need_or_skip("ip")
    try:
        server = binaries.ensure("fake-gcs-server") / "fake-gcs-server"
    except Impossible as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    module = [sys.executable, "-m", "tests.support.trainer.bucket_training", str(server), str(folder)]
    command = [*OWN_WORLD, *module, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_killed_training_resumes_from_its_backup_in_the_bucket_and_is_cleaned(tmp_path: Path) -> None:
    seen = train(tmp_path)
    assert any(name.endswith(".index") for name in seen["backup"]), "the backup is in the bucket"
    assert seen["codes"] == {"worker-0": 0, "worker-1": 0}, seen["log"]
    assert "no history, no record of a success" in seen["log"]
    assert "does not save the end of this fit" in seen["log"]
    for epochs in seen["epochs"].values():
        first, again = epochs[: epochs.index(4) + 1], epochs[epochs.index(4) + 1 :]
        assert first == [0, 1, 2, 3, 4] and again[0] in (4, 5) and again[-1] == 7, epochs
    assert {"model.keras", "workertemp_1/model.keras"} <= {*seen["trained"]}
    assert seen["cleanup"] == [0, {"removed": 1, "failed": []}]
    assert "model.keras" in seen["cleaned"]
    assert not [name for name in seen["cleaned"] if "workertemp" in name]


@pytest.mark.slow_fault
def test_backups_in_memory_need_no_files(tmp_path: Path) -> None:
    seen = train(tmp_path, memoryBackup={"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 64 << 20})
    assert seen["codes"] == {"worker-0": 0, "worker-1": 0}, seen["log"]
    assert seen["log"].count("resumed from memory at epoch ") == 1, seen["log"]

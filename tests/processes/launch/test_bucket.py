"""A training whose storage is a bucket, with the real TensorFlow against an emulator of Google Cloud Storage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from testbed import binaries
from testbed.shell import Impossible
from tests.support.needed import need_or_skip
from tests.support.trainer.bucket import OWN_WORLD
from tftraining.launch.success_record import BUCKET_SECONDS

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a network and mounts of its own")
PATIENCE = 400.0

UNREACHABLE = """
import os, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
os.environ["TFTRAINING_DIR"] = "gs://training/team/job"
from pathlib import Path
from tests.support.launchers.gang import LocalGang
with LocalGang(Path(sys.argv[1]), {"worker": 2}, "--epochs", "1", directory=None) as gang:
    gang.start()
    print(gang.wait(200))
    print(gang.log("worker-0"))
"""


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
    assert "no history and no backup in memory" in seen["log"]
    assert "does not save the end of this fit" in seen["log"]
    for epochs in seen["epochs"].values():
        first, again = epochs[: epochs.index(4) + 1], epochs[epochs.index(4) + 1 :]
        assert first == [0, 1, 2, 3, 4] and again[0] in (4, 5) and again[-1] == 7, epochs
    assert {"model.keras", "workertemp_1/model.keras", ".tftraining-verdict.json"} <= {*seen["trained"]}
    assert seen["again"]["codes"] == {"worker-0": 0, "worker-1": 0}, seen["log"]
    assert {*seen["again"]["reasons"].values()} == {"AlreadySucceeded"}, seen["log"]
    assert seen["again"]["epochs"] == seen["epochs"], "a gang that is started again after the success trains nothing"
    assert seen["cleanup"] == [0, {"removed": 1, "failed": []}]
    assert "model.keras" in seen["cleaned"]
    assert not [name for name in seen["cleaned"] if "workertemp" in name]


@pytest.mark.slow_fault
def test_backups_in_memory_need_no_files(tmp_path: Path) -> None:
    seen = train(tmp_path, memoryBackup={"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 64 << 20})
    assert seen["codes"] == {"worker-0": 0, "worker-1": 0}, seen["log"]
    assert seen["log"].count("resumed from memory at epoch ") == 1, seen["log"]


@pytest.mark.slow_fault
def test_a_bucket_that_cannot_be_reached_delays_and_fails_no_job(tmp_path: Path) -> None:
    """In a network that has only the loopback; TensorFlow tries for longer than the launcher waits."""
    begin = time.monotonic()
    command = [*OWN_WORLD, sys.executable, "-c", UNREACHABLE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "{'worker-0': 0, 'worker-1': 0}" in done.stdout
    assert "cannot read from gs://training/team/job whether the job has succeeded before: " in done.stdout
    assert "cannot write the verdict to gs://training/team/job: " in done.stdout
    assert time.monotonic() - begin < 2 * BUCKET_SECONDS + 40

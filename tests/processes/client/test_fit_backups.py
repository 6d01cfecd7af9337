"""BackupAndRestore of both Keras versions in a program of one process, with MirroredStrategy and without a strategy.

Backups in memory are off, so that it is this callback that resumes.
"""

import re
from pathlib import Path

import pytest

from tests.support.client.local_run import Run, manifest
from tests.support.repository import REPOSITORY

PROGRAM = REPOSITORY / "tests" / "support" / "trainer" / "fit_program.py"


@pytest.mark.slow_fault
@pytest.mark.parametrize("strategy", ["none", "mirrored"])
@pytest.mark.parametrize("keras", ["keras", "tf_keras"])
def test_a_killed_fit_resumes_from_its_backup(tmp_path: Path, keras: str, strategy: str) -> None:
    job = manifest(workers=1)
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", str(PROGRAM), keras, strategy]
    job["spec"]["launcher"]["memoryBackup"] = {"mode": "Off"}
    with Run(tmp_path, job, "--kill", "worker-0@epoch=4") as run:
        assert run.wait() == 0
        log = run.log
    assert re.search(r"^ +worker-0 was killed \(SIGKILL\), resumed from epoch [3-8], ", log, re.MULTILINE), log
    assert "  trained   epoch 8 of 8, step 800" in log
    assert log.count("Epoch 1/8") == 1, log
    assert log.count(f"replicas in sync: {2 if strategy == 'mirrored' else 1}") == 2, log

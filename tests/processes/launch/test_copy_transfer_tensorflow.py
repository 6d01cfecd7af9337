"""A lost pod costs as little as a killed program: real launchers, and TensorFlow in two workers."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.processes.launch.test_memory_backups import INTERVAL, PATIENCE, jumps, lost, steps
from tests.support.launchers.gang import LocalGang
from tests.support.trainer import stepwise_fit

pytestmark = pytest.mark.slow_fault

KILLED, TERMINATED = signal.SIGKILL, signal.SIGTERM


@pytest.mark.parametrize(
    ("number", "names", "source"),
    [
        (KILLED, ["worker-1"], "Peer"),
        (KILLED, ["worker-0"], "Peer"),
        (TERMINATED, ["worker-1"], "Peer"),
        (TERMINATED, ["worker-0", "worker-1"], "Storage"),
    ],
    ids=["a lost pod", "the lost pod of the chief", "a pod that is asked to leave", "a suspension"],
)
def test_new_pods_resume_where_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, names: list[str], source: str
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "job"))
    memory = tmp_path / "memory"
    told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 1 << 30, "directory": str(memory)}
    options = {"memoryBackup": told, "warmStart": True, "terminationGraceSeconds": 60, "memberTimeoutSeconds": 6}
    with LocalGang(tmp_path, {"worker": 2}, **options) as gang:
        script = tmp_path / "train.py"
        script.write_text(stepwise_fit.program())
        gang.command = [sys.executable, str(script)]
        gang.start()
        gang.wait_for(lambda: (gang.directory / "steps-0").exists() and steps(gang, 0)[-1:] >= [150], PATIENCE)
        for name in names:
            gang.kill(name, number)
        for name in names:
            gang.launchers[name].wait()
            shutil.rmtree(next(memory.glob(f"*-{name}")))
        gang.start(*names)
        assert gang.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}, gang.describe()
    assert "resumed from memory at epoch 2, step " in gang.log(names[0]), gang.describe()
    assert max(lost(gang), default=0) <= (INTERVAL if number == KILLED else 0), jumps(steps(gang, 0))
    told_by_launcher = {"Peer": "fetched the backup in memory", "Storage": "loaded the backup in memory"}
    assert told_by_launcher[source] in gang.log(names[0])

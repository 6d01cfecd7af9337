"""A lost pod costs as little as a killed program: real launchers, and TensorFlow in two workers.

With or without it the training ends with the same bytes, those of each worker's own moving averages included. The parts
of a batch are of unequal size, so each worker draws another count of random numbers for Dropout.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes.launch.test_memory_backups import INTERVAL, PATIENCE, ends, jumps, lost, steps
from tests.support.launchers.gang import LocalGang
from tests.support.trainer import stepwise_fit

pytestmark = pytest.mark.slow_fault

KILLED, TERMINATED = signal.SIGKILL, signal.SIGTERM


@contextmanager
def training(place: Path, normalization: str = "BatchNormalization") -> Iterator[LocalGang]:
    """A gang whose members each have a volume for copies in `memory`, as pods have one."""
    place.mkdir()
    told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 1 << 30, "directory": str(place / "memory")}
    options = {"memoryBackup": told, "warmStart": True, "terminationGraceSeconds": 60, "memberTimeoutSeconds": 6}
    with pytest.MonkeyPatch.context() as patch, LocalGang(place, {"worker": 2}, **options) as gang:
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        patch.setenv("TFTRAINING_DIR", str(gang.directory))
        (script := place / "train.py").write_text(
            stepwise_fit.program(batch="7", dropout="0.2", normalization=normalization)
        )
        gang.command = [sys.executable, str(script)]
        gang.start()
        yield gang
        assert gang.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}, gang.describe()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """How the training ends undisturbed, in each worker."""
    with training(tmp_path_factory.mktemp("undisturbed") / "gang") as gang:
        pass
    assert ends(gang)[0] != ends(gang)[1]  # each worker has its own moving averages
    return ends(gang)


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
def test_new_pods_resume_where_the_others_are_and_end_with_the_same_bytes(
    tmp_path: Path, undisturbed: list[bytes], number: int, names: list[str], source: str
) -> None:
    with training(tmp_path / "gang") as gang:
        gang.wait_for(lambda: (gang.directory / "steps-0").exists() and steps(gang, 0)[-1:] >= [150], PATIENCE)
        for name in names:
            gang.kill(name, number)
        for name in names:
            gang.launchers[name].wait()
            shutil.rmtree(next((gang.place / "memory").glob(f"*-{name}")))
        gang.start(*names)
    assert "resumed from memory at epoch 2, step " in gang.log(names[0]), gang.describe()
    assert max(lost(gang), default=0) <= (INTERVAL if number == KILLED else 0), jumps(steps(gang, 0))
    told_by_launcher = {"Peer": "fetched the backup in memory", "Storage": "loaded the backup in memory"}
    assert told_by_launcher[source] in gang.log(names[0])
    assert ends(gang) == undisturbed


def test_each_worker_goes_on_with_its_own_random_numbers_from_a_backup_that_the_chief_has_saved(tmp_path: Path) -> None:
    """Both pods are lost. There are no moving averages, of which a backup has the mean."""
    with training(tmp_path / "undisturbed", "LayerNormalization") as gang:
        pass
    expected = ends(gang)
    with training(tmp_path / "gang", "LayerNormalization") as gang:
        gang.wait_for(lambda: (gang.directory / "steps-0").exists() and steps(gang, 0)[-1:] >= [150], PATIENCE)
        for name in gang.names:
            gang.kill(name, KILLED)
        for name in gang.names:
            gang.launchers[name].wait()
        shutil.rmtree(gang.place / "memory")
        (gang.place / "memory").mkdir()
        gang.start()
    ((_, first),) = jumps(steps(gang, 0))
    assert first == 101, "behind the backup of the first epoch"
    assert ends(gang) == expected

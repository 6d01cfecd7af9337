"""A killed worker costs a few steps, not the epoch: real launchers, and TensorFlow in two workers.

The program's input depends on the step alone, so a training that was killed has to end with the same bytes in every
variable as one that was not. Each worker keeps a line for every step that it makes in `steps-<worker>`.
"""

from __future__ import annotations

import fcntl
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang
from tests.support.trainer import stepwise_fit

PATIENCE, RESTART_PATIENCE = 240.0, 30.0  # seconds
SHM = Path("/dev/shm")
INTERVAL = 16  # of the first copies; at 100 % of the time it gets shorter on any machine

TWO_REPLICAS = """
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
"""


MIXED_PRECISION = 'keras.mixed_precision.set_global_policy("mixed_float16")'


def is_abandoned(path: Path) -> bool:
    """Whether a launcher has left this directory. Launchers of tests that run beside this one hold theirs locked."""
    if not path.name.startswith("tftraining-"):
        return False
    try:
        with (path / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    return path.exists()


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LocalGang]]:
    """A function that trains to the end, with these kills; the gang that has done so."""
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    before = set(SHM.iterdir())

    def run(name: str, kills: str = "", percent: float = 1, change: str = "", **program: str) -> LocalGang:
        place = tmp_path / name
        place.mkdir()
        monkeypatch.setenv("TFTRAINING_DIR", str(place / "job"))
        monkeypatch.setenv("KILLS", kills)
        told = {"mode": "Auto", "maxOverheadPercent": percent, "sizeLimit": 1 << 30}
        options = {"memoryBackup": told, "warmStart": bool(kills), "terminationGraceSeconds": 60}  # to write `end-1`
        with LocalGang(place, {"worker": 2}, **options) as gang:
            script = place / "train.py"
            script.write_text(stepwise_fit.program(**program))
            gang.command = [sys.executable, str(script)]
            gang.start()
            if change:
                gang.wait_for((gang.directory / f"killed-{kills}").exists, PATIENCE)
                script.write_text(stepwise_fit.program(**program) + change)
            patience = PATIENCE + RESTART_PATIENCE * len(kills.split())
            assert gang.wait(patience) == {"worker-0": 0, "worker-1": 0}, gang.describe()
        return gang

    yield run
    assert [path for path in set(SHM.iterdir()) - before if is_abandoned(path)] == []


def steps(gang: LocalGang, worker: int) -> list[int]:
    return [int(line) for line in (gang.directory / f"steps-{worker}").read_text().split()]


def ends(gang: LocalGang) -> list[bytes]:
    return [(gang.directory / f"end-{worker}").read_bytes() for worker in (0, 1)]


def jumps(made: list[int]) -> list[tuple[int, int]]:
    """The last step before each restart, and the first one after it."""
    return [(one, other) for one, other in itertools.pairwise(made) if other != one + 1]


def lost(gang: LocalGang) -> list[int]:
    """How many steps the restarts have repeated, in each worker."""
    return [last + 1 - first for worker in (0, 1) for last, first in jumps(steps(gang, worker))]


@pytest.mark.parametrize(
    ("kills", "steps_per_epoch"),
    [
        ("1@60 0@95", 40),
        pytest.param("1@140 0@270 1@271", 100, marks=pytest.mark.slow_fault),  # again, right after it has resumed
    ],
)
def test_kills_change_no_byte_of_the_end_and_cost_an_interval_at_most(
    trained: Callable[..., LocalGang], kills: str, steps_per_epoch: int
) -> None:
    undisturbed = trained("undisturbed", steps=str(steps_per_epoch))
    killed = trained("killed", kills, percent=100, steps=str(steps_per_epoch))
    assert ends(killed) == ends(undisturbed)
    assert ends(undisturbed)[0] != ends(undisturbed)[1]  # each worker has its own moving averages
    for worker in (0, 1):
        assert steps(undisturbed, worker) == list(range(1, 3 * steps_per_epoch + 1))
        assert sorted(set(steps(killed, worker))) == list(range(1, 3 * steps_per_epoch + 1))
    assert max(lost(killed)) <= INTERVAL
    log = killed.log("worker-0")
    assert log.count("resumed from memory at epoch 2, step ") == 1
    assert log.count("resumed from memory at epoch 3, step ") == len(kills.split()) - 1


@pytest.mark.slow_fault
@pytest.mark.parametrize("devices", [TWO_REPLICAS, MIXED_PRECISION], ids=["two replicas", "mixed precision"])
def test_two_replicas_in_each_worker_and_mixed_precision(trained: Callable[..., LocalGang], devices: str) -> None:
    undisturbed = trained("undisturbed", devices=devices)
    killed = trained("killed", "0@150", percent=100, devices=devices)
    assert ends(killed) == ends(undisturbed)
    assert killed.log("worker-0").count("resumed from memory") == 1


@pytest.mark.slow_fault
def test_another_program_does_not_take_the_copy(trained: Callable[..., LocalGang]) -> None:
    changed = trained("changed", "1@170", percent=100, change="# another version\n")
    assert "the copy in memory is of another training or another program" in changed.log("worker-0")
    assert "resumed from memory" not in changed.log("worker-0")
    assert jumps(steps(changed, 0))[0][1] == 101  # Keras' own backup: the epoch begins again


@pytest.mark.slow_fault
def test_a_failure_after_fit_trains_nothing_again(trained: Callable[..., LocalGang]) -> None:
    undisturbed = trained("undisturbed")
    failed = trained("failed", "1@250", percent=100, fails="yes")
    assert failed.log("worker-0").count("resumed from memory") == 1
    assert "RuntimeError: after fit" in failed.log("worker-0")
    assert "restoring its end" in failed.log("worker-0")
    for worker in (0, 1):
        assert len(jumps(steps(failed, worker))) == 1
    # The copy of the end has the mean of the moving averages, as a checkpoint of TensorFlow has.
    assert len(ends(failed)[0]) == len(ends(undisturbed)[0])

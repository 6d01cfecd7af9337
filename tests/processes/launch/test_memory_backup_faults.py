"""Backups in memory when something goes wrong at the worst moment: real launchers, and TensorFlow in two workers.

A fault is made in the program itself, which is killed at the point, or takes the memory; the file systems and the
launchers are real.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes.launch.test_full_disk import WORDS, fill, small_disk
from tests.processes.launch.test_memory_backups import INTERVAL, PATIENCE, ends, jumps, lost, steps
from tests.support.launchers.gang import LocalGang
from tests.support.ports import free_ports
from tests.support.trainer import stepwise_fit

pytestmark = pytest.mark.slow_fault

# Runs before the training. The program dies once at each `<worker>:<point>`, each time in another round.
DIES_IN_COPY_RENAME_RESTORE = """
import sys
from _tftraining.memory_backup import copy_file, variable_values
POINTS = ["1:copy", "0:before the rename", "1:after the rename", "0:restore"]
TASK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
calls = {}

def die_at(point, least):
    calls[point] = calls.get(point, 0) + 1
    before = f"{os.environ['TFTRAINING_DIR']}/died-"
    died = [each for each in POINTS if os.path.exists(before + each)]
    rounds = [open(before + each).read() for each in died]
    due = f"{TASK}:{point}" in POINTS[len(died) :][:1] and calls[point] >= least
    if due and os.environ["TFTRAINING_ROUND"] not in rounds:
        with open(before + POINTS[len(died)], "w") as file:
            file.write(os.environ["TFTRAINING_ROUND"])
        os.kill(os.getpid(), signal.SIGKILL)

class Renames:
    def __getattr__(self, name):
        return getattr(os, name)

    def rename(self, old, new):
        is_commit = os.path.basename(new).startswith("copy-")
        if is_commit:
            die_at("before the rename", 3)
        os.rename(old, new)
        if is_commit:
            die_at("after the rename", 3)

def in_halves(method, point, least):
    def do(self, views, *more, **named):
        method(self, views[: len(views) // 2], *more, **named)
        die_at(point, least)
        method(self, views, *more, **named)
    return do

copy_file.os = Renames()
values = variable_values.VariableValues
values.copy_to = in_halves(values.copy_to, "copy", 3)
values.restore_from = in_halves(values.restore_from, "restore", 1)
"""
# With its third copy the second worker takes what is left below the container's limit.
BALLAST = """
from _tftraining.memory_backup import keras_state
TASK = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
state, ballast, copied = keras_state.FitState, [], []
copy_to = state.copy_to

def copy_and_grow(self, views):
    copy_to(self, views)
    copied.append(1)
    if TASK == 1 and len(copied) == 3:
        limit = json.loads(os.environ["TFTRAINING_MEMORY_BACKUP"])["memoryLimit"]
        used = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))
        ballast.append(np.ones(int(0.97 * limit) - used, np.uint8))
        open(f"{os.environ['TFTRAINING_DIR']}/grown", "w").close()

state.copy_to = copy_and_grow
"""


class Training(LocalGang):
    """Two workers that train the program of stepwise_fit, each with its own directory for copies in `memory`."""

    def __init__(self, place: Path, options: dict[str, Any] | None = None, **program: str) -> None:
        place.mkdir(exist_ok=True)
        self.memory = place / "memory"
        self.memory.mkdir()
        told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 1 << 30, "directory": str(self.memory)}
        told |= (options or {}).pop("memoryBackup", {})
        general = {"memoryBackup": told, "warmStart": True, "terminationGraceSeconds": 60, "memberTimeoutSeconds": 6}
        super().__init__(place, {"worker": 2}, **general, **(options or {}))
        script = place / "train.py"
        script.write_text(stepwise_fit.program(**program))
        self.command = [sys.executable, str(script)]

    def finish(self) -> None:
        """Wait for the end of the training."""
        assert self.wait(PATIENCE) == {"worker-0": 0, "worker-1": 0}, self.describe()

    def wait_for_step(self, step: int) -> None:
        """Wait until the first worker has made this step."""
        path = self.directory / "steps-0"
        self.wait_for(lambda: path.exists() and steps(self, 0)[-1:] >= [step], PATIENCE)

    def reason(self) -> str:
        """Why the gang makes no copies; "" if it makes some."""
        return str((self.status().get("backup") or {}).get("reason") or "")

    def files(self) -> list[str]:
        """The files of copies of all members, complete or not."""
        return sorted(path.name for path in self.memory.rglob("*") if path.name.startswith(("copy-", "free-")))


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "job"))


def test_a_kill_inside_a_copy_a_rename_or_a_restore_changes_no_byte_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "undisturbed" / "job"))
    with Training(tmp_path / "undisturbed") as undisturbed:
        undisturbed.start()
        undisturbed.finish()
    monkeypatch.setenv("TFTRAINING_DIR", str(tmp_path / "killed" / "job"))
    with Training(tmp_path / "killed", devices=DIES_IN_COPY_RENAME_RESTORE) as killed:
        killed.start()
        killed.finish()
    points = {path.name.partition("-")[2] for path in killed.directory.glob("died-*")}
    assert points == {"1:copy", "0:before the rename", "1:after the rename", "0:restore"}
    assert ends(killed) == ends(undisturbed)
    # A copy that was cut off costs one interval more. The round that died while it restored has made no step.
    assert max(lost(killed)) <= 2 * INTERVAL
    assert killed.log("worker-0").count("resumed from memory at epoch ") == 3
    assert "is dropped" not in killed.log("worker-0"), "a signal is no reason to doubt a copy"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("is_full", [False, True], ids=["too small", "full"])
def test_a_full_file_system_in_memory_ends_the_backups_and_not_the_training(tmp_path: Path, is_full: bool) -> None:
    with Training(tmp_path, width="20000", steps="60") as gang, small_disk(gang.memory):
        if is_full:
            fill(gang.memory)
        gang.start()
        if is_full:
            gang.wait_for(lambda: WORDS in gang.log("worker-0"), PATIENCE)
        else:
            gang.wait_for(lambda: WORDS in gang.reason(), PATIENCE)
        gang.wait_for(lambda: not gang.files(), PATIENCE)
        gang.finish()
    assert steps(gang, 0) == list(range(1, 181))


# The last epoch waits until the test has looked.
UNTIL_SEEN = '0.3 if step > 200 and not os.path.exists(f"{directory}/seen") else 0.005'


def test_memory_that_gets_short_ends_the_backups_of_all_members(tmp_path: Path) -> None:
    limit = {"memoryBackup": {"memoryLimit": 1_500_000_000}}
    with Training(tmp_path, limit, devices=BALLAST, pause=UNTIL_SEEN) as gang:
        gang.start()
        gang.wait_for_step(201)
        assert (gang.directory / "grown").exists(), f"a third copy was made: {gang.reason()}"
        gang.wait_for(lambda: "memory is short" in gang.reason() and not gang.files(), PATIENCE)
        (gang.directory / "seen").touch()
        gang.finish()
    assert steps(gang, 0) == list(range(1, 301))


def test_a_gang_whose_copies_are_all_lost_goes_on_from_the_storage_and_says_so(tmp_path: Path) -> None:
    with Training(tmp_path) as gang:
        gang.start()
        gang.wait_for_step(150)
        gang.kill("worker-1")
        shutil.rmtree(next(gang.memory.glob("*-worker-1")))
        gang.wait_for(lambda: gang.status() and not gang.status().get("pid"), PATIENCE)
        for path in gang.memory.rglob("copy-*"):
            path.unlink()
        gang.start("worker-1")
        last = gang.wait_for_phase("Training", 2, PATIENCE)["lastRestart"]
        gang.finish()
    assert (last["resumedFrom"], last["resumedFromStep"]) == ("Storage", 100)
    assert [first for _, first in jumps(steps(gang, 0))] == [101], "the epoch begins again"


# Alone, a worker waits for the other one, however long that takes to import TensorFlow.
PAUSE = '0.3 if len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]) == 1 else 0.005'


def test_a_gang_that_shrinks_and_grows_keeps_its_steps(tmp_path: Path) -> None:
    ports = next(port for port in free_ports(19) if port % 10 == 0) // 10
    options = {"workerAddress": f"127.0.0.1:{ports}%d", "minReplicas": 1}
    with Training(tmp_path, options, steps="200", pause=PAUSE) as gang:
        gang.cluster = {"worker": [f"127.0.0.1:{ports}{index}" for index in range(2)]}
        gang.start()
        gang.wait_for_step(220)
        gang.kill("worker-1")
        shutil.rmtree(next(gang.memory.glob("*-worker-1")))
        shrunk = gang.wait_for_phase("Training", 2, PATIENCE)
        gang.start("worker-1")
        grown = gang.wait_for_phase("Training", 3, PATIENCE)
        gang.finish()
    last = {each["lastRestart"]["reason"]: each["lastRestart"] for each in (shrunk, grown)}
    assert {reason: told["resumedFrom"] for reason, told in last.items()} == {"MemberLost": "Memory", "Grown": "Peer"}
    assert last["MemberLost"]["lostSteps"] <= INTERVAL
    assert last["Grown"]["lostSteps"] == 0, "a copy is made before newcomers join"
    assert "fetched the backup in memory" in gang.log("worker-1")
    assert sorted(set(steps(gang, 0))) == list(range(1, 601))


# Makes copies, dies in the middle of one, and leaves everything to the launcher. Without TensorFlow, for many rounds.
MORTAL = """
import json, os, signal
import tftraining
from _tftraining.memory_backup import copy_file
told, number = json.loads(os.environ[copy_file.VARIABLE]), int(os.environ["TFTRAINING_ROUND"])
kept = told["restore"]
assert bool(kept) == (number > 1), told
slots = copy_file.Slots(told["directory"], {size}, tuple(kept) if kept else None)
slots.reserve()
first = kept[1] if kept else 0
for step in range(first + 1, first + 4):
    slots.begin()[copy_file.HEAD :] = bytes([step % 256]) * {size}
    slots.commit(number, step, {{"step": step, "exponent": 4}})
slots.begin()
tftraining.report(step=step)
tftraining.report(checkpoint=step)  # progress: no back-off
if not os.path.exists("{stop}"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
SIZE = 1_000_000
ROUNDS, LONGEST = 1000, 150.0  # seconds


def test_a_thousand_rounds_leave_no_memory_behind(tmp_path: Path) -> None:
    memory, stop = tmp_path / "memory", tmp_path / "stop"
    told = {"mode": "Auto", "maxOverheadPercent": 1, "directory": str(memory)}
    with LocalGang(tmp_path, {"worker": 1}, memoryBackup=told) as gang:
        (script := tmp_path / "mortal.py").write_text(MORTAL.format(size=SIZE, stop=stop))
        gang.command = [sys.executable, str(script)]
        gang.start()
        end = time.monotonic() + LONGEST
        gang.wait_for(lambda: reached(gang) >= 20, LONGEST)
        first, before = reached(gang), usage(gang, memory)
        gang.wait_for(lambda: reached(gang) >= ROUNDS or time.monotonic() > end, 2 * LONGEST)
        last, after = reached(gang), usage(gang, memory)
        stop.touch()
        assert gang.wait() == {"worker-0": 0}, gang.describe()
    print(json.dumps({first: before, last: after}))
    assert last >= first + 100, "rounds"
    assert max(before["files"], after["files"]) <= 2.2 * SIZE
    assert after["descriptors"] <= before["descriptors"] + 4
    assert after["resident"] <= before["resident"] + 20e6
    assert list(memory.iterdir()) == []


def reached(gang: LocalGang) -> int:
    """The present round."""
    return int(gang.status().get("round") or 0)


def usage(gang: LocalGang, memory: Path) -> dict[str, int]:
    """What the launcher uses, and the bytes of its copies. A round may begin meanwhile and rename files."""
    process = Path(f"/proc/{gang.launchers['worker-0'].pid}")
    pages = int((process / "statm").read_text().split()[1])
    blocks = 0
    for path in memory.rglob("*-*"):
        with contextlib.suppress(FileNotFoundError):
            blocks += path.stat().st_blocks if path.is_file() else 0
    return {
        "resident": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(list((process / "fd").iterdir())),
        "files": blocks * 512,
    }

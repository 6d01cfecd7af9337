"""The environment of the program in a round, and what its launcher holds behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.launchers.copies import write_copy
from tftraining.launch.config.settings import MemoryBackupSettings, read
from tftraining.launch.failure.exit import Exit
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.process.program import Program
from tftraining.launch.progress import Snapshot
from tftraining.launch.rendezvous.backup_control import BackupControl
from tftraining.launch.rendezvous.chief_contact import ChiefContact
from tftraining.launch.rendezvous.program_control import ProgramControl
from tftraining.launch.rendezvous.program_watch import ProgramWatch
from tftraining.launch.rendezvous.protocol import Frame
from tftraining.launch.success_record import FileRecord

TF_CONFIG = json.dumps({"cluster": {"worker": ["a-0:1"]}, "task": {"type": "worker", "index": 0}})
LAUNCHER = {
    "job": {"namespace": "n", "name": "j", "uid": "u"},
    "attempt": 1,
    "rendezvous": "127.0.0.1:1",
    "statusPort": 2,
    "secretFile": "key",
    "workerAddress": "a-%d:1",
}


class RecordingProgram(Program):
    """Records the environment of each start instead of starting a process."""

    def __init__(self, directory: Path) -> None:
        super().__init__(["true"], warm=False, grace=0.0, directory=directory)
        self.environments: asyncio.Queue[Mapping[str, str]] = asyncio.Queue()

    async def start(self, env: Mapping[str, str], on_exit: Callable[[Exit], None], deadline: float = math.inf) -> None:
        self.environments.put_nowait(env)


@pytest.mark.parametrize("keras", [{}, {"keras": "Legacy"}, {"keras": "Own"}], ids=str)
async def test_a_gang_that_grows_to_two_requests_legacy_keras_in_its_first_round(
    tmp_path: Path, keras: dict[str, str]
) -> None:
    """An operator of an earlier version names no Keras; a job with its own Keras keeps that."""
    settings = read({"TF_CONFIG": TF_CONFIG, "TFTRAINING_LAUNCHER": json.dumps({**LAUNCHER, **keras})})
    program, orders = RecordingProgram(tmp_path), asyncio.Queue[Frame]()
    chief = ChiefContact(settings, "127.0.0.1:1", program.log, FileRecord(None, ""))
    control = ProgramControl(settings, program, {"TF_CONFIG": TF_CONFIG}, chief)
    executing = asyncio.create_task(control.execute(orders))
    for workers in (1, 2):
        frame: Frame = {"type": "start", "round": workers, "ledger": {}, "workers": [[0, workers - 1]], "size": workers}
        orders.put_nowait(frame)
        environment = await program.environments.get()
        asked = workers == 2 and keras != {"keras": "Own"}
        assert (environment["TFTRAINING_ROUND"], legacy_keras.REQUEST in environment) == (str(workers), asked)
    executing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await executing
    await program.close()


class FailedProgram(RecordingProgram):
    """A program whose main thread has failed, and that sees no GPU."""

    gpu_count = 0
    pid = 1 << 22

    def end_as_its_main_thread(self, code: int) -> None:
        self.ended = code


def test_a_program_that_has_failed_but_for_a_thread_is_ended_and_one_without_gpus_is_told(tmp_path: Path) -> None:
    policy = {"policy": {"terminationGraceSeconds": 5}, "gpus": 1}
    settings = read({"TF_CONFIG": TF_CONFIG, "TFTRAINING_LAUNCHER": json.dumps({**LAUNCHER, **policy})})
    program = FailedProgram(tmp_path)
    watch = ProgramWatch(settings, program)
    failed = Snapshot(step=4, main_exit=3)
    assert watch.look(failed, 1.0, is_running=True) == {"stuck": 0.0, "noGpu": True, "lingers": False}
    assert not hasattr(program, "ended")
    watch.look(failed, 1.0 + settings.policy.termination_grace_seconds, is_running=True)
    assert program.ended == 3


async def test_a_member_that_is_ready_again_has_no_suspect_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no later launcher of the chief, which knows of no suspect, can choose one."""
    settings = read({"TF_CONFIG": TF_CONFIG, "TFTRAINING_LAUNCHER": json.dumps(LAUNCHER)})
    program, orders, sent = RecordingProgram(tmp_path), asyncio.Queue[Frame](), asyncio.Queue[Frame]()
    chief = ChiefContact(settings, "127.0.0.1:1", program.log, FileRecord(None, ""))
    control = ProgramControl(settings, program, {"TF_CONFIG": TF_CONFIG}, chief)
    monkeypatch.setattr(control, "send", lambda **frame: sent.put_nowait(frame))
    store = MemoryStore.temporary(MemoryBackupSettings(), tmp_path)
    control.backups = BackupControl(settings, lambda: b"secret", store, program.log)
    for copy in ((1, 32), (1, 48), (2, 64)):
        write_copy(store.directory, *copy)
    executing = asyncio.create_task(control.execute(orders))
    stop: Frame = {"type": "stop", "round": 2, "why": "a fault", "dump": False, "suspects": [[1, 48], [2, 0]]}
    for frame in (stop, {**stop, "round": 3, "suspects": None}):
        orders.put_nowait(frame)
        ready = await sent.get()
        assert (ready["type"], ready["copiesHeld"]) == ("ready", [[1, 32]])
    executing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await executing
    await control.backups.close(ended=True)
    await program.close()

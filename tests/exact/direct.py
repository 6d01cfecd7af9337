"""One worker without a launcher: the warm interpreter forks each round of the program, with the launcher's settings.

A round costs about a second, because TensorFlow is imported once. It must leave no process, and no file in memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tftraining
from tests.exact.cells import Cell
from tftraining.launch.in_user_process import hooks
from tftraining.launch.in_user_process.memory_backup import copy_file, copy_request
from tftraining.launch.process import progress_reader
from tftraining.launch.process.warm_start import ZYGOTE

PROGRAM = Path(__file__).with_name("program.py")
ROOT = Path(__file__).parents[2]
TRAINER = Path(tftraining.__file__).parents[1]
SHM = Path("/dev/shm")
ROUND_SECONDS = 120.0
PR_SET_CHILD_SUBREAPER = 36
UID = "exact"


def environment(place: Path) -> dict[str, str]:
    """The environment of every program of tests.exact. A killed one leaves files of AutoGraph in TMPDIR."""
    return {
        **os.environ,
        "TMPDIR": str(place),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_USE_LEGACY_KERAS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{TRAINER}:{ROOT}",
    }


class Interpreter:
    """The warm interpreter: one process that has imported TensorFlow, and forks the program."""

    def __init__(self, place: Path) -> None:
        self.log = place / "output"
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the forked programs become our children
        own, its = socket.socketpair()
        command = [sys.executable, str(ZYGOTE), str(its.fileno()), "tests.exact"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment(place),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[its.fileno()],
            )
        its.close()
        self._socket, self._lines = own, own.makefile("rb")
        self._send(module=False, target=str(PROGRAM), arguments=[])
        self._receive("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        self._lines.close()
        self._socket.close()

    def _send(self, **message: object) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self, wanted: str) -> Any:
        while line := self._lines.readline():
            told = json.loads(line)
            if wanted in told:
                return told[wanted]
            if "refused" in told:
                raise RuntimeError(f"the program cannot be forked: {told['refused']}")
        raise RuntimeError(f"the warm interpreter has ended: {self.log.read_text()[-2000:]}")

    def run(self, env: dict[str, str]) -> int:
        """Run the program once; its exit code as `subprocess` has it. TimeoutError after ROUND_SECONDS."""
        self._send(environment=env)
        pid = int(self._receive("pid"))
        self._send(go=time.monotonic() + 30)
        try:
            return self._wait(pid)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def _wait(self, pid: int) -> int:
        end = time.monotonic() + ROUND_SECONDS
        while time.monotonic() < end:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        raise TimeoutError(f"a round took more than {ROUND_SECONDS:.0f} s")


class Direct:
    """Runs cells of one worker."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def run(self, cell: Cell, place: Path, *, backups: bool) -> str:
        """Run the cell in a directory until it ends by itself; "" or what went wrong. `backups`: as the launcher does,
        and with the cell's kills; otherwise alone and undisturbed."""
        (place / "job").mkdir(parents=True)
        kills = cell.kills if backups else ()
        (place / "cell.json").write_text(replace(cell, kills=kills).to_json())
        store = Path(tempfile.mkdtemp(prefix="exact-", dir=SHM))
        before = self._interpreter.log.stat().st_size
        try:
            return self._rounds(cell, place, store, backups)
        except TimeoutError as error:
            return str(error)
        finally:
            shutil.rmtree(store, ignore_errors=True)
            with self._interpreter.log.open("rb") as log, contextlib.suppress(OSError):
                log.seek(before)
                (place / "output").write_bytes(log.read())

    def _rounds(self, cell: Cell, place: Path, store: Path, backups: bool) -> str:
        for number in range(1, len(cell.kills) + 4 if backups else 2):
            env = environment(place) | {
                "TFTRAINING_DIR": str(place / "job"),
                "TFTRAINING_ROUND": str(number),
                "EXACT_CELL": str(place / "cell.json"),
            }
            code = self._interpreter.run(env | (self._told(cell, place, store, number) if backups else {}))
            if code == 0:
                return ""
            if code != -signal.SIGKILL:
                return f"round {number} has failed with {code}"
        return "there were more rounds than kills"

    def _told(self, cell: Cell, place: Path, store: Path, number: int) -> dict[str, str]:
        """The launcher's variables of this round."""
        page = place / f"page-{number}"
        os.close(progress_reader.create(page))
        (store / copy_request.NAME).write_bytes(struct.pack("<Q", 0))
        held = copy_file.held(str(store))
        told = {
            "directory": str(store),
            "percent": 100,
            "restore": held[-1] if held else None,
            "source": "Memory",
            "fetching": False,
            "sizeLimit": 200 << 20,
            "waitSteps": 5,
            "exactness": cell.exactness,
            "uid": UID,
        }
        finished = {"uid": UID, "file": str(place / "finished"), "launcher": "exact"}
        return {
            "TFTRAINING_PROGRESS": str(page),
            copy_file.VARIABLE: json.dumps(told),
            hooks.FINISHED: json.dumps(finished),
        }

"""One launcher process: its start, its output and its end. The runner restarts a launcher that died."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tftraining.launch.failure.cause import is_below
from tftraining.launch.failure.first_step import UNCLEAN
from tftraining.launch.failure.restart_rules import Decision, Failure
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import JobSpec
from tftraining_client.local.line_buffer import LineBuffer
from tftraining_client.local.process_spec import ProcessSpec
from tftraining_client.local.status import Status, read_result

CHUNK = 1 << 16
Output = Callable[[str, list[str]], None]


@dataclass(frozen=True)
class LauncherExit:
    """The end of a launcher: its exit code (128 + n for signal n), and its termination message or {}."""

    code: int
    message: Status

    @property
    def result(self) -> Status:
        """The job's result, if the launcher left one."""
        return self.message if self.message.get("verdict") else {}

    @property
    def wants_new_pod(self) -> bool:
        """Whether the launcher left because something in its container keeps the program from starting."""
        return self.message.get("reason") == UNCLEAN

    def decide_restart(self, spec: JobSpec, replica: Replica) -> Decision:
        """What the job's rules say of the death of that replica's launcher: nobody recreates pods here."""
        return spec.restart_policy.decide(Failure(replica.role, self.code, None, "Error"), has_stepped=True)


class LauncherProcess:
    """The launcher of one replica. `output` receives the replica's name and whole lines."""

    def __init__(self, spec: ProcessSpec, termination_message: Path, output: Output) -> None:
        self.spec = spec
        self.name = str(spec.replica)
        self._termination_message = termination_message
        self._output = output
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process ID; None while no process runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def start(self, ledger: Mapping[str, int]) -> None:
        """Start the process in a session of its own, so that a Ctrl-C at the terminal reaches only `tftj`."""
        self._termination_message.unlink(missing_ok=True)
        spec = self.spec.with_ledger(ledger)
        self._process = await asyncio.create_subprocess_exec(
            *spec.command,
            env=spec.environment,
            cwd=spec.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def wait(self) -> LauncherExit:
        """Pass the output on until the process ends; how it ended."""
        process = self._process
        assert process is not None and process.stdout is not None and process.stderr is not None
        pumps = [asyncio.create_task(self._pump(each)) for each in (process.stdout, process.stderr)]
        code = await process.wait()
        # An orphan of the launcher may hold the pipes open for ever.
        await asyncio.wait(pumps, timeout=1.0)
        for each in pumps:
            each.cancel()
        return LauncherExit(code if code >= 0 else 128 - code, read_result(self._termination_message))

    async def _pump(self, stream: asyncio.StreamReader) -> None:
        lines = LineBuffer()
        while data := await stream.read(CHUNK):
            self._print(lines.feed(data))
        self._print(lines.close())

    def _print(self, lines: list[str]) -> None:
        level = self.spec.environment.get("TF_CPP_MIN_LOG_LEVEL", "")
        if shown := [line for line in lines if not is_below(line, level)]:
            self._output(self.name, shown)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

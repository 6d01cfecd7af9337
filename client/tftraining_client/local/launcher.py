"""One launcher process: its start, its output and its end. The runner restarts a launcher that died."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tftraining_client.local.lines import Lines
from tftraining_client.local.replica import Start
from tftraining_client.local.status import Status, last_words

CHUNK = 1 << 16
Output = Callable[[str, list[str]], None]


@dataclass(frozen=True)
class Ended:
    """The end of a launcher: its exit code (128 + n for signal n), and the verdict in its termination message or {}."""

    code: int
    words: Status


class Launcher:
    """The launcher of one replica. `output` receives the replica's name and whole lines."""

    def __init__(self, start: Start, words: Path, output: Output) -> None:
        self.start = start
        self.name = str(start.replica)
        self._words = words
        self._output = output
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process ID; None while no process runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def begin(self, ledger: Mapping[str, int]) -> None:
        """Start the process in a session of its own, so that a Ctrl-C at the terminal reaches only `tftj`."""
        self._words.unlink(missing_ok=True)
        start = self.start.with_ledger(ledger)
        self._process = await asyncio.create_subprocess_exec(
            *start.command,
            env=start.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )

    async def end(self) -> Ended:
        """Pass the output on until the process ends; how it ended."""
        process = self._process
        assert process is not None and process.stdout is not None and process.stderr is not None
        pumps = [asyncio.create_task(self._pump(each)) for each in (process.stdout, process.stderr)]
        code = await process.wait()
        # An orphan of the launcher may hold the pipes open for ever.
        await asyncio.wait(pumps, timeout=1.0)
        for each in pumps:
            each.cancel()
        return Ended(code if code >= 0 else 128 - code, last_words(self._words))

    async def _pump(self, stream: asyncio.StreamReader) -> None:
        lines = Lines()
        while data := await stream.read(CHUNK):
            if whole := lines.feed(data):
                self._output(self.name, whole)
        if rest := lines.close():
            self._output(self.name, rest)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process runs."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

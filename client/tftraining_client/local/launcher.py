"""One launcher process: its start, what it and its program print, its end. It is started again by the runner."""

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
    """How a launcher ended: its exit code as a shell says it, and the verdict that it left ({} if none)."""

    code: int
    words: Status


class Launcher:
    """`output` gets the replica's name and whole lines."""

    def __init__(self, start: Start, words: Path, output: Output) -> None:
        self.start = start
        self.name = str(start.replica)
        self._words = words
        self._output = output
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The process, None when there is none."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def begin(self, ledger: Mapping[str, int]) -> None:
        """Start the process. It gets a session of its own: a Ctrl-C at the terminal is ours to pass on."""
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
        """Pass on what is printed until the process has ended."""
        process = self._process
        assert process is not None and process.stdout is not None and process.stderr is not None
        pumps = [asyncio.create_task(self._pump(each)) for each in (process.stdout, process.stderr)]
        code = await process.wait()
        # A process that the launcher left behind may hold the pipes open for ever.
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
        """Send a signal, if there is somebody to get it."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

"""The user's program, over all rounds: a facade over its process, its output, its warm interpreter and its progress.

It must never decide when to start or to stop: the rendezvous does. Call all methods in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tftraining.launch.failure.exit import NOT_FOUND, Exit, exit_of
from tftraining.launch.in_user_process import hooks, long_tf_config, stack_dump
from tftraining.launch.in_user_process.shared import tf_config
from tftraining.launch.in_user_process.shared.python_command import imports_sitecustomize
from tftraining.launch.process import oom, progress_reader
from tftraining.launch.process.helpers import run_helper
from tftraining.launch.process.lease import Lease
from tftraining.launch.process.leftovers import Leftovers, OwnPlaces
from tftraining.launch.process.output import Output
from tftraining.launch.process.process_state import handles_signal
from tftraining.launch.process.reaper import Reaper
from tftraining.launch.process.session import Process, StartError, kill_and_wait, spawn
from tftraining.launch.process.warm_start import WarmStartRefused, WarmStarts
from tftraining.launch.progress import Snapshot

__all__ = ["Exit", "Program", "Snapshot"]
NO_PLACE = OwnPlaces(None, alone=False)


def _ignore(_: Exit) -> None:
    """The end of a program that was killed."""


class Program:
    """One command, started in each round, never twice at once. `directory` is scratch space for this object alone;
    what a dead program leaves in the places `own` is removed before the next start."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        warm: bool,
        grace: float,
        directory: Path,
        folds: bool = True,
        own: OwnPlaces = NO_PLACE,
    ) -> None:
        self._command = tuple(command)
        self._grace = grace
        self._directory = directory
        self._reaper = Reaper()
        self._output = Output(folds=folds)
        self._process: Process | None = None
        self._page_fd: int | None = None
        self._starts = 0
        self.mode = ""  # how the last start was made: `warm`, or `plain: <reason>`; "" before the first one
        spared = self._reaper.spared
        self._warm = WarmStarts(command, self._output.write_fds, self._output.log, spared) if warm else None
        self.lease = Lease(self._reaper)
        self._leftovers = Leftovers(own, self._output.log)
        self.is_idle = True  # no process of the program runs
        self._starting: asyncio.Future[None] | None = None
        self._abort = asyncio.Event()
        self._closed = False
        # Of the present start.
        self._env: dict[str, str] = {}
        self._on_exit: Callable[[Exit], None] = _ignore
        self._kills: int | None = None  # the kernel's count of out-of-memory kills before
        self._main_exit: int | None = None  # the exit code of a program that is ended because its main thread has

    @property
    def is_prepared(self) -> bool:
        """Whether all preparation for a start is done."""
        return self._warm is None or self._warm.is_prepared

    @property
    def pid(self) -> int | None:
        """The pid of the program's first process; None when it does not run."""
        return self._process.pid if self._process is not None and self._process.alive else None

    def log(self, line: str) -> None:
        """Write a line of the launcher's own to the log; never blocks, even when nobody reads the log."""
        self._output.log(line)

    def note_failed_member(self, member: str) -> None:
        """Note that another member failed first, so the traceback of this program is a mere consequence. "": no other.

        Holds until the next start.
        """
        self._output.note_failed_member(member)

    async def prepare(self, env: Mapping[str, str]) -> None:
        """Start warming in the background for this environment; TF_CONFIG and TFTRAINING_* may still change."""
        self._reaper.install()
        if self._warm is not None:
            await self._warm.prepare(long_tf_config.pack(env))
            self.lease.spare(self._warm.pid)

    async def run_helper(self, command: Sequence[str], env: Mapping[str, str], seconds: float) -> str:
        """The standard output of a process that is no part of the program; HelperError if it fails or takes longer than
        `seconds`."""
        self._reaper.install()
        return await run_helper(self._reaper, command, env, seconds)

    def pause_warmup(self, wanted: bool) -> None:
        """Pause the warming if `wanted`, else continue it."""
        if self._warm is not None:
            self._warm.pause_warmup(wanted)

    async def start(self, env: Mapping[str, str], on_exit: Callable[[Exit], None], deadline: float = math.inf) -> None:
        """Start the program; `on_exit` is called once at its end, whatever the cause, a failed start included, but for
        a `kill`.

        After the `deadline` (monotonic seconds) no process of it runs, unless the `lease` is renewed before. A `kill`
        during the start cancels the start.
        """
        self._reaper.install()
        page = self._new_page()  # first: from now on nobody must see the progress of the last round
        await self.kill()
        self._abort.clear()
        self._on_exit, self._env = on_exit, long_tf_config.pack({**env, **page})
        self._starting = asyncio.ensure_future(self._start_clean(deadline))
        await asyncio.shield(self._starting)

    async def kill(self) -> None:
        """SIGKILL every process of the program; return when all are gone; log those stuck in the kernel."""
        self._on_exit = _ignore
        if self._process is not None:
            self._process.ended = None
        await self._kill()

    async def _kill(self) -> None:
        if self._starting is not None:
            self._abort.set()
            await asyncio.gather(self._starting, return_exceptions=True)
            self._starting = None
        left = await self._process.kill() if self._process is not None else []
        if left:
            self.log(f"tftraining: processes still exist seconds after SIGKILL: {', '.join(map(str, left))}")
        if self.lease.is_fenced:
            self.log("tftraining: the launcher hung until its lease expired; the lease watchdog killed the program")
        self.lease.end()
        self.is_idle = not left
        self._output.release_held()

    async def terminate(self, grace: float | None = None) -> None:
        """Send SIGTERM, then SIGKILL every process left when the grace period is over or the program has ended. `grace`
        is what is left of that period, in seconds; None: all of it."""
        deadline = asyncio.get_running_loop().time() + (self._grace if grace is None else grace)
        self._abort.set()  # stops a start in progress
        self.signal(signal.SIGTERM)
        while self.pid is not None and (rest := deadline - asyncio.get_running_loop().time()) > 0:
            await self._reaper.wait_for_exit(rest)
        await self._kill()

    def signal(self, number: int) -> None:
        """Forward a signal to the program's first process."""
        if self._process is not None:
            self._process.signal(number)

    def end_as_its_main_thread(self, code: int) -> None:
        """Kill the program, whose main thread has ended: it ends with that exit code, as without its other threads."""
        self._main_exit = code
        self.signal(signal.SIGKILL)

    def dump_stacks(self) -> None:
        """Make the program write every thread's stack to its stderr; works for a Python process with our hooks."""
        page_fd = self._page_fd if self.pid is not None else None
        pid = progress_reader.read_stack_pid(page_fd) if page_fd is not None else None
        if pid is None or not handles_signal(pid, stack_dump.SIGNAL):
            self.log("tftraining: cannot show stacks: the program is not (yet) a Python process with our handler")
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, stack_dump.SIGNAL)

    def snapshot(self) -> Snapshot:
        """The progress of the present round; between rounds, of the last one."""
        return progress_reader.read(self._page_fd) if self._page_fd is not None else Snapshot()

    @property
    def gpu_count(self) -> int | None:
        """How many GPUs TensorFlow lists in the present round, or in the last one; None if unknown."""
        return progress_reader.read_gpu_count(self._page_fd) if self._page_fd is not None else None

    async def close(self) -> None:
        """Kill all processes, pass on the last output, release all resources. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        await self.kill()
        self.lease.close()
        if self._warm is not None:
            await self._warm.close()
        await kill_and_wait(self._reaper)
        self._remove_page()
        self._leftovers.close()  # those of the last program stay, for whoever looks into its failure
        await asyncio.get_running_loop().run_in_executor(None, self._output.close)
        self._reaper.uninstall()

    async def _start_clean(self, deadline: float) -> None:
        """Start once the leftovers of the last program are removed."""
        await self._leftovers.remove()
        if self._page_fd is not None:
            self._leftovers.begin(self._page_path)
        if not self._abort.is_set():
            await self._start(deadline)

    async def _start(self, deadline: float) -> None:
        self._output.begin_round()
        self._main_exit, self.is_idle = None, False
        try:
            await self._start_process(deadline)
        except StartError as error:
            self.log(f"tftraining: {error}")
            ended = Exit(error.code, None, (f"tftraining: {error}",), error.kind)
            asyncio.get_running_loop().call_soon(lambda: self._on_exit(ended))

    async def _start_process(self, deadline: float) -> None:
        """Start a warm or a plain process, unless the start is aborted; StartError if it cannot be started."""
        try:
            if deadline != math.inf:
                self.lease.spare(self._warm.pid if self._warm is not None else None)
                await self.lease.begin(deadline)
        except OSError as error:
            raise StartError(f"cannot start the lease watchdog: {error.strerror}", 126, "") from error
        self._kills = oom.count_kills()
        try:
            if self._warm is None:
                raise WarmStartRefused("spec.launcher.warmStart is false")
            pid = await self._warm.fork(self._env, self._abort)
        except WarmStartRefused as refusal:
            if not self._abort.is_set():
                await self._start_plain_process(str(refusal))
            return
        self._set_mode("warm")
        self._process = Process(pid, self._reaper, self._report_or_start_plainly)
        self._warm.release(self.lease.deadline)  # from now on the reaper sees the end of the fork

    async def _start_plain_process(self, why: str) -> None:
        self._set_mode(f"plain: {why}")
        env = {**self._env, "PYTHONPATH": hooks.python_path(self._env.get("PYTHONPATH", ""))}
        try:
            if long_tf_config.PACKED in env and not imports_sitecustomize(self._command):
                raise StartError(f"cannot start {self._command[0]}: {tf_config.TOO_LONG}", 126, NOT_FOUND)
            pid = spawn(self._command, env, self._output.write_fds, deadline=self.lease.deadline)
            self._process = Process(pid, self._reaper, self._report_or_start_plainly)
        finally:
            await self.prepare(self._env)  # for the next start

    def _report_or_start_plainly(self, status: int) -> None:
        """After the end of the program: start it again if it is a fork that cannot go on, else report how it ended."""
        page_fd = self._page_fd if self.mode == "warm" else None
        variable = progress_reader.read_changed_variable(page_fd) if page_fd is not None else ""
        if variable and not self._abort.is_set():
            self._starting = asyncio.ensure_future(self._start_plainly(variable))
        else:
            self._on_exit(self._make_exit(status))

    async def _start_plainly(self, variable: str) -> None:
        """Start plainly after a fork has ended itself at its import of TensorFlow, because it had set `variable`, or
        changed what the import finds."""
        verb = "set" if variable.isidentifier() else "changed"
        if self._warm is not None:
            await self._warm.disable(
                f"it {verb} {variable} before importing TensorFlow; restarting it without the warm interpreter"
            )
        if self._process is not None:
            await self._process.kill()
        if not self._abort.is_set():
            self._env |= self._new_page()  # the old one still names the variable
            await self._start_clean(self.lease.deadline)

    def _make_exit(self, status: int) -> Exit:
        """How the program ended, by the status of waitpid(2)."""
        lines, exception = self._output.lines(), self._output.exception()
        status = status if self._main_exit is None else self._main_exit << 8
        return exit_of(status, lines, oom.has_risen(self._kills, oom.count_kills()), exception)

    def _set_mode(self, mode: str) -> None:
        if self._warm is not None and mode not in (self.mode, "warm"):
            self.log(f"tftraining: cold start: {mode.partition(': ')[2]}")
        self.mode = mode

    def _new_page(self) -> dict[str, str]:
        """Create the next round's progress page; the environment variable that tells the program its path."""
        self._remove_page()
        self._starts += 1
        try:
            self._page_fd = progress_reader.create(self._page_path)
        except OSError as error:
            self.log(f"tftraining: cannot create the progress page: {error}")
            return {}
        return {hooks.PROGRESS: str(self._page_path)}

    @property
    def _page_path(self) -> Path:
        """The progress page of the present start."""
        return self._directory / f"progress-{os.getpid()}-{self._starts}"

    def _remove_page(self) -> None:
        if self._page_fd is not None:
            with contextlib.suppress(OSError):
                self._page_path.unlink()
            os.close(self._page_fd)
            self._page_fd = None

"""The launcher's side of the warm interpreter (zygote.py): starts it, asks it for forks, and decides if it is usable.

It must never make a start noticeably later than a plain one. So a start waits for an interpreter that still imports,
because a plain start would import as long, but not for one that does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from tftraining.launch.config import proxies
from tftraining.launch.in_user_process import legacy_keras
from tftraining.launch.in_user_process.shared.python_command import Invocation, parse_invocation
from tftraining.launch.process.session import StartError, spawn
from tftraining.launch.wait_for import wait_for

ZYGOTE = Path(__file__).parents[1] / "in_user_process" / "zygote.py"
# The last argument of the interpreter, for readers of ps. It must not contain the program's name: a user who kills the
# program by name must not kill the interpreter that starts it again.
TITLE = "tftraining: warm interpreter that forks the training program"
HELLO_SECONDS = 60.0  # an interpreter on a cold disk may take this long to come up
IMPORT_SECONDS = 300.0
FORK_SECONDS = 10.0


class WarmStartRefused(Exception):
    """The program needs a plain start; the message says why."""


def same_for_imports(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two environments differ only in variables that change between rounds and are read after the imports."""
    return _lasting_variables(one) == _lasting_variables(other)


def _may_change(name: str) -> bool:
    """Whether the variable may change from round to round."""
    own = name == "TF_CONFIG" or name.startswith("TFTRAINING_")
    return (own and name != legacy_keras.REQUEST) or name in proxies.EXEMPTIONS


def _lasting_variables(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not _may_change(name)}


class WarmInterpreter:
    """One interpreter for one invocation and one environment. `log` logs a line for people."""

    def __init__(
        self, invocation: Invocation, env: Mapping[str, str], log: Callable[[str], None], spared: set[int]
    ) -> None:
        self._invocation = invocation
        self._env = dict(env)
        self._log = log
        self._spared = spared
        self.pid: int | None = None
        self.was_ready = False
        #: Why it forks no more; "" while it may.
        self.refusal = ""
        self._hello = asyncio.Event()
        self._decided = asyncio.Event()
        self._paused = False
        self._answer: asyncio.Future[int | str] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    def matches(self, env: Mapping[str, str]) -> bool:
        """Whether a program with this environment would do the same imports."""
        return same_for_imports(self._env, env)

    @property
    def is_decided(self) -> bool:
        """Whether the interpreter has turned out to be usable or unusable."""
        return self._decided.is_set()

    async def start(self, outputs: tuple[int, int]) -> None:
        """Start the interpreter, which imports in the background. Never raises."""
        launcher_socket, interpreter_socket = socket.socketpair()
        invocation = self._invocation
        command = [invocation.python, *invocation.options, str(ZYGOTE), str(interpreter_socket.fileno()), TITLE]
        try:
            self.pid = spawn(command, self._env, outputs, [interpreter_socket.fileno()])
        except StartError as error:
            launcher_socket.close()
            self._mark_unusable(str(error))
            return
        finally:
            interpreter_socket.close()
        self._spared.add(self.pid)
        reader, self._writer = await asyncio.open_connection(sock=launcher_socket)
        self._send(module=invocation.module, target=invocation.target, arguments=list(invocation.arguments))
        self._listening = asyncio.ensure_future(self._listen(reader))

    def pause_warmup(self, paused: bool) -> None:
        """Pause the import if `paused` (SIGSTOP), else continue it. A ready interpreter costs nothing."""
        if self.pid is None or self.refusal or paused == self._paused or (paused and self.is_decided):
            return
        self._paused = paused
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGSTOP if paused else signal.SIGCONT)

    async def wait_until_ready(self) -> None:
        """Return when the interpreter can fork; WarmStartRefused if it cannot or does not answer."""
        try:
            await wait_for(self._hello.wait(), HELLO_SECONDS)
            await wait_for(self._decided.wait(), IMPORT_SECONDS)
        except asyncio.TimeoutError:
            self.kill("it did not answer")
        if self.refusal:
            raise WarmStartRefused(self.refusal)

    async def fork(self, env: Mapping[str, str]) -> int:
        """The pid of a new process, our child, that runs the program once `release` is called.

        WarmStartRefused if there is none, and then none will run."""
        self._answer = asyncio.get_running_loop().create_future()
        self._send(environment=dict(env))
        try:
            answer = await wait_for(asyncio.shield(self._answer), FORK_SECONDS)
        except asyncio.TimeoutError:
            self.kill("it did not answer")
            raise WarmStartRefused(self.refusal) from None
        if isinstance(answer, str):
            raise WarmStartRefused(answer)
        return answer

    def release(self, deadline: float) -> None:
        """Let the forked process run the program, unless the deadline (monotonic seconds) is over by then."""
        self._send(go=deadline)

    def kill(self, why: str) -> None:
        """Kill the interpreter; programs that it has forked run on."""
        if self.pid is not None and not self.refusal:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        self._mark_unusable(f"the warm interpreter was killed: {why}")

    async def close(self) -> None:
        """Kill the interpreter and release all resources."""
        self.kill("it is no longer needed")
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def _send(self, **message: object) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                self._handle_message(json.loads(line))
        self._mark_unusable("the warm interpreter died")

    def _handle_message(self, message: dict[str, Any]) -> None:
        self._hello.set()
        if "log" in message:
            self._log(str(message["log"]))
        elif "ready" in message:
            self.was_ready = True
            self._decided.set()
        elif "pid" in message:
            self._resolve_fork(int(message["pid"]))
        elif "refused" in message and self.was_ready:
            self._resolve_fork(str(message["refused"]))  # refuses this fork only; the next one may work
        elif "refused" in message:
            self._mark_unusable(str(message["refused"]))

    def _resolve_fork(self, answer: int | str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _mark_unusable(self, reason: str) -> None:
        if not self.refusal:
            self.refusal = reason
            self._spared -= {self.pid}
        self._hello.set()
        self._decided.set()
        self._resolve_fork(reason)


class WarmStarts:
    """Warm interpreters for a command, one at a time: a new one after a change of the environment or a death. One that
    can fork is among the `spared` processes."""

    MAX_DEATHS = 3  # after so many deaths all starts are plain

    def __init__(
        self, command: Sequence[str], outputs: tuple[int, int], log: Callable[[str], None], spared: set[int]
    ) -> None:
        self._invocation = parse_invocation(command)
        self._outputs = outputs
        self._log = log
        self._spared = spared
        self._deaths = 0
        self._interpreter: WarmInterpreter | None = None

    @property
    def pid(self) -> int | None:
        """The pid of an interpreter that can fork, else None: another process may have the pid of a dead one."""
        return self._interpreter.pid if self._interpreter is not None and not self._interpreter.refusal else None

    @property
    def is_prepared(self) -> bool:
        """Whether a start would not have to wait for an interpreter."""
        return self._interpreter is None or self._interpreter.is_decided

    async def prepare(self, env: Mapping[str, str]) -> None:
        """Start an interpreter for this environment in the background, if there is none and it may succeed."""
        if isinstance(self._invocation, str) or self._deaths >= self.MAX_DEATHS:
            return
        previous = self._interpreter
        if previous is not None and (previous.matches(env) and not (previous.refusal and previous.was_ready)):
            return
        if previous is not None:
            self._deaths += bool(previous.refusal)
            await previous.close()
        self._interpreter = WarmInterpreter(self._invocation, env, self._log, self._spared)
        await self._interpreter.start(self._outputs)

    def pause_warmup(self, paused: bool) -> None:
        """Pause the warming if `paused`, else continue it."""
        if self._interpreter is not None:
            self._interpreter.pause_warmup(paused)

    async def fork(self, env: Mapping[str, str], abort: asyncio.Event) -> int:
        """The pid of a new process of the program, which waits for `release`.

        WarmStartRefused if it needs a plain start, or if `abort` is set first."""
        if isinstance(self._invocation, str):
            raise WarmStartRefused(self._invocation)
        if self._interpreter is None:
            await self.prepare(env)
        interpreter = self._interpreter
        if interpreter is None:
            raise WarmStartRefused("its warm interpreters died repeatedly")
        if not interpreter.matches(env):
            raise WarmStartRefused("its environment changed since the last start")
        interpreter.pause_warmup(False)
        await _unless_aborted(interpreter.wait_until_ready(), abort)
        return await interpreter.fork(env)

    def release(self, deadline: float) -> None:
        """Let the last forked process run the program, unless the deadline is over by then."""
        if self._interpreter is not None:
            self._interpreter.release(deadline)

    async def disable(self, reason: str) -> None:
        """Make all further starts plain."""
        self._invocation = reason
        await self.close()
        self._interpreter = None

    async def close(self) -> None:
        """Kill the interpreter."""
        if self._interpreter is not None:
            await self._interpreter.close()


async def _unless_aborted(waiting: Coroutine[Any, Any, None], abort: asyncio.Event) -> None:
    """Await `waiting`, or raise WarmStartRefused as soon as `abort` is set."""
    paused, aborted = asyncio.ensure_future(waiting), asyncio.ensure_future(abort.wait())
    await asyncio.wait({paused, aborted}, return_when=asyncio.FIRST_COMPLETED)
    aborted.cancel()
    if not paused.done():
        paused.cancel()
        raise WarmStartRefused("the start was cancelled")
    await paused

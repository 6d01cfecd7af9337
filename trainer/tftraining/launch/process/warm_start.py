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
from tftraining.launch.in_user_process import hooks, legacy_keras
from tftraining.launch.in_user_process.eligibility import Invocation, invocation
from tftraining.launch.process.session import StartError, spawn

ZYGOTE = Path(hooks.HERE) / "zygote.py"
# The last argument of the interpreter, for readers of ps. It must not contain the program's name: a user who kills the
# program by name must not kill the interpreter that starts it again.
TITLE = "tftraining: the warm interpreter, which the program is forked from"
HELLO_SECONDS = 60.0  # an interpreter on a cold disk may take this long to come up
IMPORT_SECONDS = 300.0
FORK_SECONDS = 10.0


class Refused(Exception):
    """The program needs a plain start; the message says why."""


def same_for_imports(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two environments differ only in variables that change between rounds and are read after the imports."""
    return _lasting(one) == _lasting(other)


def _changes(name: str) -> bool:
    """Whether the variable may change from round to round."""
    own = name == "TF_CONFIG" or name.startswith("TFTRAINING_")
    return (own and name != legacy_keras.REQUEST) or name in proxies.EXEMPTIONS


def _lasting(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not _changes(name)}


class WarmInterpreter:
    """One interpreter for one invocation and one environment. `say` logs a line for people."""

    def __init__(self, invocation: Invocation, env: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._invocation = invocation
        self._env = dict(env)
        self._say = say
        self.pid: int | None = None
        self.was_ready = False
        #: Why it forks no more; "" while it may.
        self.refusal = ""
        self._hello = asyncio.Event()
        self._decided = asyncio.Event()
        self._still = False
        self._answer: asyncio.Future[int | str] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    def fits(self, env: Mapping[str, str]) -> bool:
        """Whether a program with this environment would do the same imports."""
        return same_for_imports(self._env, env)

    @property
    def decided(self) -> bool:
        """Whether the interpreter has turned out to be usable or unusable."""
        return self._decided.is_set()

    async def begin(self, outputs: tuple[int, int]) -> None:
        """Start the interpreter, which imports in the background. Never raises."""
        ours, theirs = socket.socketpair()
        invocation = self._invocation
        command = [invocation.python, *invocation.options, str(ZYGOTE), str(theirs.fileno()), TITLE]
        try:
            self.pid = spawn(command, self._env, outputs, [theirs.fileno()])
        except StartError as error:
            ours.close()
            self._end(str(error))
            return
        finally:
            theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._tell(module=invocation.module, target=invocation.target, arguments=list(invocation.arguments))
        self._listening = asyncio.ensure_future(self._listen(reader))

    def give_way(self, wanted: bool) -> None:
        """Pause the import if `wanted` (SIGSTOP), else continue it. A ready interpreter costs nothing."""
        if self.pid is None or self.refusal or wanted == self._still or (wanted and self.decided):
            return
        self._still = wanted
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGSTOP if wanted else signal.SIGCONT)

    async def ready(self) -> None:
        """Return when the interpreter can fork; Refused if it cannot or does not answer."""
        try:
            await asyncio.wait_for(self._hello.wait(), HELLO_SECONDS)
            await asyncio.wait_for(self._decided.wait(), IMPORT_SECONDS)
        except asyncio.TimeoutError:
            self.kill("it did not answer")
        if self.refusal:
            raise Refused(self.refusal)

    async def fork(self, env: Mapping[str, str]) -> int:
        """The pid of a new process, our child, that runs the program once `let_go` is called. Refused if there is
        none, and then none will run."""
        self._answer = asyncio.get_running_loop().create_future()
        self._tell(environment=dict(env))
        try:
            answer = await asyncio.wait_for(asyncio.shield(self._answer), FORK_SECONDS)
        except asyncio.TimeoutError:
            self.kill("it did not answer")
            raise Refused(self.refusal) from None
        if isinstance(answer, str):
            raise Refused(answer)
        return answer

    def let_go(self, deadline: float) -> None:
        """Let the forked process run the program, unless the deadline (monotonic seconds) is over by then."""
        self._tell(go=deadline)

    def kill(self, why: str) -> None:
        """Kill the interpreter; programs that it has forked run on."""
        if self.pid is not None and not self.refusal:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        self._end(f"the warm interpreter was ended: {why}")

    async def close(self) -> None:
        """Kill the interpreter and release all resources."""
        self.kill("it is not needed any more")
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def _tell(self, **message: object) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                self._heard(json.loads(line))
        self._end("the warm interpreter has died")

    def _heard(self, message: dict[str, Any]) -> None:
        self._hello.set()
        if "log" in message:
            self._say(str(message["log"]))
        elif "ready" in message:
            self.was_ready = True
            self._decided.set()
        elif "pid" in message:
            self._settle(int(message["pid"]))
        elif "refused" in message and self.was_ready:
            self._settle(str(message["refused"]))  # refuses this fork only; the next one may work
        elif "refused" in message:
            self._end(str(message["refused"]))

    def _settle(self, answer: int | str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _end(self, reason: str) -> None:
        self.refusal = self.refusal or reason
        self._hello.set()
        self._decided.set()
        self._settle(reason)


class WarmStarts:
    """Warm interpreters for a command, one at a time: a new one after a change of the environment or a death.

    `pid in self` tells the interpreter from the processes of the program.
    """

    DEATHS = 3  # after so many deaths all starts are plain

    def __init__(self, command: Sequence[str], outputs: tuple[int, int], say: Callable[[str], None]) -> None:
        self._invocation = invocation(command)
        self._outputs = outputs
        self._say = say
        self._deaths = 0
        self._interpreter: WarmInterpreter | None = None

    def __contains__(self, pid: object) -> bool:
        return pid is not None and pid == self.pid

    @property
    def pid(self) -> int | None:
        """The pid of an interpreter that can fork, else None: another process may have the pid of a dead one."""
        return self._interpreter.pid if self._interpreter is not None and not self._interpreter.refusal else None

    @property
    def prepared(self) -> bool:
        """Whether a start would not have to wait for an interpreter."""
        return self._interpreter is None or self._interpreter.decided

    async def prepare(self, env: Mapping[str, str]) -> None:
        """Start an interpreter for this environment in the background, if there is none and it may succeed."""
        if isinstance(self._invocation, str) or self._deaths >= self.DEATHS:
            return
        old = self._interpreter
        if old is not None and (old.fits(env) and not (old.refusal and old.was_ready)):
            return
        if old is not None:
            self._deaths += bool(old.refusal)
            await old.close()
        self._interpreter = WarmInterpreter(self._invocation, env, self._say)
        await self._interpreter.begin(self._outputs)

    def give_way(self, wanted: bool) -> None:
        """Pause the warming if `wanted`, else continue it."""
        if self._interpreter is not None:
            self._interpreter.give_way(wanted)

    async def fork(self, env: Mapping[str, str], abort: asyncio.Event) -> int:
        """The pid of a new process of the program, which waits for `let_go`; Refused if it needs a plain start, or if
        `abort` is set first."""
        if isinstance(self._invocation, str):
            raise Refused(self._invocation)
        if self._interpreter is None:
            await self.prepare(env)
        interpreter = self._interpreter
        if interpreter is None:
            raise Refused("its warm interpreters died")
        if not interpreter.fits(env):
            raise Refused("its environment has changed since the last start")
        interpreter.give_way(False)
        await _first(interpreter.ready(), abort)
        return await interpreter.fork(env)

    def let_go(self, deadline: float) -> None:
        """Let the last forked process run the program, unless the deadline is over by then."""
        if self._interpreter is not None:
            self._interpreter.let_go(deadline)

    async def give_up(self, reason: str) -> None:
        """Make all further starts plain."""
        self._invocation = reason
        await self.close()
        self._interpreter = None

    async def close(self) -> None:
        """Kill the interpreter."""
        if self._interpreter is not None:
            await self._interpreter.close()


async def _first(waiting: Coroutine[Any, Any, None], abort: asyncio.Event) -> None:
    """Await `waiting`, or raise Refused as soon as `abort` is set."""
    wanted, aborted = asyncio.ensure_future(waiting), asyncio.ensure_future(abort.wait())
    await asyncio.wait({wanted, aborted}, return_when=asyncio.FIRST_COMPLETED)
    aborted.cancel()
    if not wanted.done():
        wanted.cancel()
        raise Refused("it was stopped before it began")
    await wanted

"""The launcher's side of the warm interpreter (zygote.py): starts it, asks it for a fork, knows when it cannot be used.

It must never make a start later than a plain one would be by more than a moment: an interpreter that is still importing
is waited for, since a plain start would import as long; one that does not answer is not.
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

from tftraining.launch import legacy, proxies
from tftraining.launch.decision import Invocation, invocation
from tftraining.launch.process import StartError, spawn

ZYGOTE = Path(__file__).with_name("zygote.py")
# The last argument of the interpreter, for who looks at ps. It must not have the program's name in it: who kills the
# program by that is not to kill what starts it again.
TITLE = "tftraining: the warm interpreter, which the program is forked from"
HELLO_SECONDS = 60.0  # an interpreter on a cold disk may take this long to come up
IMPORT_SECONDS = 300.0
FORK_SECONDS = 10.0


class Refused(Exception):
    """The program has to be started plainly; the message says why."""


def same_for_imports(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two environments differ in nothing but what changes from round to round and is read later."""
    return _lasting(one) == _lasting(other)


def _changes(name: str) -> bool:
    """Whether it may be another one from round to round."""
    own = name == "TF_CONFIG" or name.startswith("TFTRAINING_")
    return (own and name != legacy.REQUEST) or name in proxies.EXEMPTIONS


def _lasting(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not _changes(name)}


class WarmInterpreter:
    """One interpreter for one invocation and one environment. `say` is told what a person should know."""

    def __init__(self, invocation: Invocation, env: Mapping[str, str], say: Callable[[str], None]) -> None:
        self._invocation = invocation
        self._env = dict(env)
        self._say = say
        self.pid: int | None = None
        self.was_ready = False
        #: Why it will fork nothing any more, "" as long as it may.
        self.refusal = ""
        self._hello = asyncio.Event()
        self._decided = asyncio.Event()
        self._still = False
        self._answer: asyncio.Future[int | str] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    def fits(self, env: Mapping[str, str]) -> bool:
        """Whether a program with this environment would find the imports as they are here."""
        return same_for_imports(self._env, env)

    @property
    def decided(self) -> bool:
        """Whether it is known that it can fork, or that it cannot."""
        return self._decided.is_set()

    async def begin(self, outputs: tuple[int, int]) -> None:
        """Start it; it imports in the background. Never raises."""
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
        """Stand still until the import is wanted (SIGSTOP), or go on with it. What is ready costs nothing."""
        if self.pid is None or self.refusal or wanted == self._still or (wanted and self.decided):
            return
        self._still = wanted
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGSTOP if wanted else signal.SIGCONT)

    async def ready(self) -> None:
        """Return when it can fork. Refused when it cannot, or does not answer."""
        try:
            await asyncio.wait_for(self._hello.wait(), HELLO_SECONDS)
            await asyncio.wait_for(self._decided.wait(), IMPORT_SECONDS)
        except asyncio.TimeoutError:
            self.kill("it did not answer")
        if self.refusal:
            raise Refused(self.refusal)

    async def fork(self, env: Mapping[str, str]) -> int:
        """The pid of a new process, our child, that runs the program as soon as `let_go` says so. Refused if there is
        none: then none will run."""
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
        """Have the forked process run the program, if the deadline (monotonic seconds) is not over by then."""
        self._tell(go=deadline)

    def kill(self, why: str) -> None:
        """End it; programs that it has forked go on."""
        if self.pid is not None and not self.refusal:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)
        self._end(f"the warm interpreter was ended: {why}")

    async def close(self) -> None:
        """End it and give everything back."""
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
            self._settle(str(message["refused"]))  # this fork; the next one may be possible
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
    """Warm interpreters for a command, one after the other: a new one where the environment changed or one died.

    `pid in self` tells the interpreter from the processes of the program.
    """

    DEATHS = 3  # then it is left at plain starts

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
        """The interpreter, None if there is none that could fork: the number of a dead one may be another process's."""
        return self._interpreter.pid if self._interpreter is not None and not self._interpreter.refusal else None

    @property
    def prepared(self) -> bool:
        """Whether no interpreter is on its way that a start would wait for."""
        return self._interpreter is None or self._interpreter.decided

    async def prepare(self, env: Mapping[str, str]) -> None:
        """Have an interpreter for this environment warm up in the background, if there is none and it has a chance."""
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
        """Leave the processors to others for now, or no longer."""
        if self._interpreter is not None:
            self._interpreter.give_way(wanted)

    async def fork(self, env: Mapping[str, str], abort: asyncio.Event) -> int:
        """A new process of the program, which waits for `let_go`; Refused where it has to be started plainly, or
        `abort` came first."""
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
        """Have the process that was forked last run the program, if the deadline is not over by then."""
        if self._interpreter is not None:
            self._interpreter.let_go(deadline)

    async def give_up(self, reason: str) -> None:
        """All starts from now on are plain ones."""
        self._invocation = reason
        await self.close()
        self._interpreter = None

    async def close(self) -> None:
        """End the interpreter."""
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

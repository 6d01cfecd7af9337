"""Runs a job's launchers on this machine, and restarts launchers that die.

The runner must never return while a process of the job is left, whatever happens.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tftraining.launch.failure.restart_rules import FAIL_JOB, REASON, RESTART
from tftraining_client.errors import UserError
from tftraining_client.local import orphans
from tftraining_client.local.kills import Kill
from tftraining_client.local.launcher import Ended, Launcher
from tftraining_client.local.losses import judge
from tftraining_client.local.replica import LocalJob, Places, Start
from tftraining_client.local.screen import Screen
from tftraining_client.local.status import Status, ask
from tftraining_client.local.story import Story

LOOK_SECONDS = 0.2
SHORT_LIFE = 5.0  # seconds; SHORT_LIVES shorter lives in a row fail the job: further restarts would not help
SHORT_LIVES = 3
LAST_WORDS_SECONDS = 5.0
STOPPED = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
BROKEN_PIPE = 141


@dataclass(frozen=True)
class Outcome:
    """The end of the run: the job's verdict, or the exit code if the run was stopped before a verdict."""

    verdict: Status
    stopped: int | None = None


class Runner:
    """Runs one job. Create it inside the event loop, and call `run` once."""

    def __init__(self, local: LocalJob, starts: Sequence[Start], places: Places, screen: Screen) -> None:
        self._local = local
        self._places = places
        self._screen = screen
        self._launchers = [Launcher(start, places.termination_message(start.replica), self._output) for start in starts]
        self._chief_port = places.status[local.spec.chief]
        self._kills: list[Kill] = []
        self._kept: list[asyncio.Task[None]] = []
        self._began = time.monotonic()
        self._spawning = asyncio.Lock()
        self._enough = asyncio.Event()
        self._stopped: int | None = None
        self._verdict: Status = {}
        self._pod_failures = 0
        self.story = Story()

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    @property
    def launchers(self) -> dict[str, int]:
        """The process IDs of the running launchers, by replica."""
        return {each.name: each.pid for each in self._launchers if each.pid is not None}

    async def run(self, kills: Sequence[Kill]) -> Outcome:
        """Run the job until it ends or the user stops `tftj`."""
        self._kills = list(kills)
        self._listen_to_signals()
        orphans.adopt()
        watching = asyncio.create_task(self._watch())
        self._kept = [asyncio.create_task(self._keep(each)) for each in self._launchers]
        try:
            await self._until_ended()
        finally:
            watching.cancel()
            await self._end_all()
        for kill in self._kills if self._verdict else ():
            self.note(f"--kill {kill} was not executed: {kill.why_never(self.story.progress, self.seconds)}")
        return Outcome(self._verdict, None if self._verdict else self._stopped)

    def note(self, text: str) -> None:
        """Show a line to the user."""
        self._print(lambda: self._screen.note(text))

    # Launchers.

    async def _until_ended(self) -> None:
        told = asyncio.create_task(self._enough.wait())
        everyone = asyncio.gather(*self._kept)
        try:
            limit = self._local.spec.run_policy.active_deadline_seconds
            done, _ = await asyncio.wait((everyone, told), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self._fail("DeadlineExceeded", f"not finished after {limit} s (spec.runPolicy.activeDeadlineSeconds)")
            elif everyone in done:
                everyone.result()
        finally:
            told.cancel()

    async def _keep(self, launcher: Launcher) -> None:
        """Run a replica's launcher, and a successor after each death, until a launcher leaves a verdict."""
        short = 0
        while not self._enough.is_set():
            began = time.monotonic()
            async with self._spawning:
                await launcher.begin(self._ledger())
            if self._enough.is_set():
                launcher.signal(signal.SIGTERM)  # the run ended while this launcher was starting
            ended = await launcher.end()
            if ended.words or ended.code == 0:
                return self._decide(ended)
            if self._enough.is_set():
                return None
            short = short + 1 if time.monotonic() - began < SHORT_LIFE else 0
            await self._succeed(launcher, ended, short)
        return None

    def _decide(self, ended: Ended) -> None:
        words = ended.words or {"verdict": "Succeeded"}
        self.story.see_last_words(words)
        if not self._verdict:
            self._verdict = words
            patience = self._local.spec.run_policy.evaluator_grace_seconds + self._grace + LAST_WORDS_SECONDS
            asyncio.get_running_loop().call_later(patience, self._enough.set)

    async def _succeed(self, launcher: Launcher, ended: Ended, short: int) -> None:
        """Kill the orphans of a dead launcher, and fail the job or charge the restart by the job's rules."""
        async with self._spawning:
            orphans.end_orphans([*self.launchers.values()])
        if short >= SHORT_LIVES:
            return self._fail("LauncherFailed", f"the launcher of {launcher.name} exits at once, with {ended.code}")
        what = f"the launcher of {launcher.name} exited with {ended.code}"
        decision = judge(self._local.spec, launcher.start.replica, ended.code)
        if decision.action == FAIL_JOB:
            return self._fail(REASON, f"{what}; {decision.rule}")
        self._pod_failures += decision.action == RESTART and launcher.start.replica.role != "evaluator"
        self.note(f"{what}; restarting it")
        return await asyncio.sleep(short - 1 if short else 0)

    def _ledger(self) -> dict[str, int]:
        return {**self.story.ledger, "podFailures": self._pod_failures} if self._pod_failures else {}

    def _fail(self, reason: str, message: str) -> None:
        self._verdict = self._verdict or {"verdict": "Failed", "reason": reason, "message": message}
        self._enough.set()

    @property
    def _grace(self) -> float:
        return self._local.spec.launcher.termination_grace_seconds

    # Status.

    async def _watch(self) -> None:
        """Poll the chief's /status and show it; poll more often while a kill is pending."""
        shown = 0.0
        while True:
            status = await ask(self._chief_port)
            if status is not None and "members" in status:
                self._see(status)
            if self.seconds >= shown + LOOK_SECONDS:
                shown = self.seconds
                self._print(lambda: self._screen.show(self.story, self.seconds))
            await self._kill_those_due(status or {})
            await asyncio.sleep(LOOK_SECONDS / 4 if self._kills else LOOK_SECONDS)

    def _see(self, status: Status) -> None:
        for line in self.story.see(status, self.seconds):
            self.note(line)

    async def _kill_those_due(self, chief: Status) -> None:
        began = self.story.started_at
        ran = 0.0 if began is None else self.seconds - began
        for kill in list(self._kills):
            replica = next(each for each in self._local.replicas if str(each) == kill.member)
            port = self._places.status[replica]
            status = chief if port == self._chief_port else await ask(port) or {}
            # Workers and parameter servers of an asynchronous training report no progress: the chief's progress counts.
            status = {**status, "progress": status.get("progress") or chief.get("progress")}
            if kill.due(status, ran):
                self._kills.remove(kill)
                self._kill(kill, int(status["pid"]))

    def _kill(self, kill: Kill, pid: int) -> None:
        launcher = next(each for each in self._launchers if each.name == kill.member)
        self.note(f"SIGKILL for the {'launcher' if kill.pod else 'program'} of {kill.member} (--kill {kill})")
        if kill.pod:
            return launcher.signal(signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return None

    # Output and the end.

    def _output(self, name: str, lines: list[str]) -> None:
        self._print(lambda: self._screen.output(name, lines))

    def _print(self, printing: Callable[[], None]) -> None:
        """Print; a closed output stops the run, as a Ctrl-C does."""
        try:
            printing()
        except OSError:  # a broken pipe or a closed terminal
            self.stop(BROKEN_PIPE)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, code in STOPPED.items():
            loop.add_signal_handler(number, self.stop, code)

    def stop(self, code: int) -> None:
        """Stop the run with this exit code, unless the job has a verdict. A second request kills at once."""
        if self._stopped is not None and code != BROKEN_PIPE:
            self._signal_all(signal.SIGKILL)  # the second request
        self._stopped = code
        self._enough.set()

    def _signal_all(self, number: signal.Signals) -> None:
        for each in self._launchers:
            each.signal(number)

    async def _end_all(self) -> None:
        """Send SIGTERM to every launcher and SIGKILL after the programs' grace period, then kill the orphans."""
        self._enough.set()
        self._signal_all(signal.SIGTERM)
        await asyncio.wait(self._kept, timeout=self._grace + LAST_WORDS_SECONDS)
        self._signal_all(signal.SIGKILL)
        await asyncio.wait(self._kept, timeout=LAST_WORDS_SECONDS)
        orphans.end_orphans(())
        self._print(self._screen.close)


def check_commands(starts: Sequence[Start], which: Callable[[str, str], str | None]) -> None:
    """UserError if this machine lacks a replica's program. `which` finds a program in a PATH."""
    for start in starts:
        program = start.command[start.command.index("--") + 1]
        if which(program, start.environment["PATH"]) is None:
            raise UserError(f"{start.replica}: command {program!r} not found on this machine")

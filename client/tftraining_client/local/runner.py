"""Runs a job's launchers on this machine, and restarts launchers that die.

The runner must never return while a process of the job is left, whatever happens.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tftraining.launch.failure.backoff import backoff
from tftraining.launch.in_user_process.shared.tf_config import LONGEST
from tftraining_client.errors import UserError
from tftraining_client.local import subreaper
from tftraining_client.local.fault_injection import Kill
from tftraining_client.local.launcher_process import LauncherExit, LauncherProcess
from tftraining_client.local.process_spec import Allocation, LocalJob, ProcessSpec
from tftraining_client.local.screen import Screen
from tftraining_client.local.status import Status, fetch_status
from tftraining_client.local.timeline import Timeline

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

    def __init__(self, local: LocalJob, specs: Sequence[ProcessSpec], allocation: Allocation, screen: Screen) -> None:
        self._local = local
        self._allocation = allocation
        self._screen = screen
        self._launchers = [
            LauncherProcess(spec, allocation.termination_message(spec.replica), self._output) for spec in specs
        ]
        self._chief_port = allocation.status_ports[local.spec.chief]
        self._kills: list[Kill] = []
        self._supervisors: list[asyncio.Task[None]] = []
        self._began = time.monotonic()
        self._spawning = asyncio.Lock()
        self._run_over = asyncio.Event()
        self._stopped: int | None = None
        self._verdict: Status = {}
        self._pod_failures = 0
        self.timeline = Timeline()

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
        subreaper.become_subreaper()
        watching = asyncio.create_task(self._watch())
        self._supervisors = [asyncio.create_task(self._supervise(each)) for each in self._launchers]
        try:
            await self._until_ended()
        finally:
            watching.cancel()
            await self._end_all()
        for kill in self._kills if self._verdict else ():
            self.note(f"--kill {kill} was not executed: {kill.why_never(self.timeline.progress, self.seconds)}")
        return Outcome(self._verdict, None if self._verdict else self._stopped)

    def note(self, text: str) -> None:
        """Show a line to the user."""
        self._print(lambda: self._screen.note(text))

    # Launchers.

    async def _until_ended(self) -> None:
        ended = asyncio.create_task(self._run_over.wait())
        everyone = asyncio.gather(*self._supervisors)
        try:
            limit = self._local.spec.run_policy.active_deadline_seconds
            done, _ = await asyncio.wait((everyone, ended), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self._fail_job(
                    "DeadlineExceeded", f"not finished after {limit} s (spec.runPolicy.activeDeadlineSeconds)"
                )
            elif everyone in done:
                everyone.result()
        finally:
            ended.cancel()

    async def _supervise(self, launcher: LauncherProcess) -> None:
        """Run a replica's launcher, and a successor after each death, until a launcher leaves a verdict."""
        short = 0
        while not self._run_over.is_set():
            began = time.monotonic()
            async with self._spawning:
                await launcher.start(self._ledger())
            if self._run_over.is_set():
                launcher.signal(signal.SIGTERM)  # the run ended while this launcher was starting
            ended = await launcher.wait()
            if ended.result or ended.code == 0:
                return self._record_result(ended)
            if self._run_over.is_set():
                return None
            short = short + 1 if time.monotonic() - began < SHORT_LIFE else 0
            await self._restart_launcher(launcher, ended, short)
        return None

    def _record_result(self, ended: LauncherExit) -> None:
        result = ended.result or {"verdict": "Succeeded"}
        self.timeline.record_result(result)
        if not self._verdict:
            self._verdict = result
            patience = self._local.spec.run_policy.evaluator_grace_seconds + self._grace + LAST_WORDS_SECONDS
            asyncio.get_running_loop().call_later(patience, self._run_over.set)

    async def _restart_launcher(self, launcher: LauncherProcess, ended: LauncherExit, short: int) -> None:
        """Kill the orphans of a dead launcher, and fail the job or charge the restart by the job's rules."""
        async with self._spawning:
            subreaper.kill_orphans([*self.launchers.values()])
        if ended.wants_new_pod:
            return self._clean(launcher, str(ended.message.get("message")))
        if short >= SHORT_LIVES:
            return self._fail_job("LauncherFailed", f"the launcher of {launcher.name} exits at once, with {ended.code}")
        what = f"the launcher of {launcher.name} exited with {ended.code}"
        decision = ended.decide_restart(self._local.spec, launcher.spec.replica)
        if decision.effect.ends_job:
            return self._fail_job(decision.reason("Error"), decision.explain(what))
        self._pod_failures += decision.effect.charged and launcher.spec.replica.traits.in_gang
        self.note(f"{what}; restarting it")
        return await asyncio.sleep(backoff(short))

    def _clean(self, launcher: LauncherProcess, why: str) -> None:
        """Empty what stands for the container of a replica, before a launcher that has left for a new one."""
        place = self._allocation.temporary_directory(launcher.spec.replica)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(exist_ok=True)
        self.note(f"{why}; starting it with an empty TMPDIR")

    def _ledger(self) -> dict[str, int]:
        return {**self.timeline.ledger, "podFailures": self._pod_failures} if self._pod_failures else {}

    def _fail_job(self, reason: str, message: str) -> None:
        self._verdict = self._verdict or {"verdict": "Failed", "reason": reason, "message": message}
        self._run_over.set()

    @property
    def _grace(self) -> float:
        return self._local.spec.launcher.termination_grace_seconds

    # Status.

    async def _watch(self) -> None:
        """Poll the chief's /status and show it; poll more often while a kill is pending."""
        shown = 0.0
        while True:
            status = await fetch_status(self._chief_port)
            if status is not None and "members" in status:
                self._record(status)
            if self.seconds >= shown + LOOK_SECONDS:
                shown = self.seconds
                self._print(lambda: self._screen.show(self.timeline, self.seconds))
            await self._kill_those_due(status or {})
            await asyncio.sleep(LOOK_SECONDS / 4 if self._kills else LOOK_SECONDS)

    def _record(self, status: Status) -> None:
        for line in self.timeline.record_status(status, self.seconds):
            self.note(line)

    async def _kill_those_due(self, chief: Status) -> None:
        began = self.timeline.started_at
        ran = 0.0 if began is None else self.seconds - began
        for kill in list(self._kills):
            replica = next(each for each in self._local.replicas if str(each) == kill.member)
            port = self._allocation.status_ports[replica]
            status = chief if port == self._chief_port else await fetch_status(port) or {}
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
        self._run_over.set()

    def _signal_all(self, number: signal.Signals) -> None:
        for each in self._launchers:
            each.signal(number)

    async def _end_all(self) -> None:
        """Send SIGTERM to every launcher and SIGKILL after the programs' grace period, then kill the orphans."""
        self._run_over.set()
        self._signal_all(signal.SIGTERM)
        await asyncio.wait(self._supervisors, timeout=self._grace + LAST_WORDS_SECONDS)
        self._signal_all(signal.SIGKILL)
        await asyncio.wait(self._supervisors, timeout=LAST_WORDS_SECONDS)
        subreaper.kill_orphans(())
        self._print(self._screen.close)


def check_sizes(specs: Sequence[ProcessSpec]) -> None:
    """UserError if Linux cannot give a replica's command or one of its variables to a process, here or in a pod."""
    for spec in specs:
        variables = [(f"the variable {name}", f"{name}={value}") for name, value in spec.environment.items()]
        for what, text in [*variables, *(("an argument of the command", each) for each in spec.command)]:
            if (size := len(os.fsencode(text)) + 1) > LONGEST:
                raise UserError(
                    f"{spec.replica}: {what} has {size} bytes; Linux passes at most {LONGEST} to a process, in a pod "
                    "too: mount a file"
                )


def check_commands(specs: Sequence[ProcessSpec], which: Callable[[str, str], str | None]) -> None:
    """UserError if this machine lacks a replica's program. `which` finds a program in a PATH."""
    for spec in specs:
        program = spec.command[spec.command.index("--") + 1]
        if spec.directory is not None and "/" in program:
            program = str(spec.directory / program)
        if which(program, spec.environment["PATH"]) is None:
            raise UserError(f"{spec.replica}: command {program!r} not found on this machine")

"""One launcher: assembles the parts, runs until the job has ended, and writes the termination message.

It must never exit while a process of the program is left, nor without a requested termination message.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tftraining.launch.config import round_environment, spec_updates
from tftraining.launch.config.settings import VARIABLE, Settings
from tftraining.launch.config.spec_updates import Orders
from tftraining.launch.failure import traceback_folding
from tftraining.launch.failure.incident import exit_code
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.result import (
    FAILED,
    SUCCEEDED,
    Verdict,
    termination_message,
)
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import Job
from tftraining.launch.http import pages
from tftraining.launch.http.long_polls import Waits
from tftraining.launch.http.revision import Revisions
from tftraining.launch.http.server import Answer, Server
from tftraining.launch.in_user_process import finished_copy, legacy_keras
from tftraining.launch.in_user_process.hooks import FINISHED
from tftraining.launch.process import open_files
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.process.program import Program
from tftraining.launch.rendezvous.client import Member
from tftraining.launch.rendezvous.server import Rendezvous
from tftraining.launch.success_file import read_success, write_success

_T = TypeVar("_T")

PORT_SECONDS = 10.0  # for an earlier process to release the port
STORAGE_SECONDS = 5.0
DRAIN_SECONDS = 5.0
LAST_WORDS = ("progress", "lastRestart")  # fields of /status that the termination message keeps
TERMINATED = 128 + signal.SIGTERM
FORWARDED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class Launcher:
    """Create it inside the event loop; call `run` once."""

    def __init__(self, settings: Settings, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._settings = settings
        secret = settings.key()
        self._scratch = scratch_directory(environment)
        warm, grace, folds = settings.warm_start, settings.grace, traceback_folding.wanted(environment)
        self._program = Program(command, warm=warm, grace=grace, directory=self._scratch, folds=folds)
        self._environment = program_environment(environment, round_environment.largest(settings))
        self._member = Member(settings, secret, self._program, self._environment)
        self._finished = finished_copy.list_file(settings.directory, self._scratch, settings.gang.me)
        told = {"uid": settings.job["uid"], "file": str(self._finished), "launcher": self._member.incarnation}
        self._member.keep_fits(program_digest(command), {FINISHED: json.dumps(told)})
        self._memory = self._memory_store()
        self._orders = Orders(settings, self._program.say)
        self._rendezvous = Rendezvous(self._coordinator(), secret, self._decided) if settings.is_chief else None
        pages = {"/healthz": self._healthz, "/readyz": self._readyz, "/status": self._status, "/metrics": self._metrics}
        self._revisions = Revisions(self._member.incarnation, self._of_consequence)
        waits, short = {"/status": Waits(self._revisions.current)}, {"/status": self._short_status}
        self._server = Server(pages, waits, short)
        self._told_to_go = asyncio.Event()
        self._too_many = 0  # the gang size of the last warning about too few open files

    async def run(self) -> int:
        """Run until the job has ended, or until SIGTERM or SIGINT; return the exit code."""
        try:
            return await self._run()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
            if self._memory is not None:
                self._memory.close()

    async def _run(self) -> int:
        self._listen_to_signals()
        try:
            verdict = await self._verdict()
        except OSError as error:
            self._program.say(f"tftraining: {error}")
            verdict = Verdict("", "CannotListen", str(error))
        finally:
            await self._program.kill()
        if verdict.verdict:
            await self._remove_finished()
        await self._leave_message(verdict)
        self._server.close()
        await self._program.close()
        return self._exit_code(verdict)

    async def _verdict(self) -> Verdict:
        """The job's verdict, or an empty one after SIGTERM or SIGINT; OSError if a port stays in use."""
        host = self._settings.host
        await self._open("status", partial(self._server.open, host), self._settings.status_port)
        earlier = await in_time(
            lambda: read_success(self._settings.directory, self._settings.job["uid"]), STORAGE_SECONDS
        )
        if isinstance(earlier, Verdict):
            return earlier
        if self._rendezvous is not None:
            open_files.raise_limit()
            self._warn_of_shortage(len(self._rendezvous.coordinator.roster.gang))
            await self._open("rendezvous", partial(self._rendezvous.open, host), self._settings.rendezvous[1])
        await self._program.prepare(self._environment)
        try:
            return await self._take_part()
        finally:
            if self._rendezvous is not None:
                await self._rendezvous.close(farewell=self._program.idle)

    async def _take_part(self) -> Verdict:
        taking_part = asyncio.create_task(self._member.run())
        obeying = asyncio.create_task(self._obey())
        told = asyncio.create_task(self._told_to_go.wait())
        await asyncio.wait((taking_part, told), return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        obeying.cancel()
        if taking_part.done():
            verdict = taking_part.result()
        else:
            verdict = await self._member.leave()
            taking_part.cancel()
        await self._member.finish()
        if self._rendezvous is not None and verdict.verdict:
            await self._rendezvous.drain(DRAIN_SECONDS)
        return verdict

    def _memory_store(self) -> MemoryStore | None:
        """The place for backups in memory, if the job has them; without one the member's rounds have none."""
        if self._settings.memory_backup is None or not self._settings.in_gang:
            return None
        try:
            store = MemoryStore(self._settings.memory_backup)
        except OSError as error:
            self._program.say(f"tftraining: no backups in memory: {error.filename}: {error.strerror}")
            return None
        self._member.back_up_in_memory(store)
        return store

    def _coordinator(self) -> Coordinator:
        settings = self._settings
        gang, policy = self._orders.news() or (settings.gang, settings.policy)
        job = Job(settings.job["uid"], settings.attempt, gang, policy, settings.proven)
        return Coordinator(job, settings.ledger, time.time, time.monotonic())

    async def _obey(self) -> None:
        """Poll for spec updates while the job runs; only the chief's launcher applies them, for the whole gang."""
        while self._rendezvous is not None:
            if (news := self._orders.news()) is not None:
                self._rendezvous.change(*news)
                self._warn_of_shortage(len(news[0].members))
            await asyncio.sleep(spec_updates.SECONDS)

    def _warn_of_shortage(self, members: int) -> None:
        """Warn, once per gang size, that the open-file limit is too low for all members to connect."""
        why = open_files.shortage(members)
        if why and members != self._too_many:
            self._too_many = members
            self._program.say(f"tftraining: {why}")

    async def _decided(self) -> None:
        """Write a success to the job's directory before members are told of it; a storage error is only logged."""
        assert self._rendezvous is not None
        verdict, directory = self._rendezvous.coordinator.judge.verdict, self._settings.directory
        if verdict is None or verdict.verdict != SUCCEEDED or directory is None:
            return
        try:
            await written_in_time(lambda: write_success(directory, self._settings.job["uid"]), STORAGE_SECONDS)
        except OSError as error:
            self._program.say(f"tftraining: the verdict could not be left in {directory}: {error.strerror}")

    async def _remove_finished(self) -> None:
        """Remove this member's copies of finished fits: a job that has ended does not resume."""
        left = await in_time(lambda: finished_copy.remove_listed(self._finished), STORAGE_SECONDS)
        for why in left or ():
            self._program.say(f"tftraining: not removed: {why}")

    async def _open(self, what: str, opening: Callable[[int], Awaitable[None]], port: int) -> None:
        """Open a server; retry while an earlier process holds the port. OSError after PORT_SECONDS."""
        deadline = time.monotonic() + PORT_SECONDS
        while True:
            try:
                return await opening(port)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise OSError(f"the {what} port {port} cannot be had: {error.strerror}") from None
            await asyncio.sleep(0.2)

    # Signals and the end.

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_go.set)
        for number in FORWARDED:
            loop.add_signal_handler(number, self._program.signal, number)

    async def _leave_message(self, verdict: Verdict) -> None:
        path = self._settings.termination_message
        told = {name: value for name, value in self._told().items() if name in LAST_WORDS}
        text = termination_message(verdict, self._ledger(), told)
        if verdict.verdict == FAILED:
            self._program.say(f"tftraining: {verdict.reason}: {verdict.message}")
        if path is None:
            return
        try:
            await written_in_time(lambda: path.write_text(text, "utf-8"), STORAGE_SECONDS)
        except OSError as error:
            self._program.say(f"tftraining: {path}: {error.strerror}")

    def _ledger(self) -> Ledger:
        return self._rendezvous.coordinator.judge.ledger if self._rendezvous is not None else self._member.ledger

    def _exit_code(self, verdict: Verdict) -> int:
        if verdict.verdict == SUCCEEDED:
            return 0
        if verdict.verdict == FAILED:
            return exit_code(verdict.exit) if verdict.member == self._settings.gang.me else 1
        return TERMINATED if self._told_to_go.is_set() else 1

    # The pages.

    def _healthz(self) -> Answer:
        return Answer(200, "ok\n")

    def _readyz(self) -> Answer:
        why = pages.why_not_training(self._member, self._settings, time.monotonic())
        return Answer(503, f"{why}\n") if why else Answer(200, "training\n")

    def _status(self) -> Answer:
        told = pages.of_member(self._member, self._settings)
        if self._rendezvous is not None:
            told |= pages.of_gang(self._rendezvous.coordinator, time.monotonic())
        return self._in_json(told)

    def _short_status(self) -> Answer:
        return self._in_json(self._told())

    def _in_json(self, told: dict[str, Any]) -> Answer:
        told["revision"] = self._revisions.current()
        return Answer(200, json.dumps(told, separators=(",", ":")) + "\n", "application/json")

    def _of_consequence(self) -> dict[str, Any]:
        coordinator = self._rendezvous.coordinator if self._rendezvous is not None else None
        return pages.of_consequence(self._member, self._settings, coordinator)

    def _metrics(self) -> Answer:
        return Answer(200, pages.metrics(self._settings, self._told()), "text/plain; version=0.0.4")

    def _told(self) -> dict[str, Any]:
        own = pages.of_member(self._member, self._settings)
        if self._rendezvous is None:
            return own
        return {**own, **pages.of_gang_as_one(self._rendezvous.coordinator)}


def program_digest(command: Sequence[str]) -> str:
    """Digest of the interpreter and the script or module, without the arguments: these may differ between members."""
    end = next((place for place, word in enumerate(command[1:], 2) if not word.startswith("-")), 1)
    return hashlib.sha256(json.dumps(command[:end]).encode()).hexdigest()[:16]


def program_environment(environment: Mapping[str, str], trainers: int) -> dict[str, str]:
    """The program's environment: the launcher's without its settings. `trainers` counts the chief and workers."""
    kept = {name: value for name, value in environment.items() if name != VARIABLE}
    return {**kept, **legacy_keras.request(kept, trainers)}


def scratch_directory(environment: Mapping[str, str]) -> Path:
    """A new private directory for the progress pages, in the first writable of TMPDIR, /dev/shm, /tmp and /var/tmp.
    OSError if none is writable."""
    places = [place for place in (environment.get("TMPDIR"), "/dev/shm", "/tmp", "/var/tmp") if place]
    usable = [place for place in places if os.access(place, os.W_OK | os.X_OK)]
    return Path(tempfile.mkdtemp(prefix="tftraining-", dir=(usable or places)[0]))


async def in_time(look: Callable[[], _T], seconds: float) -> _T | None:
    """The result of `look`, run in a thread; None after `seconds` (a file system may hang for ever)."""
    try:
        return await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, look), seconds)
    except asyncio.TimeoutError:
        return None


async def written_in_time(write: Callable[[], object], seconds: float) -> None:
    """Run `write` in a thread; OSError if it fails or takes longer than `seconds`."""
    if not await in_time(lambda: (write(), True)[1], seconds):
        raise OSError(errno.ETIMEDOUT, f"the storage did not take it within {seconds:g} s")

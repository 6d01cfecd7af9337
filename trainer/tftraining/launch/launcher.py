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

from tftraining.launch.config import round_environment, spec_updates
from tftraining.launch.config.settings import VARIABLE, JobKey, Settings
from tftraining.launch.config.spec_updates import SpecUpdates
from tftraining.launch.failure import traceback_folding
from tftraining.launch.failure.exit import exit_code
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import (
    FAILED,
    SUCCEEDED,
    Result,
    termination_message,
)
from tftraining.launch.failure.same_member import NEW_POD
from tftraining.launch.gang.coordinator import Coordinator
from tftraining.launch.gang.membership import JobContext
from tftraining.launch.gang.peer import Peer
from tftraining.launch.history_file import HistoryFile
from tftraining.launch.http.site import Site
from tftraining.launch.in_user_process import finished_copy, legacy_keras
from tftraining.launch.in_user_process.hooks import FINISHED
from tftraining.launch.process import open_files
from tftraining.launch.process.leftovers import own_places
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.process.program import Program
from tftraining.launch.rendezvous.backup_control import BackupControl
from tftraining.launch.rendezvous.client import RendezvousClient
from tftraining.launch.rendezvous.server import RendezvousServer
from tftraining.launch.success_record import BUCKET, BucketRecord, FileRecord
from tftraining.launch.wait_for import in_thread, wait_for

PORT_SECONDS = 10.0  # for an earlier process to release the port
STORAGE_SECONDS = 5.0
DRAIN_SECONDS = 5.0
WAIT_FOR_COPY = 0.5  # of the grace period: for the backup in memory that the chief orders at an announced stop
STORE_SECONDS = 120.0  # for the backup in memory of a chief that leaves for a new pod: nobody ends it meanwhile
STOP_LOOK_SECONDS = 0.02
LONE_CHIEF_SECONDS = 3.0  # after the chief's SIGTERM: the other members' have arrived, if all have to go
REPORTED_FIELDS = ("progress", "lastRestart")  # fields of /status that the termination message keeps
LOCALHOST = "127.0.0.1"  # the host of every launcher of `tftj run`, and of none in a pod
TERMINATED_EXIT_CODE = 128 + signal.SIGTERM
NOT_IN_A_BUCKET = "no history and no backup in memory is kept there"
FORWARDED_SIGNALS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class Launcher:
    """Create it inside the event loop; call `run` once."""

    def __init__(self, settings: Settings, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._settings = settings
        key = JobKey(settings)
        self._scratch = scratch_directory(environment)
        warm, grace = settings.policy.warm_start, settings.policy.termination_grace_seconds
        folds = traceback_folding.wanted(environment)
        own = own_places(environment, settings.secret_file, local=settings.host == LOCALHOST)
        self._program = Program(command, warm=warm, grace=grace, directory=self._scratch, folds=folds, own=own)
        self._environment = program_environment(environment, round_environment.largest(settings), settings.keras)
        self._success = self._make_success_record(command)
        self._client = RendezvousClient(settings, key, self._program, self._environment, self._success)
        self._control = self._client.control
        self._finished_copies = finished_copy.list_file(settings.directory, self._scratch, settings.gang.me)
        fields = {"uid": settings.job["uid"], "file": str(self._finished_copies), "launcher": self._control.incarnation}
        self._control.finished_fit_digest = program_digest(command)
        self._control.finished_fit_variables = {FINISHED: json.dumps(fields)}
        self._backups = self._control.backups = self._make_backups(key)
        self._has_verdict = False
        self._spec_updates = SpecUpdates(settings, self._program.log)
        self._rendezvous: RendezvousServer | None = None
        self._history_file: HistoryFile | None = None
        coordinator = self._make_coordinator() if settings.is_chief else None
        if coordinator is not None:
            self._rendezvous = RendezvousServer(coordinator, key, self._record_success)
            uid, log = settings.job["uid"], self._program.log
            self._history_file = HistoryFile(settings.directory, uid, coordinator.history, log)
        self._site = Site(settings, self._control, coordinator)
        self._stop_requested = asyncio.Event()
        if settings.is_chief and "://" in (place := environment.get("TFTRAINING_DIR", "")):
            self._program.log(f"tftraining: {place} is a bucket: {NOT_IN_A_BUCKET}")
        self._warned_gang_size = 0  # the gang size of the last warning about too few open files

    async def run(self) -> int:
        """Run until the job has ended, or until SIGTERM or SIGINT; return the exit code."""
        try:
            return await self._run()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
            if self._backups is not None:
                await self._backups.close(ended=self._has_verdict)

    async def _run(self) -> int:
        self._install_signal_handlers()
        try:
            result = await self._run_until_result()
        except OSError as error:
            self._program.log(f"tftraining: {error}")
            result = Result("", "CannotListen", str(error))
        finally:
            await self._program.kill()
        if result.verdict:
            self._has_verdict = True
            await self._remove_finished_copies()
            if self._backups is not None:
                await self._backups.remove_stored()
        await self._write_termination_message(result)
        if self._history_file is not None:
            await self._history_file.close()
        await self._site.server.close()
        await self._program.close()
        return self._exit_code(result)

    async def _run_until_result(self) -> Result:
        """The job's verdict, or an empty one after SIGTERM or SIGINT; OSError if a port stays in use."""
        host = self._settings.host
        await self._bind("status", partial(self._site.server.open, host), self._settings.status_port)
        if self._success.only_chief:  # its look takes a while: meanwhile the program's interpreter imports TensorFlow
            await self._program.prepare(self._environment)
        if (earlier_result := await self._read_success()) is not None:
            return earlier_result
        if self._rendezvous is not None and self._history_file is not None:
            self._history_file.open()
            open_files.raise_limit()
            self._warn_of_open_file_limit(len(self._rendezvous.coordinator.membership.gang))
            await self._bind("rendezvous", partial(self._rendezvous.open, host), self._settings.rendezvous[1])
        await self._program.prepare(self._environment)
        if self._backups is not None:
            await self._backups.open()
            await self._backups.load_stored(lambda: not self._stop_requested.is_set())
        try:
            return await self._join_rendezvous()
        finally:
            if self._rendezvous is not None:
                await self._rendezvous.close(say_bye=self._program.is_idle)

    async def _read_success(self) -> Result | None:
        """The recorded success of this job; None without an answer in time, and after SIGTERM."""
        if self._success.only_chief and not self._settings.is_chief:
            return None
        stop, look = asyncio.create_task(self._stop_requested.wait()), asyncio.ensure_future(self._success.read())
        await asyncio.wait((stop, look), timeout=self._success.seconds, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if look.done():
            return look.result()
        look.cancel()
        return None

    async def _join_rendezvous(self) -> Result:
        client_run = asyncio.create_task(self._client.run())
        spec_update_poll = asyncio.create_task(self._apply_spec_updates())
        stop = asyncio.create_task(self._stop_requested.wait())
        await asyncio.wait((client_run, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        spec_update_poll.cancel()
        if client_run.done():
            result = client_run.result()
            if result.reason in NEW_POD and self._rendezvous is not None:
                await self._wait_for_stops(self._rendezvous.coordinator.membership.members)
                await self._store_copy(STORE_SECONDS, time.monotonic() + LONE_CHIEF_SECONDS)
        else:
            result = await self._terminate()
            client_run.cancel()
        await self._control.finish()
        if self._rendezvous is not None and result.verdict:
            await self._rendezvous.drain(DRAIN_SECONDS)
        return result

    async def _terminate(self) -> Result:
        """Leave the gang after SIGTERM. A program that makes backups in memory has half of its grace period for the one
        that the chief orders; the chief's launcher stores that one, because all launchers may be leaving."""
        begin, grace = time.monotonic(), self._settings.policy.termination_grace_seconds
        self._client.announce_leaving()
        await self._control.wait_for_announced_stop(grace * WAIT_FOR_COPY)
        left = begin + grace - time.monotonic()
        storing = asyncio.ensure_future(self._store_copy(left, begin + LONE_CHIEF_SECONDS))
        result = await self._client.terminate(left)
        await storing
        return result

    async def _wait_for_stops(self, members: Sequence[Peer]) -> None:
        """Wait until the other members have ended their programs, and dropped the copies that are not used again: the
        end of this launcher interrupts them."""
        me, end = self._settings.gang.me, time.monotonic() + self._settings.policy.member_timeout_seconds
        while time.monotonic() < end:
            if all(peer.state in ("ready", "lost") for peer in members if peer.name != me):
                return
            await asyncio.sleep(STOP_LOOK_SECONDS)

    async def _store_copy(self, seconds: float, decided_at: float) -> None:
        """Store the newest backup in memory; not beyond `decided_at` if other members stay, for they have it too."""
        ended = self._control.result is not None and self._control.result.verdict
        if self._backups is None or self._rendezvous is None or ended:
            return
        peers, me = self._rendezvous.coordinator.membership.trainers, self._settings.gang.me

        def is_wanted() -> bool:
            stay = any(peer.is_connected and not peer.leaving for peer in peers if peer.name != me)
            return not stay or time.monotonic() < decided_at

        await self._backups.save_stored(seconds, is_wanted)

    def _make_backups(self, key: Callable[[], bytes]) -> BackupControl | None:
        """The backups in memory, if the job has them; without a place for them the member's rounds have none."""
        told, job = self._settings.memory_backup, self._settings.job
        if not told.on or not self._settings.in_gang:
            return None
        try:
            if told.directory is None:
                store = MemoryStore.temporary(told)
            else:
                store = MemoryStore.lasting(told, told.directory, job["uid"], self._settings.gang.me)
        except OSError as error:
            self._program.log(f"tftraining: no backups in memory: {error}")
            return None
        return BackupControl(self._settings, key, store, self._program.log)

    def _make_coordinator(self) -> Coordinator:
        settings = self._settings
        gang, policy = self._spec_updates.poll() or (settings.gang, settings.policy)
        host, off = settings.rendezvous[0], settings.memory_backup.off
        job = JobContext(
            settings.job["uid"], settings.attempt, gang, policy, settings.proven, host, off, settings.local
        )
        return Coordinator(job, settings.ledger, time.time, time.monotonic())

    async def _apply_spec_updates(self) -> None:
        """Poll for spec updates while the job runs; only the chief's launcher applies them, for the whole gang."""
        while self._rendezvous is not None:
            if (update := self._spec_updates.poll()) is not None:
                self._rendezvous.apply_spec_update(*update)
                self._warn_of_open_file_limit(len(update[0].members))
            await asyncio.sleep(spec_updates.SECONDS)

    def _warn_of_open_file_limit(self, members: int) -> None:
        """Warn, once per gang size, that the open-file limit is too low for all members to connect."""
        warning = open_files.describe_shortage(members)
        if warning and members != self._warned_gang_size:
            self._warned_gang_size = members
            self._program.log(f"tftraining: {warning}")

    async def _record_success(self) -> None:
        """Record a success in the job's storage before members are told of it; a storage error is only logged."""
        assert self._rendezvous is not None
        result = self._rendezvous.coordinator.verdict.result
        if result is None or result.verdict != SUCCEEDED:
            return
        try:
            await write_with_timeout(self._success.write(), self._success.seconds)
        except OSError as error:
            self._program.log(f"tftraining: cannot write the verdict to {self._success.place}: {error.strerror}")

    def _make_success_record(self, command: Sequence[str]) -> FileRecord:
        directory, uid = self._settings.directory, self._settings.job["uid"]
        place = self._environment.get("TFTRAINING_DIR", "")
        if directory is not None or not place.startswith(BUCKET):
            return FileRecord(directory, uid)
        return BucketRecord(place, uid, command, self._environment, self._program.run_helper, self._program.log)

    async def _remove_finished_copies(self) -> None:
        """Remove this member's copies of finished fits: a job that has ended does not resume."""
        try:
            removal = in_thread(lambda: finished_copy.remove_listed(self._finished_copies))
            problems = await wait_for(removal, STORAGE_SECONDS)
        except asyncio.TimeoutError:
            return
        for warning in problems:
            self._program.log(f"tftraining: cannot remove {warning}")

    async def _bind(self, what: str, opening: Callable[[int], Awaitable[None]], port: int) -> None:
        """Open a server; retry while an earlier process holds the port. OSError after PORT_SECONDS."""
        deadline = time.monotonic() + PORT_SECONDS
        while True:
            try:
                return await opening(port)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise OSError(f"cannot bind {what} port {port}: {error.strerror}") from None
            await asyncio.sleep(0.2)

    # Signals and the end.

    def _install_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        for number in FORWARDED_SIGNALS:
            loop.add_signal_handler(number, self._program.signal, number)

    async def _write_termination_message(self, result: Result) -> None:
        path = self._settings.termination_message
        status = self._site.summary()
        fields = {name: value for name, value in status.items() if name in REPORTED_FIELDS}
        if (last := (status.get("backup") or {}).get("lastStep")) is not None:
            fields["lastBackup"] = last
        text = termination_message(result, self._ledger(), fields)
        if result.verdict == FAILED:
            self._program.log(f"tftraining: {result.reason}: {result.message}")
        if path is None:
            return
        try:
            await write_with_timeout(in_thread(lambda: path.write_text(text, "utf-8")), STORAGE_SECONDS)
        except OSError as error:
            self._program.log(f"tftraining: cannot write the termination message {path}: {error.strerror}")

    def _ledger(self) -> Ledger:
        return self._rendezvous.coordinator.verdict.ledger if self._rendezvous is not None else self._control.ledger

    def _exit_code(self, result: Result) -> int:
        if result.verdict == SUCCEEDED:
            return 0
        if result.verdict == FAILED:
            return exit_code(result.exit) if result.member == self._settings.gang.me else 1
        return TERMINATED_EXIT_CODE if self._stop_requested.is_set() or result.reason in NEW_POD else 1


def program_digest(command: Sequence[str]) -> str:
    """Digest of the interpreter and the script or module, without the arguments: these may differ between members."""
    end = next((place for place, word in enumerate(command[1:], 2) if not word.startswith("-")), 1)
    return hashlib.sha256(json.dumps(command[:end]).encode()).hexdigest()[:16]


def program_environment(environment: Mapping[str, str], trainers: int, keras: str) -> dict[str, str]:
    """The program's environment: the launcher's without its settings. `trainers` counts the chief and workers; `keras`
    is status.keras of the job."""
    kept = {name: value for name, value in environment.items() if name != VARIABLE}
    return {**kept, **legacy_keras.request(kept, trainers, keras)}


def scratch_directory(environment: Mapping[str, str]) -> Path:
    """A new private directory for the progress pages, in the first writable of TMPDIR, /dev/shm, /tmp and /var/tmp.
    OSError if none is writable."""
    places = [place for place in (environment.get("TMPDIR"), "/dev/shm", "/tmp", "/var/tmp") if place]
    usable = [place for place in places if os.access(place, os.W_OK | os.X_OK)]
    return Path(tempfile.mkdtemp(prefix="tftraining-", dir=(usable or places)[0]))


async def write_with_timeout(write: Awaitable[object], seconds: float) -> None:
    """Await `write`; OSError if it fails or takes longer than `seconds`."""
    try:
        await wait_for(write, seconds)
    except asyncio.TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"the storage did not answer within {seconds:g} s") from None

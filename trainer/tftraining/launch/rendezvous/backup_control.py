"""A member's backups in memory over all rounds: its own copies, those that it fetches from others and serves to them.

It must never fail a round: a copy that cannot be fetched is missing, and the program resumes without it.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tftraining.launch.config.settings import Settings
from tftraining.launch.gang.backup_report import MEMORY, STORAGE
from tftraining.launch.gang.memory_backups import HELD, from_frame
from tftraining.launch.process.copy_files import Name
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.process.stored_copy import StoredCopy
from tftraining.launch.rendezvous.copy_client import CopyClient
from tftraining.launch.rendezvous.copy_server import CopyServer, describe
from tftraining.launch.rendezvous.protocol import FRAME_ERRORS, Frame

FIND_SECONDS = 5.0  # for the look whether a copy is there: a storage that hangs delays the gang's start by this
LOAD_SECONDS = 30.0  # for a copy in the job's storage; the members import TensorFlow meanwhile
REMOVE_SECONDS = 5.0
CHECK_SECONDS = 0.1
REPORT_SECONDS = 0.02  # between two looks for the report of a copy that was asked for

_T = TypeVar("_T")
IsLast = Callable[[Mapping[str, Any]], bool]  # whether no report behind this one is waited for


class BackupControl:
    """`log` logs a line. `open` it before the first hello, and `close` it at the end."""

    def __init__(
        self, settings: Settings, key: Callable[[], bytes], store: MemoryStore, log: Callable[[str], None]
    ) -> None:
        self.store = store
        self._loaded = False  # the copies are from the job's storage
        self._settings = settings
        self._log = log
        self._server = CopyServer(store.directory, settings.job["uid"], key)
        self._client = CopyClient(store, settings.job["uid"], key)
        self._fetching: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stored: StoredCopy | None = None
        if settings.is_chief and settings.directory is not None:
            self._stored = StoredCopy(settings.directory, settings.job["uid"])

    async def open(self) -> None:
        """Serve the copies to the other launchers of the job."""
        try:
            await self._server.open(self._settings.host)
        except OSError as error:
            self._log(f"tftraining: other members cannot fetch backups in memory from here: {describe(error)}")

    async def close(self, *, ended: bool) -> None:
        """End all transfers, and remove the copies; `ended`: the job has its verdict."""
        await self.end_round()
        await self._server.close()
        self._client.close()
        self.store.close(ended=ended)

    def for_hello(self) -> Frame:
        """The fields of a hello frame: what this member can resume from, while no program runs."""
        fields: Frame = {HELD: self.copies(), "copyPort": self._server.port}
        if self._settings.host:
            fields["copyHost"] = self._settings.host  # else: where the chief sees this launcher
        if self._loaded and fields[HELD]:
            fields["copiesFrom"] = STORAGE
        return fields

    def copies(self) -> list[list[int]]:
        """Round and step of every copy."""
        return [list(each) for each in self.store.held()]

    async def remove_suspects(self, told: object, back_to: object = None) -> None:
        """Remove the copies that a `stop` frame names, and the later ones of their rounds: they may be the cause of
        failures. Also what is in the job's storage, or a new launcher of the chief would take it from there. `back_to`
        is the copy that was set aside for this, None for none."""
        try:
            first = dict(from_frame(told) or ())
            self.store.remove_suspects(first)
            for copy in from_frame(back_to) or ():
                self.store.go_back(*copy)
        except (OSError, *FRAME_ERRORS) as error:
            self._log(f"tftraining: cannot remove backups in memory: {describe(error)}")
            return
        if first and self._stored is not None:
            stored, what = self._stored, "remove a backup in memory from the job's storage"
            await self._in_time(lambda _: stored.remove_suspects(first), what, REMOVE_SECONDS)

    def report(self) -> dict[str, Any] | None:
        """What the program of this round says about its copies; None if nothing."""
        return self.store.report()

    @property
    def makes_copies(self) -> bool:
        """Whether the program of this round says that it makes copies."""
        return bool((self.store.report() or {}).get("on"))

    # The job's storage, which the chief's launcher alone uses.

    async def load_stored(self, is_wanted: Callable[[], bool]) -> None:
        """Take the copy that an earlier launcher of the chief has stored, if this one has none."""
        if self._stored is None or self.store.held():
            return
        stored, what = self._stored, "look for a backup in memory in the job's storage"
        name = await self._in_time(lambda _: stored.find(), what, FIND_SECONDS, is_wanted)
        if name is None:
            return

        def load(abandoned: threading.Event) -> bool:
            stored.load(self.store.directory, name, abandoned)
            return True

        what = f"the backup in memory of step {name[1]} from the job's storage"
        if await self._in_time(load, f"load {what}", LOAD_SECONDS, is_wanted):
            self._loaded = True
            self._log(f"tftraining: loaded {what}")

    async def save_stored(self, seconds: float, is_wanted: Callable[[], bool]) -> None:
        """Store the newest copy, because this gang's launchers end. It stops when it is no longer wanted. A program
        that still trains may overwrite the copy meanwhile: then the next newest is stored."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._stored is not None and (held := self.store.held()):
            name, left = held[-1], end - loop.time()
            if await self._save(self._stored, name, left, is_wanted):
                self._log(f"tftraining: stored the backup in memory of step {name[1]} in the job's directory")
                return
            if name in self.store.held() or loop.time() >= end or not is_wanted():
                return

    async def _save(self, stored: StoredCopy, name: Name, seconds: float, is_wanted: Callable[[], bool]) -> bool:
        def save(abandoned: threading.Event) -> bool:
            stored.save(self.store.directory, name, abandoned)
            return True

        what = f"store the backup in memory of step {name[1]}"
        return bool(await self._in_time(save, what, seconds, is_wanted))

    async def remove_stored(self) -> None:
        """Remove the stored copy, because the job has ended."""
        if self._stored is not None:
            stored, what = self._stored, "remove the backup in memory from the job's storage"
            await self._in_time(lambda _: stored.remove(), what, REMOVE_SECONDS)

    async def _in_time(
        self,
        step: Callable[[threading.Event], _T],
        what: str,
        seconds: float,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> _T | None:
        """The result of a step, in a thread of its own; None if it fails, takes too long or is not wanted any more.
        The step's event says that nobody waits for it."""
        loop, abandoned = asyncio.get_running_loop(), threading.Event()
        running, end = loop.run_in_executor(None, step, abandoned), loop.time() + seconds
        while not running.done() and loop.time() < end and is_wanted():
            await asyncio.wait({running}, timeout=min(CHECK_SECONDS, max(0.0, end - loop.time())))
        abandoned.set()
        if not running.done():
            why = f"not finished in {seconds:.1f} s" if is_wanted() else "it is of no use any more"
        elif (error := running.exception()) is not None:
            why = describe(error)
        else:
            return running.result()
        self._log(f"tftraining: cannot {what}: {why}")
        return None

    # A round.

    def begin_round(self, agreed: Mapping[str, Any] | None) -> dict[str, str]:
        """The program's variable for a round, as its start frame orders; begins to fetch the copy that the order names.
        None: the members of this round make no backups."""
        try:
            self.store.begin_round()
            if agreed is None:
                self.store.free()
                return {}
            name, address = self._to_fetch(agreed)
        except (OSError, *FRAME_ERRORS) as error:
            self._log(f"tftraining: this round resumes from no backup in memory: {describe(error)}")
            if agreed is None:  # nobody votes
                return {}
            # The program has to vote "no": the others would wait for its part in the votes.
            return self._variables({**agreed, "restore": None}, MEMORY, fetching=False)
        if name is not None:
            self._fetching = asyncio.ensure_future(self._fetch(name, *address))
        source = agreed.get("source") or MEMORY
        return self._variables(agreed, source, fetching=name is not None)

    def _variables(self, agreed: Mapping[str, Any], source: object, *, fetching: bool) -> dict[str, str]:
        return self.store.variables(agreed, source, self._settings.job["uid"], fetching=fetching)

    async def end_round(self) -> None:
        """Cancel the fetch, if it still runs, and the watch for reports."""
        if self._watching is not None:
            self._watching.cancel()
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)

    def request_copy(self, step: object, on_report: Callable[[], None]) -> None:
        """Let the program make a copy at the end of this step; `on_report` is called when it reports one: the chief
        waits for that report, and the next heartbeat may be seconds away."""
        self._request(self.store.request, step, on_report, lambda _: False)

    def request_summary(self, step: object, on_report: Callable[[], None]) -> None:
        """Let the program summarize the variables of the copy of this step, or of the first one behind it; `on_report`
        is called when it reports one."""
        self._request(self.store.request_summary, step, on_report, lambda report: bool(report.get("summary")))

    def request_set_aside(self, step: object, agreed: object) -> None:
        """Let the program set aside the first copy at this step or behind it, and keep the `agreed` one beside it."""
        self._ask(lambda: self.store.request_set_aside(int(str(step)), max(from_frame(agreed) or (), default=None)))

    def _request(
        self, request: Callable[[int], None], step: object, on_report: Callable[[], None], last: IsLast
    ) -> None:
        known = self.store.report()
        if not self._ask(lambda: request(int(str(step)))):
            return
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.ensure_future(self._watch_reports(known, on_report, last))

    def _ask(self, request: Callable[[], None]) -> bool:
        """Write a request for the program; whether that was possible."""
        try:
            request()
        except (OSError, *FRAME_ERRORS, struct.error) as error:
            self._log(f"tftraining: cannot ask for a backup in memory: {describe(error)}")
            return False
        return True

    async def _watch_reports(self, known: object, on_report: Callable[[], None], last: IsLast) -> None:
        """Look for a new report again and again, until the last one that is waited for, or the end of the round."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if (found := self.store.report()) != known:
                known = found
                on_report()
                if found is not None and last(found):
                    return

    def _to_fetch(self, agreed: Mapping[str, Any]) -> tuple[Name | None, tuple[str, int]]:
        """The copy that this member has to fetch, None if none, and the address of the launcher that has it."""
        restore, source = agreed.get("restore"), agreed.get("fetchFrom")
        if restore is None or source is None:
            return None, ("", 0)
        number, step = restore
        name = int(number), int(step)
        if name in self.store.held():
            return None, ("", 0)
        return name, (str(source["host"]), int(source["port"]))

    async def _fetch(self, name: Name, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        begin = loop.time()
        what = f"the backup in memory of round {name[0]} at step {name[1]} from {host}"
        try:
            size = await self._client.fetch(name, host, port)
        except Exception as error:
            self._log(f"tftraining: cannot fetch {what}: {describe(error)}")
        else:
            self._log(f"tftraining: fetched {what}: {size / 1e6:.1f} MB in {loop.time() - begin:.2f} s")

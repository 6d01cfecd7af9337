"""A member's backups in memory over its rounds: fetched, asked for, stored and loaded; nothing of it fails a round."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.launchers.copies import is_whole, write_copy
from tests.support.launchers.harness import until
from tftraining.launch.config.settings import MemoryBackupSettings, read
from tftraining.launch.in_user_process.memory_backup import copy_file, copy_report, copy_request
from tftraining.launch.process.copy_files import OutgoingCopy
from tftraining.launch.process.memory_store import MemoryStore
from tftraining.launch.process.stored_copy import StoredCopy
from tftraining.launch.rendezvous import backup_control
from tftraining.launch.rendezvous.backup_control import BackupControl

SECRET = b"secret"
HOST = "127.0.0.1"


class Member(BackupControl):
    """The backups of one member in directories of a test, and what it has logged."""

    def __init__(self, place: Path, index: int) -> None:
        task = {"type": "worker", "index": index}
        launcher = {
            "job": {"namespace": "n", "name": "j", "uid": "uid"},
            "attempt": 1,
            "rendezvous": "127.0.0.1:1",
            "statusPort": 2,
            "secretFile": "key",
            "host": HOST,
            "directory": str(place / "job"),
        }
        config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": task}
        settings = read({"TF_CONFIG": json.dumps(config), "TFTRAINING_LAUNCHER": json.dumps(launcher)})
        self.lines: list[str] = []
        super().__init__(
            settings, lambda: SECRET, MemoryStore.temporary(MemoryBackupSettings(), place), self.lines.append
        )

    def files(self) -> list[str]:
        """The names of copies, complete or not."""
        names = [path.name for path in self.store.directory.iterdir()]
        return sorted(name for name in names if name.startswith(("copy-", "fetch-", "failed-")))

    def source(self, **fields: object) -> dict[str, Any]:
        """The `fetchFrom` of a start frame that names this member."""
        return {"member": "worker-0", "host": HOST, "port": self.for_hello()["copyPort"], **fields}


@asynccontextmanager
async def member(place: Path, index: int = 0) -> AsyncIterator[Member]:
    found = Member(place, index)
    await found.open()
    try:
        yield found
    finally:
        await found.close(ended=True)
        assert not found.store.directory.exists()
        await asyncio.sleep(0.01)  # for the loop to close what was aborted


def told(variables: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(variables[copy_file.VARIABLE])
    return found


def order(restore: object, source: object = "Memory", fetch: object = None) -> dict[str, Any]:
    return {"restore": restore, "source": source, "fetchFrom": fetch}


async def test_a_round_fetches_the_copy_that_its_start_frame_names(tmp_path: Path) -> None:
    async with member(tmp_path) as sender, member(tmp_path, 1) as receiver:
        write_copy(sender.store.directory, 3, 70)
        assert sender.for_hello()["copyHost"] == HOST  # the only address at which it listens
        fields = told(receiver.begin_round(order([3, 70], "Peer", sender.source())))
        assert (fields["restore"], fields["source"], fields["fetching"]) == ([3, 70], "Peer", True)
        await until(lambda: receiver.copies() == [[3, 70]], "the copy to arrive")
        assert is_whole(receiver.store.directory / "copy-3-70", 70)
        await until(lambda: receiver.lines, "a line in the log")
        assert "fetched the backup in memory of round 3 at step 70 from 127.0.0.1: 0.0 MB" in receiver.lines[0]
        await receiver.end_round()
        # It has the copy now.
        assert told(receiver.begin_round(order([3, 70], "Peer", sender.source())))["fetching"] is False


async def test_a_copy_that_cannot_be_fetched_is_one_line_in_the_log(tmp_path: Path) -> None:
    async with member(tmp_path) as sender, member(tmp_path, 1) as receiver:
        receiver.begin_round(order([3, 70], "Peer", sender.source()))
        await until(lambda: receiver.files() == ["failed-3-70"], "the failure")
        await until(lambda: receiver.lines, "a line in the log")
        assert receiver.lines == [
            "tftraining: cannot fetch the backup in memory of round 3 at step 70 from 127.0.0.1: "
            "No such file or directory"
        ]


async def test_the_end_of_a_round_ends_its_fetch(tmp_path: Path) -> None:
    connected = asyncio.Event()

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(be_silent, HOST, 0)
    async with member(tmp_path) as receiver:
        source = receiver.source(port=silent.sockets[0].getsockname()[1])
        receiver.begin_round(order([3, 70], "Peer", source))
        await connected.wait()
        await receiver.end_round()
        await receiver.end_round()
        assert (receiver.files(), receiver.lines) == ([], [])
    silent.close()


@pytest.mark.parametrize(
    "wrong",
    [
        order("x", "Peer", {"member": "worker-0", "host": HOST, "port": 1}),
        order([3], "Peer", {"member": "worker-0", "host": HOST, "port": 1}),
        order([3, 70], "Peer", {"member": "worker-0", "host": HOST, "port": "x"}),
        order([3, 70], "Peer", {"member": "worker-0"}),
        order([3, 70], "Peer", 5),
    ],
)
async def test_a_malformed_order_lets_the_program_vote_against_the_copy(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with member(tmp_path) as receiver:
        fields = told(receiver.begin_round(wrong))
        assert (fields["restore"], fields["fetching"]) == (None, False)
        assert len(receiver.lines) == 1


async def test_suspect_copies_are_removed_from_memory_and_from_the_storage(tmp_path: Path) -> None:
    async with member(tmp_path) as one:
        for copy in ((1, 5), (2, 6)):
            write_copy(one.store.directory, *copy)
        await one.save_stored(5.0, lambda: True)
        for harm in (None, "x", [[1]], [[2, "x"]], 5):
            await one.remove_suspects(harm)
        assert one.copies() == [[1, 5], [2, 6]]
        await one.remove_suspects([[2, 0]])
        assert one.copies() == [[1, 5]]
        one.store.free()
        await one.load_stored(lambda: True)
        assert one.copies() == []


async def test_a_round_whose_members_make_no_copies_frees_the_memory_of_earlier_ones(tmp_path: Path) -> None:
    """It counts against the container's limit, which may be the reason."""
    async with member(tmp_path) as one:
        write_copy(one.store.directory, 1, 5, 1000)
        (one.store.directory / "free-0").write_bytes(b"reserved")
        one.begin_round(None)
        assert one.files() == [] and not (one.store.directory / "free-0").exists()


async def test_without_room_for_its_files_a_program_takes_part_in_the_votes_only_if_all_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(tmp_path) as own:

        def full(_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(own.store, "request", full)
        assert own.begin_round(None) == {}
        assert told(own.begin_round(order([1, 40])))["restore"] is None


async def test_a_round_whose_members_make_no_copies_tells_the_program_nothing(tmp_path: Path) -> None:
    async with member(tmp_path) as own:
        (own.store.directory / copy_report.NAME).write_text('{"on": true}')
        assert own.makes_copies
        assert own.begin_round(None) == {}
        assert (own.report(), own.makes_copies) == (None, False)


async def test_a_report_after_a_request_is_passed_on_at_once_until_the_round_ends(tmp_path: Path) -> None:
    async with member(tmp_path) as own:
        reports: list[object] = []

        def write(step: int) -> None:
            path = own.store.directory / "new"
            path.write_text(json.dumps({"step": step}))
            path.rename(own.store.directory / copy_report.NAME)

        write(16)
        own.request_copy(20, lambda: reports.append(own.report()))
        request = own.store.directory / copy_request.NAME
        assert copy_request.STEP.unpack_from(request.read_bytes()) == (20,)
        write(20)
        await until(lambda: reports == [{"step": 20}], "the report")
        await own.end_round()
        write(32)
        await asyncio.sleep(5 * backup_control.REPORT_SECONDS)
        assert len(reports) == 1


async def test_a_summary_is_passed_on_at_once_and_nothing_behind_it(tmp_path: Path) -> None:
    async with member(tmp_path) as own:
        reports: list[object] = []

        def write(**told: object) -> None:
            path = own.store.directory / "new"
            path.write_text(json.dumps(told))
            path.rename(own.store.directory / copy_report.NAME)

        own.request_summary(20, lambda: reports.append(own.report()))
        request = own.store.directory / copy_request.NAME
        assert copy_request.STEP.unpack_from(request.read_bytes(), copy_request.SUMMARY) == (20,)
        write(step=16, summary=None)
        await until(lambda: len(reports) == 1, "the report")
        write(step=20, summary={"step": 20})
        await until(lambda: len(reports) == 2, "the summary")
        write(step=32, summary=None)
        await asyncio.sleep(5 * backup_control.REPORT_SECONDS)
        assert len(reports) == 2


@pytest.mark.parametrize("step", [None, "x", -1, 1 << 70, [1]])
async def test_a_request_for_no_step_is_one_line_in_the_log(tmp_path: Path, step: object) -> None:
    async with member(tmp_path) as own:
        own.request_copy(step, lambda: None)
        assert len(own.lines) == 1
        assert (own.store.directory / copy_request.NAME).read_bytes() == bytes(40)


# The job's storage.


async def test_a_new_launcher_of_the_chief_loads_what_the_earlier_one_has_stored(tmp_path: Path) -> None:
    async with member(tmp_path) as chief:
        await chief.load_stored(lambda: True)
        await chief.save_stored(5.0, lambda: True)
        assert chief.lines == []  # there is nothing to load or to store
        write_copy(chief.store.directory, 3, 64)
        write_copy(chief.store.directory, 3, 70)
        await chief.save_stored(5.0, lambda: True)
        assert chief.lines == ["tftraining: stored the backup in memory of step 70 in the job's directory"]
    async with member(tmp_path) as successor:
        await successor.load_stored(lambda: True)
        fields = successor.for_hello()
        assert (fields["copiesHeld"], fields["copiesFrom"]) == ([[3, 70]], "Storage")
        await successor.remove_stored()
        assert not list((tmp_path / "job").iterdir())


async def test_a_launcher_that_has_copies_loads_none_and_neither_does_a_worker(tmp_path: Path) -> None:
    async with member(tmp_path) as chief, member(tmp_path, 1) as worker:
        write_copy(chief.store.directory, 3, 70)
        await chief.save_stored(5.0, lambda: True)
        for each in (chief, worker):
            await each.load_stored(lambda: True)
        assert "copiesFrom" not in chief.for_hello()
        assert worker.copies() == []
        write_copy(worker.store.directory, 4, 90)
        await worker.save_stored(5.0, lambda: True)
        await worker.remove_stored()
        assert StoredCopy(tmp_path / "job", "uid").find() == (3, 70)


@pytest.mark.parametrize(
    ("seconds", "wanted", "why"), [(0.2, True, "not finished in 0.2 s"), (5.0, False, "it is of no use any more")]
)
async def test_storage_that_hangs_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, wanted: bool, why: str
) -> None:
    given_up = threading.Event()

    def hang(_: StoredCopy, store: Path, name: object, abandoned: threading.Event) -> None:
        given_up.wait(20)
        assert abandoned.is_set()

    monkeypatch.setattr(StoredCopy, "save", hang)
    async with member(tmp_path) as chief:
        write_copy(chief.store.directory, 3, 70)
        begin = time.monotonic()
        await chief.save_stored(seconds, lambda: wanted)
        assert time.monotonic() - begin < 4
        assert chief.lines == [f"tftraining: cannot store the backup in memory of step 70: {why}"]
    given_up.set()


async def test_a_hung_storage_delays_the_start_by_the_time_of_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit of its own the look took as long as the load of a large copy may take."""
    answers = threading.Event()
    monkeypatch.setattr(StoredCopy, "find", lambda _: answers.wait(20) and None)
    monkeypatch.setattr(backup_control, "FIND_SECONDS", 0.2)
    async with member(tmp_path) as chief:
        begin = time.monotonic()
        await chief.load_stored(lambda: True)
        assert time.monotonic() - begin < 4
        assert chief.lines == [
            "tftraining: cannot look for a backup in memory in the job's storage: not finished in 0.2 s"
        ]
    answers.set()


@pytest.mark.parametrize(("newer", "stored"), [([90], 90), ([90, 110, 130], 130), ([], None)])
async def test_a_copy_that_is_overwritten_while_it_is_stored_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newer: list[int], stored: int | None
) -> None:
    """A program that has not ended yet goes on making copies: each look at the first bytes finds the next one gone."""
    left, read = list(newer), OutgoingCopy.read

    def overtaken(self: OutgoingCopy, offset: int) -> bytes:
        if left or not newer:
            self._path.unlink()
        if left:
            write_copy(self._path.parent, 3, left.pop(0))
        return read(self, offset)

    monkeypatch.setattr(OutgoingCopy, "read", overtaken)
    async with member(tmp_path) as chief:
        write_copy(chief.store.directory, 3, 70)
        await chief.save_stored(20.0, lambda: True)
        gone = "copy-3-70 was overwritten or removed meanwhile"
        assert chief.lines[0] == f"tftraining: cannot store the backup in memory of step 70: {gone}"
        assert len(chief.lines) == len(newer) + 1
    found = StoredCopy(tmp_path / "job", "uid").find()
    assert found == (None if stored is None else (3, stored))
    if stored is not None:
        assert is_whole(tmp_path / "job" / ".tftraining-memory" / "uid" / f"copy-3-{stored}", stored)


async def test_storage_that_fails_is_one_line_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "job").write_text("no directory")
    async with member(tmp_path) as chief:
        await chief.load_stored(lambda: True)
        write_copy(chief.store.directory, 3, 70)
        await chief.save_stored(5.0, lambda: True)
        assert [line.partition(": ")[2][:11] for line in chief.lines] == ["cannot look", "cannot stor"]

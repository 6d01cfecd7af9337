"""The directory of a launcher's backups in memory, and the files in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.launchers.copies import is_whole, write_copy
from tftraining.launch.config.settings import MemoryBackupSettings
from tftraining.launch.in_user_process.memory_backup import copy_file, copy_report, copy_request
from tftraining.launch.process.copy_files import CHUNK_BYTES, CopyGoneError, IncomingCopy, OutgoingCopy
from tftraining.launch.process.memory_store import MemoryStore

LIMITS = MemoryBackupSettings(size_limit=5000, memory_limit=70_000, exactness="Required")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_report(store: MemoryStore, text: str) -> None:
    new = store.directory / "new"
    new.write_text(text)
    new.rename(store.directory / copy_report.NAME)


def test_a_temporary_store_goes_with_its_launcher(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    write_copy(store.directory, 1, 5)
    assert store.held() == [(1, 5)]
    store.close(ended=False)
    store.close(ended=False)
    assert names(tmp_path) == []


def test_what_a_killed_launcher_has_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    running, killed = MemoryStore.temporary(LIMITS, tmp_path), MemoryStore.temporary(LIMITS, tmp_path)
    assert killed._lock is not None
    os.close(killed._lock)
    (tmp_path / "else").mkdir()
    latest = MemoryStore.temporary(LIMITS, tmp_path)
    assert not killed.directory.exists()
    assert running.directory.is_dir()
    latest.close(ended=True)
    running.close(ended=True)
    assert names(tmp_path) == ["else"]


def test_the_next_launcher_takes_over_the_complete_copies_of_its_member_and_job(tmp_path: Path) -> None:
    store = MemoryStore.lasting(LIMITS, tmp_path, "uid", "worker-1")
    write_copy(store.directory, 1, 5)
    write_report(store, "{}")
    (store.directory / "fetch-1-6").touch()
    (store.directory / "failed-1-7").touch()
    store.request(9)
    with pytest.raises(OSError, match="in use by another launcher"):
        MemoryStore.lasting(LIMITS, tmp_path, "uid", "worker-1")
    other = MemoryStore.lasting(LIMITS, tmp_path, "uid", "worker-0")
    store.close(ended=False)
    other.close(ended=False)
    successor = MemoryStore.lasting(LIMITS, tmp_path, "uid", "worker-1")
    assert (successor.held(), successor.report()) == ([(1, 5)], None)
    assert names(successor.directory) == ["copy-1-5", "lock", "request"]
    assert (successor.directory / "request").read_bytes() == bytes(40)
    assert other.directory.exists()
    successor.close(ended=True)
    assert not successor.directory.exists()


def test_the_copies_of_another_job_are_not_taken_over_but_removed(tmp_path: Path) -> None:
    earlier = MemoryStore.lasting(LIMITS, tmp_path, "earlier", "worker-1")
    write_copy(earlier.directory, 1, 5)
    earlier.close(ended=False)
    store = MemoryStore.lasting(LIMITS, tmp_path, "uid", "worker-1")
    assert store.held() == []
    assert not earlier.directory.exists()
    store.close(ended=True)


def test_the_program_is_told_all_that_it_needs(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    told = store.variables({"restore": [1, 5], "doubted": [3, 9]}, "Peer", "uid-1", fetching=True)
    assert json.loads(told[copy_file.VARIABLE]) == {
        "directory": str(store.directory),
        "percent": 1.0,
        "restore": [1, 5],
        "source": "Peer",
        "fetching": True,
        "memoryLimit": 70_000,
        "sizeLimit": 5000,
        "waitSteps": 200,
        "exactness": "Required",
        "uid": "uid-1",
        "doubted": [3, 9],
    }
    store.close(ended=True)


def test_a_request_is_written_in_place_for_a_program_that_has_mapped_it(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    with (store.directory / copy_request.NAME).open("rb") as file:
        program = copy_request.CopyRequest(str(store.directory))
        store.request(1 << 40)
        assert (program.step(), program.summary_from()) == (1 << 40, 0)
        store.request_summary(1 << 41)
        assert (program.step(), program.summary_from()) == (1 << 40, 1 << 41)
        assert copy_request.STEP.unpack(file.read(8))[0] == 1 << 40
    store.begin_round()
    assert (program.step(), program.summary_from()) == (0, 0)
    store.close(ended=True)


def test_a_report_is_read_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    assert store.report() is None
    write_report(store, '{"step": 5}')
    assert store.report() == {"step": 5}
    monkeypatch.setattr(store, "_read_report", lambda: pytest.fail("it has not changed"))
    assert store.report() == {"step": 5}
    monkeypatch.undo()
    for harm in ("[]", "{", '{"x": "' + "x" * 60_000 + '"}', ""):
        write_report(store, harm)
        assert store.report() is None
    write_report(store, '{"step": 6}')
    assert store.report() == {"step": 6}
    store.begin_round()
    assert store.report() is None
    store.close(ended=True)


def test_the_memory_of_what_the_program_would_not_keep_is_free_before_a_fetch(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    for step in (5, 6):
        write_copy(store.directory, 1, step)
    (store.directory / "free-1-4").touch()
    store.make_room()
    assert names(store.directory) == ["copy-1-6", "lock", "request"]
    store.close(ended=True)


def test_suspect_copies_are_removed_with_the_later_ones_of_their_rounds(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    for copy in ((1, 5), (1, 6), (2, 3), (3, 0)):
        write_copy(store.directory, *copy)
    store.remove_suspects({1: 6, 3: 0, 4: 2})
    assert store.held() == [(1, 5), (2, 3)]
    store.close(ended=True)


# The files.


def copied(directory: Path, source: OutgoingCopy, target: IncomingCopy) -> None:
    source.open()
    target.reserve()
    sent = 0
    while sent < source.size:
        data = source.read(sent)
        sent += len(data)
        assert target.write(data) == source.size - sent


def test_a_copy_arrives_under_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    size = 3 * CHUNK_BYTES + 17
    path = write_copy(tmp_path, 1, 5, size)
    total = path.stat().st_size
    there = tmp_path / "there"
    there.mkdir()
    source, target = OutgoingCopy(tmp_path, (1, 5)), IncomingCopy(there, (1, 5), total, "fetch-1-5")
    copied(tmp_path, source, target)
    assert names(there) == ["fetch-1-5"]
    target.complete()
    target.close()
    source.close()
    assert names(there) == ["copy-1-5"]
    assert is_whole(there / "copy-1-5", 5)


def test_a_copy_that_is_overwritten_ends_its_reader(tmp_path: Path) -> None:
    write_copy(tmp_path, 1, 5)
    source = OutgoingCopy(tmp_path, (1, 5))
    source.open()
    assert source.read(0)
    (tmp_path / "copy-1-5").rename(tmp_path / "free-1-5")
    with pytest.raises(CopyGoneError, match="overwritten"):
        source.read(0)
    write_copy(tmp_path, 1, 5)  # another file of that name
    with pytest.raises(CopyGoneError):
        source.read(0)
    source.close()
    source.close()


@pytest.mark.parametrize("kind", ["absent", "link", "directory", "pipe", "short"])
def test_only_a_file_of_its_own_is_a_copy(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "copy-1-5"
    if kind == "link":
        path.symlink_to(write_copy(tmp_path, 1, 4))
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "short":
        path.write_bytes(b"x")
    source = OutgoingCopy(tmp_path, (1, 5))
    with pytest.raises(OSError):
        source.open()
    source.close()


def test_an_incomplete_foreign_or_long_copy_gets_no_name(tmp_path: Path) -> None:
    for harm in (b"", b"x" * copy_file.HEAD):
        target = IncomingCopy(tmp_path, (1, 5), copy_file.HEAD, "fetch-1-5")
        target.reserve()
        target.write(harm)
        with pytest.raises(ValueError, match="no complete copy"):
            target.complete()
        if harm:
            with pytest.raises(ValueError, match="longer"):
                target.write(b"x")
        target.close()
        assert names(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    target = IncomingCopy(tmp_path, (1, 5), 1 << 60, "fetch-1-5")
    with pytest.raises(OSError):
        target.reserve()
    target.close()
    target.close()
    assert names(tmp_path) == []


def test_a_copy_that_is_set_aside_is_one_to_restore_from_once_the_training_goes_back(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    write_copy(store.directory, 1, 5)
    (store.directory / "copy-1-5").rename(store.directory / "agreed-1-5")
    assert store.held() == []
    store.go_back(1, 5)
    store.go_back(1, 5)  # the answer to the order was lost
    store.go_back(1, 6)  # another member has it
    assert store.held() == [(1, 5)] and (store.directory / "agreed-1-5").exists()
    store.free()
    assert names(store.directory) == ["lock", "request"]
    store.close(ended=True)


def test_the_order_to_set_a_copy_aside_names_the_one_that_stays(tmp_path: Path) -> None:
    store = MemoryStore.temporary(LIMITS, tmp_path)
    program = copy_request.CopyRequest(str(store.directory))
    assert (program.set_aside_from(), program.agreed()) == (0, None)
    store.request_set_aside(1 << 40, (3, 1 << 41))
    assert (program.set_aside_from(), program.agreed(), program.step()) == (1 << 40, (3, 1 << 41), 0)
    store.begin_round()
    assert (program.set_aside_from(), program.agreed()) == (0, None)
    store.close(ended=True)

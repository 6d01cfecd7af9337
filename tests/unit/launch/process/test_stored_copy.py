"""The copy of the training state in the job's storage, for a gang all of whose members end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.support.launchers.copies import is_whole, write_copy
from tftraining.launch.process.stored_copy import FORGOTTEN_SECONDS, PLACE, StoredCopy

SIZE = 600_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"  # which the launcher creates


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def of_copy(uid: str, number: int, step: int) -> list[str]:
    return [f"{PLACE}/{uid}/{each}-{number}-{step}" for each in ("copy", "crc32")]


def test_a_stored_copy_comes_back_whole(store: Path, storage: Path, tmp_path: Path) -> None:
    write_copy(store, 3, 70, SIZE)
    stored = StoredCopy(storage, "uid")
    assert stored.find() is None
    stored.save(store, (3, 70), threading.Event())
    stored.save(store, (3, 70), threading.Event())  # it is there
    assert stored.find() == (3, 70)
    other = tmp_path / "other"
    other.mkdir()
    stored.load(other, (3, 70), threading.Event())
    assert files(other) == ["copy-3-70"]
    assert is_whole(other / "copy-3-70", 70)


def test_a_newer_copy_replaces_the_older_one_and_what_a_killed_launcher_has_left(store: Path, storage: Path) -> None:
    stored = StoredCopy(storage, "uid")
    for step in (70, 90):
        write_copy(store, 3, step)
        stored.save(store, (3, step), threading.Event())
        (storage / PLACE / "uid" / "new").touch()
    write_copy(store, 4, 80)
    stored.save(store, (4, 80), threading.Event())
    assert files(storage) == of_copy("uid", 4, 80)


def test_a_suspect_copy_is_removed_and_no_other(store: Path, storage: Path) -> None:
    stored = StoredCopy(storage, "uid")
    stored.remove_suspects({3: 0})
    write_copy(store, 3, 70)
    stored.save(store, (3, 70), threading.Event())
    stored.remove_suspects({3: 71, 2: 0})
    assert stored.find() == (3, 70)
    stored.remove_suspects({3: 70})
    assert stored.find() is None and files(storage) == []


def test_only_the_job_that_has_stored_a_copy_finds_it(store: Path, storage: Path) -> None:
    write_copy(store, 3, 70)
    StoredCopy(storage, "uid").save(store, (3, 70), threading.Event())
    other = StoredCopy(storage, "another")
    assert other.find() is None
    other.save(store, (3, 70), threading.Event())
    other.remove()
    assert files(storage) == of_copy("uid", 3, 70)


def test_the_copy_goes_with_its_job_and_nothing_else_does(store: Path, storage: Path) -> None:
    stored = StoredCopy(storage, "uid")
    write_copy(store, 3, 70)
    stored.save(store, (3, 70), threading.Event())
    (storage / "model.keras").touch()
    stored.remove()
    stored.remove()
    assert [path.name for path in storage.iterdir()] == ["model.keras"]


def test_the_copy_of_a_deleted_job_is_removed_when_nobody_can_want_it_any_more(store: Path, storage: Path) -> None:
    write_copy(store, 3, 70)
    for uid, age in (("recent", FORGOTTEN_SECONDS - 60), ("old", FORGOTTEN_SECONDS + 60)):
        StoredCopy(storage, uid).save(store, (3, 70), threading.Event())
        place = storage / PLACE / uid
        at = place.stat().st_mtime - age
        os.utime(place, (at, at))
    StoredCopy(storage, "uid").save(store, (3, 70), threading.Event())
    assert files(storage) == [*of_copy("recent", 3, 70), *of_copy("uid", 3, 70)]


def test_a_copy_that_nobody_waits_for_is_not_stored(store: Path, storage: Path) -> None:
    stored, abandoned = StoredCopy(storage, "uid"), threading.Event()
    write_copy(store, 3, 60)
    stored.save(store, (3, 60), abandoned)
    write_copy(store, 3, 70)
    abandoned.set()
    with pytest.raises(OSError, match="too long"):
        stored.save(store, (3, 70), abandoned)
    assert files(storage) == of_copy("uid", 3, 60)


@pytest.mark.parametrize("name", ["copy-3-70.tmp", "copy-x-1", "copy-1", "new"])
def test_no_other_file_counts(storage: Path, name: str) -> None:
    place = storage / PLACE / "uid"
    place.mkdir(parents=True)
    (place / name).touch()
    assert StoredCopy(storage, "uid").find() is None


@pytest.mark.parametrize("content", [b"", b"x" * 10_000])
def test_a_damaged_copy_is_not_loaded(store: Path, storage: Path, content: bytes) -> None:
    place = storage / PLACE / "uid"
    place.mkdir(parents=True)
    (place / "copy-3-70").write_bytes(content)
    with pytest.raises((OSError, ValueError)):
        StoredCopy(storage, "uid").load(store, (3, 70), threading.Event())
    assert files(store) == []


@pytest.mark.parametrize("place", [100, SIZE - 1], ids=["in the head", "at the end"])
def test_a_copy_whose_bytes_the_storage_has_changed_is_not_loaded(store: Path, storage: Path, place: int) -> None:
    write_copy(store, 3, 70, SIZE)
    StoredCopy(storage, "uid").save(store, (3, 70), threading.Event())
    (store / "copy-3-70").unlink()
    with (storage / PLACE / "uid" / "copy-3-70").open("r+b") as file:
        file.seek(place)
        old = file.read(1)
        file.seek(place)
        file.write(bytes([old[0] ^ 1]))
    with pytest.raises(ValueError, match="the storage has changed its bytes"):
        StoredCopy(storage, "uid").load(store, (3, 70), threading.Event())
    assert files(store) == []


def test_a_copy_of_a_launcher_that_wrote_no_checksum_is_loaded(store: Path, storage: Path) -> None:
    write_copy(store, 3, 70, SIZE)
    StoredCopy(storage, "uid").save(store, (3, 70), threading.Event())
    (storage / PLACE / "uid" / "crc32-3-70").unlink()
    (store / "copy-3-70").unlink()
    StoredCopy(storage, "uid").load(store, (3, 70), threading.Event())
    assert is_whole(store / "copy-3-70", 70)

"""A full disk under the backups is named in the last lines; the training resumes once there is room."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

KIB = 256
WORDS = os.strerror(errno.ENOSPC)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system in memory of its own at `place`, with little room."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={KIB}k", "tftraining-test", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path) -> Path:
    """Take all the room that is left."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match=WORDS):
        while True:
            file.write(b"x" * 4096)
    return filler


def test_a_full_disk_fails_the_job_and_is_named(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "1000", maxRestarts=1) as gang, small_disk(gang.directory):
        gang.start()
        gang.wait_for_phase("Training")
        fill(gang.directory)
        codes = gang.wait()
        told = gang.message("worker-0")
    assert (told["verdict"], told["reason"]) == ("Failed", "MaxRestartsExceeded")
    assert 1 in codes.values()
    assert WORDS in (tmp_path / f"message-{told['member']}").read_text()


def test_the_training_resumes_once_the_disk_has_room(tmp_path: Path) -> None:
    with LocalGang(tmp_path, {"worker": 2}, "--epochs", "30") as gang, small_disk(gang.directory):
        gang.start()
        gang.wait_for_phase("Training")
        filler = fill(gang.directory)
        gang.wait_for(lambda: gang.status().get("lastRestart"))
        filler.unlink()
        assert gang.wait() == {"worker-0": 0, "worker-1": 0}
        told = gang.message("worker-0")
    assert told["verdict"] == "Succeeded"
    assert told["ledger"]["processFailures"] >= 1

"""The record of what a program would leave behind."""

from __future__ import annotations

import sys
import tempfile
import types
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import leftovers
from tftraining.launch.in_user_process.leftovers import CACHE, TEMPORARY, Record


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record"
    path.touch()
    return path


def test_entries_are_appended(record: Path) -> None:
    Record(str(record)).note(TEMPORARY, b"/tmp/a b\n")
    Record(str(record)).note(CACHE, b"/c")
    assert record.read_bytes() == b"t/tmp/a b\n\0c/c\0"


def test_nothing_is_noted_once_the_round_is_over(record: Path) -> None:
    record.unlink()
    Record(str(record)).note(TEMPORARY, b"/tmp/a")
    assert not record.exists()


def test_the_record_forgets_what_the_program_has_removed(record: Path, tmp_path: Path) -> None:
    kept, note = tmp_path / "kept", Record(str(record)).note
    kept.touch()
    note(TEMPORARY, bytes(kept))
    note(CACHE, b"/c")
    for number in range(20_000):
        note(TEMPORARY, b"/tmp/gone-%d" % number)
    assert record.stat().st_size < leftovers.LIMIT_BYTES + 100
    assert record.read_bytes().startswith(b"t%b\0c/c\0" % bytes(kept))


def test_the_record_has_a_limit(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "LIMIT_BYTES", 100)
    monkeypatch.setattr(leftovers, "MOST_BYTES", 1000)
    note = Record(str(record)).note
    for _ in range(200):
        note(TEMPORARY, bytes(record))
    assert 1000 <= record.stat().st_size < 1000 + len(bytes(record)) + 2


def test_another_tempfile_is_left_alone(record: Path) -> None:
    def without_audit() -> None:
        """As it may be one day."""

    module = types.SimpleNamespace(_sys=sys, mkdtemp=without_audit, _mkstemp_inner=tempfile._mkstemp_inner)  # type: ignore[attr-defined]
    leftovers._extend_tempfile(module, Record(str(record)))
    assert module._sys is sys


def test_a_file_of_another_process_is_not_noted(record: Path, tmp_path: Path) -> None:
    stand_in = leftovers._Sys(Record(str(record)))
    stand_in.audit("tempfile.mkstemp", str(record))
    assert record.read_bytes() == b""
    stand_in.audit("tempfile.mkdtemp", f"{tmp_path}/new")
    stand_in.audit("open", f"{tmp_path}/opened", "w", 0)
    assert record.read_bytes() == b"t%b/new\0" % bytes(tmp_path)
    assert stand_in.platform == sys.platform

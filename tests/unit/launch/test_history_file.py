"""The file of the history: read before it is written, by the same job only, and never waited for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tftraining.launch import history_file
from tftraining.launch.gang.training_history import TrainingHistory
from tftraining.launch.history import FILE, SERIES_BYTES, Mark, Series
from tftraining.launch.history_file import HistoryFile, history_text, read_history


def series_of(*steps: int) -> Series:
    series = Series()
    for step in steps:
        series.record(step, 1, 1e9 + step, {"loss": 1 / step})
    series.mark(Mark(1e9, 3, "Killed"))
    return series


def write(path: Path, series: Series, uid: str = "uid") -> None:
    path.write_text(history_text(series, uid))


async def kept(directory: Path, *steps: int) -> TrainingHistory:
    """The history of a launcher that hears of these steps and ends."""
    history = TrainingHistory()
    file = HistoryFile(directory, "uid", history, print)
    file.open()
    for step in steps:
        history.series.record(step, 1, 1e9 + step, {"loss": 2.0})
    await file.close()
    return history


def test_only_the_job_that_wrote_the_file_reads_it(tmp_path: Path) -> None:
    write(tmp_path / FILE, series_of(10, 20))
    assert read_history(tmp_path / FILE, "uid").to_json() == series_of(10, 20).to_json()
    assert read_history(tmp_path / FILE, "uid").after == 9
    assert len(read_history(tmp_path / FILE, "another")) == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"uid": "uid", "steps": 5}', b"[" * 100_000])
def test_an_invalid_file_is_an_empty_history(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert len(read_history(tmp_path / FILE, "uid")) == 0


def test_the_largest_file_is_read(tmp_path: Path) -> None:
    series = Series()
    for step in range(4000):
        series.record(2**50 + step, 2**40, 1e9 + step / 3, {f"metric {name}": -1.23456e-300 for name in range(20)})
    write(tmp_path / FILE, series)
    assert SERIES_BYTES / 2 < (tmp_path / FILE).stat().st_size <= SERIES_BYTES
    assert len(read_history(tmp_path / FILE, "uid")) == len(series)


async def test_a_new_launcher_continues_the_file(tmp_path: Path) -> None:
    assert list((await kept(tmp_path / "job", 10, 20)).series.steps) == [10, 20]
    assert list((await kept(tmp_path / "job", 30)).series.steps) == [10, 20, 30]
    assert list(read_history(tmp_path / "job" / FILE, "uid").steps) == [10, 20, 30]
    assert [path.name for path in (tmp_path / "job").iterdir()] == [FILE]


async def test_a_training_without_metrics_leaves_no_file(tmp_path: Path) -> None:
    await kept(tmp_path)
    assert not (tmp_path / FILE).exists()


async def test_storage_that_hangs_is_never_written_and_delays_the_end_by_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_file, "LAST_WRITE_SECONDS", 0.05)
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / FILE, series_of(10, 20, 30))

    def hang(path: Path, uid: str) -> Series:
        (tmp_path / "pipe").open("rb").close()  # until the test opens the other end
        return Series()

    monkeypatch.setattr(history_file, "read_history", hang)
    try:
        history = await asyncio.wait_for(kept(tmp_path, 99), 5)
    finally:
        os.close(os.open(tmp_path / "pipe", os.O_WRONLY))
    assert list(history.series.steps) == [99]
    assert list(read_history(tmp_path / FILE, "uid").steps) == [10, 20, 30], "the longer curve is still there"


async def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    log: list[str] = []
    history = TrainingHistory()
    file = HistoryFile(tmp_path, "uid", history, log.append)
    file.open()
    for step in (1, 2, 3):
        history.series.record(step, 1, 1e9, {"loss": 1.0})
        await file._write(tmp_path / FILE)
    await file.close()
    (line,) = log
    assert line.startswith(f"tftraining: cannot write the history to {tmp_path / FILE}: ")

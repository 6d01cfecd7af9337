"""The file of a success in the job's directory: only the job that wrote it reads a success from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tftraining.launch import success_file


def test_only_the_job_that_wrote_a_success_reads_it(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    assert success_file.read_success(directory, "a") is None
    success_file.write_success(directory, "a")
    success_file.write_success(directory, "a")
    found = success_file.read_success(directory, "a")
    assert found is not None
    assert found.verdict == "Succeeded"
    assert success_file.read_success(directory, "b") is None
    assert [path.name for path in directory.iterdir()] == [success_file.FILE]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"uid": "a"}', b'{"uid": "a", "verdict": "Failed"}'])
def test_an_invalid_file_is_no_success(tmp_path: Path, content: bytes) -> None:
    (tmp_path / success_file.FILE).write_bytes(content)
    assert success_file.read_success(tmp_path, "a") is None


def test_a_symbolic_link_is_no_success(tmp_path: Path) -> None:
    success_file.write_success(tmp_path / "elsewhere", "a")
    (tmp_path / success_file.FILE).symlink_to(tmp_path / "elsewhere" / success_file.FILE)
    assert success_file.read_success(tmp_path, "a") is None


def test_an_interrupted_write_does_not_block_the_next_one(tmp_path: Path) -> None:
    (tmp_path / f"{success_file.FILE}.1").write_text("{")
    (tmp_path / f"{success_file.FILE}.{os.getpid()}").write_text("{")
    success_file.write_success(tmp_path, "a")
    assert success_file.read_success(tmp_path, "a") is not None
    assert [path.name for path in tmp_path.iterdir()] == [success_file.FILE]

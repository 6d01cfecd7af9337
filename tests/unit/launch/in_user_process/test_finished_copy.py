"""Copies of finished trainings on disk: when one is valid, and that only copies are removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import finished_copy as copies


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy that counts, as Keras' own files would be in it."""
    path = Path(copies.copy_path(str(tmp_path / "backup"), "0123456789abcdef"))
    path.mkdir()
    for name in ("final.index", "final.data-00000-of-00001", "ckpt-3.index", "checkpoint"):
        (path / name).write_text(name)
    copies.write_mark(str(path), {"uid": "a"})
    return path


def test_a_copy_is_valid_only_with_its_mark_and_for_its_job(copy: Path) -> None:
    mark = copies.read_mark(str(copy), "a")
    assert mark["uid"] == "a"
    assert copies.read_mark(str(copy), "b") == {}
    assert copies.wait_until(lambda: copies.read_mark(str(copy), "a"), 0.0) == mark
    assert copies.wait_until(lambda: copies.read_mark(str(copy), "b"), 0.0) == {}
    (copy / copies.MARK).unlink()
    assert copies.read_mark(str(copy), "a") == {}


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"sizes": 1}', '{"uid": "a"'])
def test_an_invalid_mark_is_no_mark(copy: Path, text: str) -> None:
    (copy / copies.MARK).write_text(text)
    assert copies.read_mark(str(copy), "a") == {}


def test_a_truncated_file_makes_the_copy_invalid(copy: Path) -> None:
    (copy / "final.index").write_text("")
    assert copies.read_mark(str(copy), "a") == {}


def test_only_copies_of_the_backup_are_found(tmp_path: Path) -> None:
    names = ("chief.finished-2f", "chief.finished-10", "chief.finished-", "chief", "x.finished-1", "chief.aside-1")
    for name in (*names, "chief.finished-1.h5", "chief.finished-three"):
        (tmp_path / name).mkdir()
    found = copies.copies(str(tmp_path / "chief"))
    assert [Path(path).name for path in found] == ["chief.finished-10", "chief.finished-2f"]
    assert copies.copies(str(tmp_path / "none" / "chief")) == []


def test_remove_listed_removes_the_copies_and_the_list(tmp_path: Path, copy: Path) -> None:
    file = copies.list_file(tmp_path / "job", tmp_path / "scratch", "worker-0")
    for _ in range(2):
        copies.add_to_list(str(copy), str(file))
    copies.add_to_list(str(tmp_path / "never-made.finished-1"), str(file))
    assert len(file.read_text().splitlines()) == 2
    assert copies.remove_listed(file) == []
    assert [each.name for each in tmp_path.iterdir()] == ["job"] and list((tmp_path / "job").iterdir()) == []
    assert copies.remove_listed(file) == []


def test_a_backup_set_aside_returns_to_its_place_with_the_end_of_the_job(tmp_path: Path) -> None:
    file = tmp_path / "list"
    for number in (1, 2):
        (aside := tmp_path / f"chief.aside-{number}").mkdir()
        (aside / "ckpt").write_text(str(number))
        copies.add_to_list(str(aside), str(file))
    assert copies.remove_listed(file) == []
    assert [each.name for each in tmp_path.iterdir()] == ["chief"]
    assert (tmp_path / "chief" / "ckpt").read_text() == "1"


def test_remove_listed_removes_only_copies_and_follows_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    link = tmp_path / "link.finished-1"
    link.symlink_to(precious)
    file = tmp_path / "list"
    lines = [json.dumps(each) for each in (str(precious), "a.finished-1", "/", str(link), 5)]
    file.write_text("\n".join([*lines, "no JSON", ""]))
    assert copies.remove_listed(file) == []
    assert precious.is_dir() and not link.is_symlink()


def test_a_copy_that_cannot_be_removed_is_reported_and_stays_listed(tmp_path: Path, copy: Path) -> None:
    inside = copy / "file" / "chief.finished-1"  # below a file nothing can be removed
    (copy / "file").write_text("")
    file = tmp_path / "list"
    copies.add_to_list(str(inside), str(file))
    assert copies.remove_listed(file) == [f"{inside}: Not a directory"]
    assert file.exists()


def test_without_a_job_directory_the_list_lies_in_the_scratch_directory(tmp_path: Path) -> None:
    assert copies.list_file(None, tmp_path, "worker-1").parent == tmp_path


def test_numbers_and_tensors_become_json_types(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    told = {"loss": [numpy.float32(0.5), 1], "matrix": numpy.eye(2), "name": "a", "other": object}
    copies.write_json(str(tmp_path / "new" / "told"), told)
    expected = {"loss": [0.5, 1], "matrix": [[1.0, 0.0], [0.0, 1.0]], "name": "a", "other": str(object)}
    assert copies.read_json(str(tmp_path / "new" / "told")) == expected

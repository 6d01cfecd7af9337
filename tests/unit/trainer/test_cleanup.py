"""The cleanup removes what it was asked to remove, says what it left, and cannot be led astray by what is on disk."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tftraining import cleanup

NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "training" / "my-job"
    root.mkdir(parents=True)
    return root


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory of somebody else; it must survive everything."""
    return populate(tmp_path / "training" / "other-job" / "workertemp_1")


@pytest.fixture
def unprivileged_root() -> Iterator[Path]:
    """A job's directory in which the effective user is an ordinary one, so that permissions count."""
    top = Path(tempfile.mkdtemp(dir="/tmp"))
    top.chmod(0o777)
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    root = top / "my-job"
    root.mkdir()
    yield root
    os.seteuid(before)
    shutil.rmtree(top)


def populate(directory: Path) -> Path:
    (directory / "variables" / "deep").mkdir(parents=True)
    (directory / "variables" / "deep" / "data").write_text("x")
    (directory / "saved_model.pb").write_text("x")
    return directory


def run(root: Path, *arguments: str, save_dirs: tuple[str, ...] = (".",)) -> int:
    given = [word for save_dir in save_dirs for word in ("--save-dir", save_dir)]
    return cleanup.main(
        ["--root", str(root), *given, *arguments, "--termination-log", str(root.parent / "result.json")]
    )


def result(root: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((root.parent / "result.json").read_text())
    return loaded


def failed_paths(root: Path) -> list[str]:
    failed = result(root)["failed"]
    assert isinstance(failed, list)
    return [failure["path"] for failure in failed]


def indexes(*numbers: int) -> list[str]:
    return [word for number in numbers for word in ("--index", str(number))]


def test_removes_the_asked_for_directories_and_nothing_else(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("workertemp_1", "workertemp_2", "backup/workertemp_1"):
        populate(root / name)
    kept = [
        populate(root / name) for name in ("workertemp_3", "workertemp_10", "model", "backup/chief", "x/workertemp_1")
    ]
    assert run(root, *indexes(1, 2), save_dirs=(".", "backup")) == 0
    assert result(root) == {"removed": 3, "failed": []}
    assert sorted(path.name for path in root.iterdir()) == ["backup", "model", "workertemp_10", "workertemp_3", "x"]
    assert all((directory / "variables" / "deep" / "data").exists() for directory in kept)
    assert "cleanup: removed backup/workertemp_1\n" in capsys.readouterr().out


def test_a_second_run_has_nothing_to_do(root: Path) -> None:
    populate(root / "workertemp_1")
    assert run(root, *indexes(1)) == 0
    assert run(root, *indexes(1)) == 0
    assert result(root) == {"removed": 0, "failed": []}


@pytest.mark.parametrize("save_dirs", [(".",), ("no/such",)])
def test_what_is_not_there_is_clean(root: Path, save_dirs: tuple[str, ...]) -> None:
    assert run(root / "gone", *indexes(1), save_dirs=save_dirs) == 0
    assert run(root, *indexes(1), save_dirs=save_dirs) == 0
    assert result(root) == {"removed": 0, "failed": []}


def test_a_link_of_the_name_is_left_and_reported(root: Path, victim: Path) -> None:
    (root / "workertemp_1").symlink_to(victim)
    populate(root / "workertemp_2")
    assert run(root, *indexes(1, 2)) == 1
    assert result(root)["removed"] == 1
    assert failed_paths(root) == ["workertemp_1"]
    assert (root / "workertemp_1").is_symlink()
    assert (victim / "variables" / "deep" / "data").exists()


def test_a_file_of_the_name_is_left_and_reported(root: Path) -> None:
    (root / "workertemp_1").write_text("mine")
    assert run(root, *indexes(1)) == 1
    assert failed_paths(root) == ["workertemp_1"]
    assert (root / "workertemp_1").read_text() == "mine"


def test_links_inside_are_removed_and_not_followed(root: Path, victim: Path) -> None:
    populate(root / "workertemp_1")
    (root / "workertemp_1" / "variables" / "link").symlink_to(victim)
    assert run(root, *indexes(1)) == 0
    assert not (root / "workertemp_1").exists()
    assert (victim / "saved_model.pb").exists()


@pytest.mark.parametrize("save_dir", ["link", "link/deep", "deep/link"])
def test_a_save_directory_behind_a_link_is_refused(root: Path, victim: Path, save_dir: str) -> None:
    populate(victim.parent / "deep" / "workertemp_1")
    (root / "deep").mkdir()
    for link in (root / "link", root / "deep" / "link"):
        link.symlink_to(victim.parent)
    assert run(root, *indexes(1), save_dirs=(save_dir,)) == 1
    assert failed_paths(root) == [save_dir]
    assert (victim / "saved_model.pb").exists()
    assert (victim.parent / "deep" / "workertemp_1" / "saved_model.pb").exists()


def test_a_root_behind_a_link_is_refused(root: Path, victim: Path) -> None:
    root.rmdir()
    root.symlink_to(victim.parent)
    assert run(root, *indexes(1)) == 1
    assert failed_paths(root) == [str(root)]
    assert (victim / "saved_model.pb").exists()


def test_a_directory_swapped_for_a_link_after_the_look_is_not_followed(
    root: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(root / "workertemp_1")
    look = os.stat

    def look_then_swap(path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        seen = look(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if path == "workertemp_1" and dir_fd is not None:
            (root / "workertemp_1").rename(root / "aside")
            (root / "workertemp_1").symlink_to(victim)
        return seen

    monkeypatch.setattr(os, "stat", look_then_swap)
    assert run(root, *indexes(1)) == 1
    monkeypatch.undo()
    assert failed_paths(root) == ["workertemp_1"]
    assert (victim / "saved_model.pb").exists()


def test_a_save_directory_swapped_while_open_leads_nowhere(
    root: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(root / "backup" / "workertemp_1")
    scan = os.scandir

    def swap_then_scan(descriptor: int) -> Iterator[os.DirEntry[str]]:
        (root / "backup").rename(root / "aside")
        (root / "backup").symlink_to(victim.parent)
        monkeypatch.undo()
        return scan(descriptor)

    monkeypatch.setattr(os, "scandir", swap_then_scan)
    assert run(root, *indexes(1), save_dirs=("backup",)) == 0
    assert not (root / "aside" / "workertemp_1").exists()
    assert (victim / "saved_model.pb").exists()


def test_what_may_not_be_removed_is_reported_and_the_rest_is_removed(unprivileged_root: Path) -> None:
    root = unprivileged_root
    locked = populate(root / "workertemp_1") / "variables"
    populate(root / "workertemp_2")
    locked.chmod(0o500)
    assert run(root, *indexes(1, 2)) == 1
    assert result(root)["removed"] == 1
    assert failed_paths(root) == ["workertemp_1/variables/deep"]
    assert not (root / "workertemp_1" / "saved_model.pb").exists()
    assert not (root / "workertemp_2").exists()
    locked.chmod(0o700)
    assert run(root, *indexes(1, 2)) == 0


def test_too_deep_a_tree_is_reported(root: Path) -> None:
    (root / "workertemp_1").joinpath(*["d"] * (cleanup.MAX_DEPTH + 3)).mkdir(parents=True)
    populate(root / "workertemp_2")
    assert run(root, *indexes(1, 2)) == 1
    assert result(root)["removed"] == 1
    assert len(failed_paths(root)) == 1


def test_the_time_is_bounded(root: Path) -> None:
    populate(root / "workertemp_1")
    assert run(root, *indexes(1), "--timeout", "1e-9") == 1
    assert result(root) == {"removed": 0, "failed": [{"path": str(root), "error": "not finished in time"}]}


def test_many_failures_fit_a_termination_message(root: Path) -> None:
    for number in range(300):
        (root / f"workertemp_{number}").touch()
    assert run(root, *indexes(*range(300))) == 1
    assert (root.parent / "result.json").stat().st_size <= 4096
    assert failed_paths(root)[0] == "workertemp_0"
    assert sum(1 for path in failed_paths(root) if path) < 300
    assert str(result(root)["failed"]).endswith(" more'}]")


def test_any_file_name_can_be_removed_and_reported(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "workertemp_1").mkdir()
    os.close(os.open(os.fsencode(root) + b"/workertemp_1/\xff\n", os.O_CREAT))
    assert run(root, *indexes(1)) == 0
    cleanup.say("\udcff")
    assert "\\udcff" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--root", "training"],
        ["--root", "/training/../etc"],
        ["--root", "/"],
        ["--root", ""],
        ["--root", "//training"],
        ["--root", "/training", "--save-dir", "/etc"],
        ["--root", "/training", "--save-dir", "a/../../b"],
        ["--root", "/training", "--save-dir", ""],
        ["--root", "/training", "--index", "-1"],
        ["--root", "/training", "--index", "1/../../x"],
        ["--root", "/training", "--timeout", "0"],
        ["--root", "/training", "--timeout", "nan"],
        ["--save-dir", "."],
        ["--root", "/training", "--chief"],
    ],
)
def test_bad_arguments_end_with_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cleanup.main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_needs_only_the_standard_library(root: Path) -> None:
    """As in its pod: no site packages, and no TensorFlow pulled in by the package."""
    populate(root / "workertemp_1")
    package = Path(cleanup.__file__).parents[1]
    command = [sys.executable, "-S", "-W", "error", "-m", "tftraining.cleanup", "--root", str(root), "--save-dir", "."]
    done = subprocess.run(
        [*command, *indexes(1)],
        env={"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "cleanup: removed workertemp_1",
        "cleanup: temporary save directories removed: 1, failures: 0",
    ]


def test_is_written_for_python_3_9() -> None:
    """Whatever image a job has, the same file can run in it."""
    ast.parse(Path(cleanup.__file__).read_text(), feature_version=(3, 9))

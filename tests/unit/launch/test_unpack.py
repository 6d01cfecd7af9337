"""The program of spec.code in the init container: digests, hostile archives, and a real Git repository."""

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.needed import need_or_skip
from tftraining.launch import git_checkout, install, unpack
from tftraining.launch.unpack import CodeError


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(name)
    header.type, header.linkname, header.size = kind, target, len(data)
    return header, data


def archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> tuple[Path, str]:
    with tarfile.open(path, "w:gz") as tar:
        for header, data in entries:
            tar.addfile(header, io.BytesIO(data))
    return path, unpack.digest_of(path)


HOSTILE = {
    "parent": [entry("../outside")],
    "parent in the middle": [entry("a/../../outside")],
    "absolute": [entry("/outside")],
    "absolute link": [entry("link", tarfile.SYMTYPE, "/etc")],
    "link to the parent": [entry("link", tarfile.SYMTYPE, "..")],
    "link by way of a link": [
        entry("a/b/link", tarfile.SYMTYPE, "../.."),
        entry("other", tarfile.SYMTYPE, "a/b/link/../.."),
    ],
    "hard link": [entry("train.py"), entry("link", tarfile.LNKTYPE, "train.py")],
    "device": [entry("null", tarfile.CHRTYPE)],
    "pipe": [entry("pipe", tarfile.FIFOTYPE)],
    "twice": [entry("train.py"), entry("train.py")],
    "file below a file": [entry("a"), entry("a/b")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused(tmp_path: Path, name: str) -> None:
    path, digest = archive(tmp_path / "archive", *HOSTILE[name])
    with pytest.raises(CodeError):
        unpack.unpack(path, digest, tmp_path / "code")
    assert not (tmp_path / "outside").exists()


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    path, digest = archive(
        tmp_path / "archive", entry("link", tarfile.SYMTYPE, "../outside"), entry("link/file", data=b"x")
    )
    with pytest.raises(CodeError):
        unpack.unpack(path, digest, tmp_path / "code")
    assert list((tmp_path / "outside").iterdir()) == []


def test_more_than_the_limit_is_refused_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, digest = archive(tmp_path / "archive", entry("a", data=b"12"), entry("b", data=b"34"))
    monkeypatch.setattr(unpack, "UNPACKED", 3)
    with pytest.raises(CodeError, match=r"more than 50000 entries or 0 GiB"):
        unpack.unpack(path, digest, tmp_path / "code")
    assert not (tmp_path / "code" / "b").exists()


def test_another_digest_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, digest = archive(tmp_path / "archive", entry("train.py"))
    wrong = f"sha256:{'0' * 64}"
    words = ["--code", str(tmp_path / "code"), f"--archive={path}", f"--digest={wrong}"]
    assert install.main([str(tmp_path / "launcher"), *words]) == 1
    assert capsys.readouterr().err == (
        f"tftraining: the archive has the digest {digest}, not {wrong} (spec.code.digest): submit the code again\n"
    )
    assert not (tmp_path / "code" / "train.py").exists()


def test_the_files_of_a_second_run_replace_those_of_the_first(tmp_path: Path) -> None:
    (tmp_path / "code" / "lib").mkdir(parents=True)
    (tmp_path / "code" / "old.py").touch()
    header, data = entry("run.sh", data=b"#!")
    header.mode = 0o755
    path, digest = archive(tmp_path / "archive", (header, data), entry("empty", tarfile.DIRTYPE))
    words = ["--code", str(tmp_path / "code"), f"--archive={path}", f"--digest={digest}"]
    assert install.main([str(tmp_path / "launcher"), *words]) == 0
    assert sorted(each.name for each in (tmp_path / "code").iterdir()) == ["empty", "run.sh"]
    assert os.access(tmp_path / "code" / "run.sh", os.X_OK)


@pytest.mark.parametrize("data", [b"", b"no archive", gzip.compress(b"no tar" * 1000)], ids=["empty", "text", "gzip"])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "archive"
    path.write_bytes(data)
    with pytest.raises(CodeError, match="no gzip-compressed tar file"):
        unpack.unpack(path, unpack.digest_of(path), tmp_path / "code")


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(CodeError, match=r"cannot unpack the archive: .*nowhere"):
        unpack.unpack(tmp_path / "nowhere", "sha256:", tmp_path / "code")


@pytest.mark.parametrize("words", [["--code", "x"], ["--code", "x", "--archive=a"], ["--code", "x", "--git=a"]])
def test_a_source_needs_both_of_its_arguments(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        install.main(["launcher", *words])
    assert "--code needs --archive and --digest, or --git and --revision" in capsys.readouterr().err


def git(directory: Path, *words: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *person, *words], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> tuple[str, str]:
    """A repository with two commits: its address and the first commit."""
    need_or_skip("git")
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "--quiet")
    git(path, "config", "uploadpack.allowAnySHA1InWant", "true")
    (path / "train.py").write_text("first")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message=first")
    first = git(path, "rev-parse", "HEAD")
    (path / "train.py").write_text("second")
    git(path, "commit", "--quiet", "--all", "--message=second")
    return f"file://{path}", first


def test_the_commit_is_checked_out_without_its_history(tmp_path: Path, repository: tuple[str, str]) -> None:
    url, first = repository
    words = ["--code", str(tmp_path / "code"), f"--git={url}", f"--revision={first}"]
    assert install.main([str(tmp_path / "launcher"), *words]) == 0
    assert [each.name for each in (tmp_path / "code").iterdir()] == ["train.py"]
    assert (tmp_path / "code" / "train.py").read_text() == "first"


def test_a_commit_that_is_not_there_is_named(
    tmp_path: Path, repository: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_checkout, "WAIT_SECONDS", 0.0)
    with pytest.raises(CodeError, match=r"cannot fetch f{40} of file://.*: .*not our ref"):
        git_checkout.checkout(repository[0], "f" * 40, tmp_path / "code")


def test_an_image_without_git_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CodeError, match=r"needs the program git in the launcher's image: set spec\.launcher\.image"):
        git_checkout.checkout("https://a/b", "0" * 40, tmp_path / "code")


def test_the_password_comes_from_the_file_and_stays_out_of_the_arguments(tmp_path: Path) -> None:
    need_or_skip("git")
    (tmp_path / "username").write_text("robot")
    (tmp_path / "password").write_text("s3cr3t")
    helper = git_checkout._HELPER.format(tmp_path)
    assert "s3cr3t" not in helper
    done = subprocess.run(
        ["git", "-c", "credential.helper=", "-c", f"credential.helper={helper}", "credential", "fill"],
        input="protocol=https\nhost=git.example.com\n\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"username=robot", "password=s3cr3t"} <= set(done.stdout.split())

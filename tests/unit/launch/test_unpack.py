"""The program of spec.code in the init container: digests, hostile archives, and a real Git repository."""

import gzip
import hashlib
import io
import os
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from dulwich.client import Urllib3HttpGitClient

from tests.support.git_server import ACCOUNT, GitServer, git_server
from tests.support.needed import need_or_skip
from tftraining import git_fetch
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
    return path, digest_of(path.read_bytes())


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


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


def test_an_archive_that_changes_after_its_digest_was_checked_brings_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, digest = archive(tmp_path / "archive", entry("train.py", data=b"submitted"))
    other, _ = archive(tmp_path / "other", entry("train.py", data=b"changed"))
    open_tar = tarfile.open

    def changed(*arguments: Any, **options: Any) -> tarfile.TarFile:
        path.write_bytes(other.read_bytes())
        return open_tar(*arguments, **options)

    monkeypatch.setattr(tarfile, "open", changed)
    unpack.unpack(path, digest, tmp_path / "code")
    assert {each.name: each.read_text() for each in (tmp_path / "code").iterdir()} == {"train.py": "submitted"}


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
        unpack.unpack(path, digest_of(data), tmp_path / "code")


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


@pytest.fixture(params=["sha1"])
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A repository with two commits: its address and the first commit."""
    need_or_skip("git")
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "--quiet", f"--object-format={request.param}")
    git(path, "config", "uploadpack.allowAnySHA1InWant", "true")
    (path / "train.py").write_text("first")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message=first")
    first = git(path, "rev-parse", "HEAD")
    (path / "train.py").write_text("second")
    git(path, "commit", "--quiet", "--all", "--message=second")
    return f"file://{path}", first


@pytest.mark.parametrize("repository", ["sha1", "sha256"], indirect=True)
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


@pytest.fixture
def without_git(repository: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GitServer]:
    """A server for the repository, and an image that has the library in place of the program git."""
    with git_server(tmp_path) as server:
        monkeypatch.setattr(git_checkout, "PROGRAM", "no-such-program")
        monkeypatch.setattr(git_checkout, "WAIT_SECONDS", 0.0)
        yield server


def test_the_library_fetches_a_commit_where_git_is_missing(
    tmp_path: Path, repository: tuple[str, str], without_git: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "of an earlier attempt").touch()
    git_checkout.checkout(f"{without_git.url}/repository", repository[1], code)
    assert {path.name: path.read_text() for path in code.iterdir()} == {"train.py": "first"}
    for path, words in (
        ("/nowhere", r"the server has no such repository"),
        ("/private/repository", r"set spec\.code\.git\.secretName"),
    ):
        target = tmp_path / path.replace("/", "_")
        target.mkdir()
        with pytest.raises(git_fetch.FetchError, match=words):
            git_fetch.fetch(f"{without_git.url}{path}", repository[1], target)
    monkeypatch.setattr(git_checkout, "ATTEMPTS", 1)
    with pytest.raises(CodeError, match=rf"cannot fetch {'f' * 40} of http://.*: the server has closed"):
        git_checkout.checkout(f"{without_git.url}/repository", "f" * 40, code)


@pytest.mark.parametrize("repository", ["sha256"], indirect=True)
def test_the_library_fetches_a_commit_with_64_digits(
    tmp_path: Path, repository: tuple[str, str], without_git: GitServer
) -> None:
    git_checkout.checkout(f"{without_git.url}/repository", repository[1], tmp_path / "code")
    assert {path.name: path.read_text() for path in (tmp_path / "code").iterdir()} == {"train.py": "first"}


def test_a_server_that_does_not_answer_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(git_fetch, "SECONDS", 0.1)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\nContent-Length: 99\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/repository"
        with ThreadPoolExecutor() as pool:
            ended = pool.submit(git_fetch.main, [url, "0" * 40, str(tmp_path)])
            connection, _ = server.accept()
            connection.sendall(head + b"001e#")
            assert ended.result() == 1
        connection.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("the connection to the server has failed: ") and "timed out" in line


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, "the server has not sent all objects of the commit"),
        (AssertionError("bad pack"), "the answer of the server cannot be read: AssertionError: bad pack"),
    ],
)
def test_an_answer_that_is_not_the_commit_is_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception | None,
    told: str,
) -> None:
    def fetch(*arguments: object, **options: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(Urllib3HttpGitClient, "fetch", fetch)
    assert git_fetch.main(["http://127.0.0.1/repository", "0" * 40, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{told}\n"


def test_the_library_sends_the_password_to_the_server_of_the_url_only(
    tmp_path: Path, repository: tuple[str, str], without_git: GitServer
) -> None:
    (tmp_path / "username").write_text("robot\n")
    (tmp_path / "password").write_text("s3cr3t\n")
    code = tmp_path / "code"
    git_checkout.checkout(f"{without_git.url}/private/repository", repository[1], code, tmp_path)
    assert (code / "train.py").read_text() == "first"
    assert set(without_git.accounts) == {ACCOUNT}
    with git_server(tmp_path) as other:
        without_git.moved_to = other.url
        (tmp_path / "moved").mkdir()
        git_fetch.fetch(f"{without_git.url}/moved/repository", repository[1], tmp_path / "moved", tmp_path)
    assert (tmp_path / "moved" / "train.py").read_text() == "first"
    assert other.accounts and set(other.accounts) == {None}


def test_an_image_with_neither_git_nor_the_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_checkout, "PROGRAM", "no-such-program")
    monkeypatch.setattr(git_checkout, "LIBRARY", "no_such_library")
    with pytest.raises(CodeError, match=r"needs the program git or the Python package dulwich in the launcher's image"):
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

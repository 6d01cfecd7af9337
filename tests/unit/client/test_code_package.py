"""A directory becomes an archive: the same for the same files, without what does not belong to the program."""

import io
import os
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.needed import need_or_skip
from tftraining.launch.unpack import unpack
from tftraining_client.code import Package, left_out, pack, pack_files, parse_git, with_git, with_package
from tftraining_client.code.package import ENTRY_LIMIT, write_files
from tftraining_client.errors import UserError

JOB: dict[str, Any] = {"metadata": {"name": "digits", "namespace": "team"}, "spec": {"replicaSpecs": {"worker": {}}}}
SHA = "0123456789" * 4


def write(root: Path, **files: str) -> Path:
    """Write files; `__` in a name separates directories, `_dot_` is a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def members(package: Package) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(package.data)) as tar:
        return tar.getmembers()


def names(package: Package) -> list[str]:
    return [each.name for each in members(package)]


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Root reads every file: drop to another user for the test."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    one = write(tmp_path / "one", b_dot_py="b", a_dot_py="a", lib__c_dot_py="c")
    two = write(tmp_path / "two", lib__c_dot_py="c", a_dot_py="a", b_dot_py="b")
    os.utime(two / "a.py", (1, 1))
    (two / "b.py").chmod(0o600)
    assert pack(one) == pack(two)
    assert names(pack(one)) == ["a.py", "b.py", "lib/c.py"]
    header = members(pack(one))[0]
    assert (header.mtime, header.uid, header.gid, header.uname, header.mode) == (0, 0, 0, "", 0o644)
    write(two, a_dot_py="changed")
    assert pack(one).digest != pack(two).digest
    (two / "run.sh").touch(mode=0o700)
    assert members(pack(two))[-1].mode == 0o755


def test_the_archive_can_be_unpacked_to_the_same_package(tmp_path: Path) -> None:
    source = write(tmp_path / "source", train_dot_py="1", ü__data_dot_txt="2")
    (source / "link").symlink_to("ü/data.txt")
    (source / "directory").symlink_to("ü")
    package = pack(source)
    (tmp_path / "archive").write_bytes(package.data)
    unpack(tmp_path / "archive", package.digest, tmp_path / "copy")
    assert pack(tmp_path / "copy") == package
    assert (tmp_path / "copy" / "directory" / "data.txt").read_text() == "2"


def test_ignore_files_are_read_as_by_git(tmp_path: Path) -> None:
    need_or_skip("git")
    write(
        tmp_path,
        _dot_gitignore="*.log\n/data/\n!kept.log\nsecret\n",
        train_dot_py="",
        a_dot_log="",
        kept_dot_log="",
        data__big="",
        lib___dot_gitignore="!b.log\n*.tmp\n/own\n",
        lib__b_dot_log="",
        lib__c_dot_tmp="",
        lib__own="",
        lib__data__here="",
        lib__deep__own="",
        lib__secret__x="",
    )
    listed = subprocess.run(
        "git init -q && git ls-files --others --exclude-standard",
        cwd=tmp_path,
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert names(pack(tmp_path)) == sorted(listed.stdout.split())
    assert "lib/b.log" in listed.stdout and "lib/own" not in listed.stdout.split()


def test_ignore_files_above_the_directory_count_as_for_git(tmp_path: Path) -> None:
    need_or_skip("git")
    write(
        tmp_path,
        _dot_gitignore="*.log\n/code/data/\n/code/lib/one\nout\n",
        code___dot_gitignore="!kept.log\n",
        code__train_dot_py="",
        code__a_dot_log="",
        code__kept_dot_log="",
        code__data__big="",
        code__lib__one="",
        code__lib__two="",
        code__lib__deep__out__x="",
        code__mine="",
        out__train_dot_py="",
        out__b_dot_log="",
    )
    git("init", "-q", where=tmp_path)
    (tmp_path / ".git/info/exclude").write_text("mine\n")
    listed = git("ls-files", "--others", "--exclude-standard", where=tmp_path / "code").split()
    assert names(pack(tmp_path / "code")) == sorted(listed) and "lib/two" in listed and "mine" not in listed
    # A directory that the files above exclude is named by the user; those of another repository do not count.
    assert names(pack(tmp_path / "out")) == ["b.log", "train.py"]
    git("init", "-q", where=tmp_path / "code")
    assert {"a.log", "data/big"} <= set(names(pack(tmp_path / "code")))


@pytest.mark.parametrize("part", [".", "code"])
@pytest.mark.parametrize("config", [None, "~/mine"])
def test_the_private_ignore_files_of_git_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, config: str | None
) -> None:
    need_or_skip("git")
    home, top = tmp_path / "home", tmp_path / "top"
    (home / ".config" / "git").mkdir(parents=True)
    for name, value in {"HOME": str(home), "XDG_CONFIG_HOME": "", "GIT_CONFIG_NOSYSTEM": "1"}.items():
        monkeypatch.setenv(name, value)
    write(top, code__train_dot_py="", code__a_dot_swp="", code__b_dot_log="", code__notes="", code__kept_dot_swp="")
    write(top, _dot_gitignore="!kept.swp\n")
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    (top / ".git" / "info" / "exclude").write_text("notes\n")
    (home / ".config" / "git" / "ignore").write_text("*.log\n")
    (home / "mine").write_text("*.swp\n/code/b.log\n")
    if config == "~/mine":
        subprocess.run(["git", "config", "--global", "core.excludesFile", config], check=True)
    asked = ["git", "ls-files", "--others", "--exclude-standard"]
    listed = subprocess.check_output(asked, cwd=top / part, text=True).split()
    assert names(pack(top / part)) == sorted(listed)
    assert "notes" not in str(listed) and "b.log" not in str(listed) and "kept.swp" in str(listed)
    assert ("a.swp" in str(listed)) is (config != "~/mine")


def git(*arguments: str, where: Path) -> str:
    environment = {**os.environ, "HOME": str(where), "XDG_CONFIG_HOME": str(where), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.check_output(["git", *arguments], cwd=where, text=True, env=environment)


KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nx\n-----END OPENSSH PRIVATE KEY-----\n"
KUBECONFIG = "apiVersion: v1\nkind: Config\nclusters: []\nusers: []\n"
SECRETS = {
    **dict.fromkeys((".env", ".env.prod", ".netrc", ".git-credentials", "lib/.env", "store.p12", "id_rsa"), "x"),
    ".ssh/known_hosts": "",
    ".aws/credentials": "",
    ".kube/config": KUBECONFIG,
    "deploy": KEY,
    "a.pem": "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN RSA PRIVATE KEY-----\n",
    "b.key": KEY,
    "staging.yaml": KUBECONFIG,
    "kubeconfig": "",
    "x.json": '{"kind": "Config", "users": []}',
    "robot.json": '{"private_key": "-----BEGIN PRIVATE KEY-----"}',
}
HARMLESS = {
    ".env.example": "x",
    "train.py": f"KEY = (\n{KEY})\n",
    "ca.pem": "-----BEGIN CERTIFICATE-----\n",
    "job.yaml": "kind: ConfigMap\nusers: []\n",
    "model.json": '{"key": 1}',
    "environment": "",
    "id_rsa.pub": "ssh-rsa",
}


def test_credentials_are_no_part_of_a_program_unless_they_are_named(tmp_path: Path) -> None:
    for name, text in {**SECRETS, **HARMLESS}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    package = pack(tmp_path)
    assert set(names(package)) == set(HARMLESS)
    assert {each.partition("/")[0] for each in package.left_out} == {each.partition("/")[0] for each in SECRETS}
    (told,) = left_out(package)
    assert "deploy" in told and "a line such as !.aws/ in .tftjignore" in told
    # To bring all back names none.
    (tmp_path / ".tftjignore").write_text("!*\n!**/*\n")
    assert pack(tmp_path).left_out == package.left_out
    (tmp_path / ".tftjignore").write_text("!.env\n!*.pem\n!.ssh/\n")
    assert set(names(pack(tmp_path))) - set(HARMLESS) == {".env", "lib/.env", "a.pem", ".ssh/known_hosts"}
    (tmp_path / ".tftjignore").write_text("*\n!train.py\n")
    assert pack(tmp_path).left_out == ()


def test_a_package_that_is_written_is_packed_whole(tmp_path: Path) -> None:
    package = pack_files({".env": b"1", "a [1].py": b"2", "lib/#x!": b"3"})
    write_files(package, tmp_path)
    assert pack(tmp_path) == package


@pytest.mark.parametrize(
    "address",
    [
        "https://me:p4ss@host/a",
        f"https://me:p4ss@host/a@{SHA}",
        f"https://me:p/4/p4ss@host/a@{SHA}",
        "https://me:p4ss@host/a@main",
        f"https://p4ss@host/a@{SHA}",
        "https://p4ss@host",
        "https://me:x@p4ss",
        f"me:p4ss@host/a@{SHA}",
        f"https://me://p4ss@host/a@{SHA}",
        f"ssh://me:p4ss@host/a@{SHA}",
    ],
)
def test_no_error_repeats_a_password(address: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_git(address)
    assert "p4ss" not in str(refused.value) and "--git " in str(refused.value)


def test_tftjignore_comes_before_gitignore_and_some_directories_never_belong_to_a_program(tmp_path: Path) -> None:
    write(
        tmp_path,
        _dot_gitignore="labels.txt\n",
        _dot_tftjignore="!labels.txt\nnotebooks/\n",
        labels_dot_txt="",
        notebooks__a_dot_ipynb="",
        env__pyvenv_dot_cfg="",
        env__lib__x_dot_py="",
        pkg____pycache____x_dot_pyc="",
    )
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True, exist_ok=True)
    (tmp_path / "pkg" / "__pycache__" / "a.pyc").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").touch()
    kept = [name for name in names(pack(tmp_path)) if "pycache" not in name]
    assert kept == [".gitignore", "labels.txt"]
    assert "pkg/__pycache__/a.pyc" not in names(pack(tmp_path))


def test_a_directory_that_cannot_be_submitted_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such directory"):
        pack(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no files to submit"):
        pack(tmp_path)
    with pytest.raises(UserError, match=r"train\.py: not a directory"):
        pack(write(tmp_path, train_dot_py="") / "train.py")


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path / "root", train_dot_py="")
    (root / "link").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"link: a link to the absolute path /etc/passwd"):
        pack(root)
    (root / "link").unlink()
    (root / "link").symlink_to("../other")
    with pytest.raises(UserError, match=r"link: a link that leaves the directory, to \.\./other.*\.tftjignore"):
        pack(root)
    write(root, _dot_tftjignore="link\n")
    assert names(pack(root)) == ["train.py"]


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("here")
        with pytest.raises(UserError, match="here: neither a file nor a directory"):
            pack(".")


def test_an_unreadable_file_is_named(tmp_path: Path, unprivileged: None) -> None:
    root = Path("/tmp") / f"unreadable-{os.getpid()}"
    root.mkdir()
    try:
        (root / "key.pem").touch(mode=0)
        with pytest.raises(UserError, match=r"key\.pem: permission denied"):
            pack(root)
    finally:
        (root / "key.pem").unlink()
        root.rmdir()


def test_a_directory_with_data_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match=r"more than 256 MiB of files; the largest: data\.bin \(1048576\.0 MiB\)"):
        pack(tmp_path)


def test_the_config_map_carries_the_digest_in_its_name() -> None:
    package = pack_files({"train.py": b"1"})
    job, config_map = with_package(JOB, package)
    name = f"digits-code-{package.digest[7:19]}"
    assert job["spec"]["code"] == {"configMap": {"name": name}, "digest": package.digest}
    assert config_map["metadata"] == {
        "name": name,
        "namespace": "team",
        "labels": {"tftraining.dev/job-name": "digits"},
    }
    assert config_map["immutable"] is True
    assert "code" not in JOB["spec"]


def test_a_commit_is_named_by_its_whole_sha() -> None:
    url = "https://git.example.com/team/digits.git"
    assert parse_git(f"{url}@{SHA}") == (url, SHA)
    job = with_git(JOB, f"{url}@{SHA}", "token")
    assert job["spec"]["code"] == {"git": {"url": url, "revision": SHA, "secretName": "token"}}
    for address, words in {
        url: "must be URL@SHA",
        f"{url}@main": "main: its end is not the full SHA of a commit",
        f"{url}@{SHA[:7]}": "is not the full SHA",
        f"git@git.example.com:team/digits.git@{SHA}": "must be an https URL",
        f"https://me:pass@git.example.com/a@{SHA}": "must be an https URL",
    }.items():
        with pytest.raises(UserError, match=words) as refused:
            parse_git(address)
        assert "pass@" not in str(refused.value).partition(": ")[2]


def test_too_many_files_are_refused() -> None:
    assert ENTRY_LIMIT < 50_000  # what the pod unpacks at most

"""A command in a bare machine: real namespaces and mounts, over a file system that borrows this machine's /usr."""

import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests.bare import machine
from tests.bare.machine import Bare
from tests.support.repository import REPOSITORY

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a bare machine")
USR = Path("/usr")


def fill(root: Path) -> None:
    """Make what every file system has; programs are not among it, they come from /usr."""
    for name in ("dev", "etc/apt/apt.conf.d", "proc", "run", "sys", "tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory of this machine that the bare one writes to."""
    folder = tmp_path / "kept"
    folder.mkdir()
    return folder


@pytest.fixture
def bare(tmp_path: Path, kept: Path) -> Bare:
    root = tmp_path / "root"
    fill(root)
    (root / "srv/tftraining").mkdir(parents=True)
    return Bare(root, {"PATH": machine.SEARCH_PATH, "A": "1"}, written=(kept,), read=(USR,))


def answer(bare: Bare, kept: Path, question: str) -> str:
    assert bare.run("sh", "-c", f"{{ {question}; }} > {kept}/answer 2>&1; true") == 0
    return (kept / "answer").read_text().strip()


def test_the_exit_status_is_passed_on(bare: Bare) -> None:
    assert (bare.run("true"), bare.run("sh", "-c", "exit 7"), bare.run("no-such-command")) == (0, 7, 127)
    assert bare.run("sh", "-c", "kill -KILL $$") == 128 + signal.SIGKILL


def test_it_sees_its_own_files_processes_and_variables(bare: Bare, kept: Path) -> None:
    assert answer(bare, kept, "pwd; ls /; ls /tmp").split()[:4] == ["/srv/tftraining", "bin", "dev", "etc"]
    assert answer(bare, kept, "ls /home").endswith("No such file or directory")
    assert int(answer(bare, kept, "ls -d /proc/[0-9]* | wc -l")) < 6
    assert answer(bare, kept, "echo $A$HOME") == "1"


def test_what_is_only_read_is_not_written_to(bare: Bare, kept: Path) -> None:
    assert "Read-only" in answer(bare, kept, "touch /usr/tftraining-test")


def test_nothing_of_it_is_mounted_in_this_machine(bare: Bare, kept: Path) -> None:
    assert str(bare.root) not in Path("/proc/self/mountinfo").read_text()
    assert bare.run("sh", "-c", f"mount -t tmpfs none {kept}; touch {kept}/inside") == 0
    assert list(kept.iterdir()) == []


def wait_until_gone(marker: str) -> None:
    deadline = time.monotonic() + 10
    while any(marker in words(each) for each in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline, "processes of the bare machine are left"
        time.sleep(0.05)


def words(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""


RUN_CODE = """
import dataclasses
import sys
from pathlib import Path
from tests.bare import cli, machine
furnish = machine._furnish
machine._furnish = lambda root: dataclasses.replace(furnish(root), read=(Path("/usr"),))
machine.ROOTS, machine._base = Path(sys.argv[1]), lambda: Path(sys.argv[2])
sys.exit(cli.main(sys.argv[3:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_it_is_killed_everything_ends_and_is_removed(tmp_path: Path, number: signal.Signals) -> None:
    fill(tmp_path / "tree")
    with tarfile.open(tmp_path / "base.tar", "w") as archive:
        archive.add(tmp_path / "tree", ".")
    roots, cache = tmp_path / "roots", tmp_path / "cache"
    roots.mkdir()
    marker = f"100{os.getpid()}"
    daemon = f"setsid sleep {marker} & echo a child of $PPID; sleep {marker}"
    command = [sys.executable, "-c", RUN_CODE, str(roots), str(tmp_path / "base.tar")]
    environment = os.environ | {"CI": "true", "XDG_CACHE_HOME": str(cache)}
    words = [*command, "sh", "-c", daemon]
    with subprocess.Popen(words, env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"a child of 1\n"
        process.send_signal(number)
        assert process.wait(30) in (128 + number, -number)
    wait_until_gone(marker)
    if number == signal.SIGKILL:
        assert [each.name for each in roots.glob("*/root")] == ["root"], "nobody was left to remove it"
        subprocess.run([*command, "sh", "-c", ":"], env=environment, cwd=REPOSITORY, check=True)
    assert not list(roots.iterdir())

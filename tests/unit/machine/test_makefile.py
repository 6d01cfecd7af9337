"""The Makefile on a Debian whose Python comes without what venv needs, with stand-ins for python, apt-get and id."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory of stand-ins, which note how they are called in `calls`; the package brings what venv needs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls, installed = tmp_path / "calls", tmp_path / "installed"
    scripts = {
        "id": "echo 0",
        "apt-get": f'echo "apt-get $DEBIAN_FRONTEND $*" >> {calls}; echo noise; [ "$1" = update ] || touch {installed}',
        "python3.11": f'case "$*" in *ensurepip*) test -e {installed};; *) echo "python $*" >> {calls}; exit 9;; esac',
    }
    for name, script in scripts.items():
        replace(folder / name, script)
    return folder


def replace(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def make(programs: Path) -> tuple[list[str], list[str]]:
    """Have make install into a new .venv; return what it says beyond the first line, and what it called."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environment = outside | {"PATH": f"{programs}:{os.environ['PATH']}"}
    words = ["make", "-s", "-C", str(REPOSITORY), f"VENV={programs.parent}/venv", f"{programs.parent}/venv/installed"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (2, ""), "the stand-in makes no .venv, and results alone go to stdout"
    calls = programs.parent / "calls"
    said = [line for line in done.stderr.splitlines() if not line.startswith("make: ")]
    return said[1:], calls.read_text().splitlines() if calls.exists() else []


def test_the_package_lists_are_fetched_before_the_package(programs: Path) -> None:
    said, calls = make(programs)
    assert said == ["== installing python3.11-venv"]
    assert calls == [
        "apt-get noninteractive update -qq",
        "apt-get noninteractive install -qq --yes --no-install-recommends python3.11-venv",
        f"python -m venv {programs.parent}/venv",
    ]


def test_nothing_is_installed_where_nothing_is_missing(programs: Path) -> None:
    replace(programs / "python3.11", "[ $1 = -c ]")
    assert make(programs) == ([], [])


def test_who_is_not_root_is_told_what_to_install(programs: Path) -> None:
    replace(programs / "id", "echo 1000")
    [line], calls = make(programs)
    assert "apt-get update && apt-get install python3.11-venv" in line
    assert calls == []


def test_what_apt_complains_about_is_shown(programs: Path) -> None:
    replace(programs / "apt-get", "echo 'E: no such mirror' >&2; exit 100")
    said, _ = make(programs)
    assert said[1] == "E: no such mirror"
    assert said[2].startswith("install the Debian package python3.11-venv first")

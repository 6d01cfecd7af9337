"""What CI runs, with stand-ins for make and python3.11."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory of stand-ins that say how they are called and fail with a status of their own."""
    for name, status in (("make", 3), ("python3.11", 4)):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho "CI=$CI {name} $*"; exit {status}\n')
        program.chmod(0o755)
    return tmp_path


def run(programs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name != "CI"}
    path = f"{programs}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(REPOSITORY / ".ci" / "run")],
        env=outside | environment | {"PATH": path},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_ci_asks_for_a_bare_machine(programs: Path) -> None:
    done = run(programs, CI="true")
    assert (done.returncode, done.stdout, done.stderr) == (4, "CI=true python3.11 -m tests.bare make test\n", "")


@pytest.mark.parametrize("environment", [{}, {"CI": "1"}], ids=str)
def test_anybody_else_gets_no_bare_machine_and_is_told(programs: Path, environment: dict[str, str]) -> None:
    done = run(programs, **environment)
    assert (done.returncode, done.stdout) == (3, "CI=true make test\n")
    assert done.stderr.count("\n") == 1 and "on this machine as it is" in done.stderr

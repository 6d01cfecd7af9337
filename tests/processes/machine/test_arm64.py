"""The locked packages of both images and of the client can be had for arm64, with the hashes of the locks.

Nothing of them runs: this machine has another processor. requirements/trainer-cpu.txt is for amd64 only.
"""

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import REPOSITORY

UV = str(Path(sys.executable).with_name("uv"))
AARCH64 = 183  # e_machine in the header of an ELF file
# The C library of the images' base is newer (Debian 12 has 2.36).
PLATFORM = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.11", "--only-binary", ":all:")


def install(requirements: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Install what the file pins for arm64 into the directory."""
    words: list[str | Path] = [
        UV,
        "pip",
        "install",
        "-q",
        "--target",
        target,
        *PLATFORM,
        "--no-deps",
        "--require-hashes",
    ]
    return subprocess.run([*words, "-r", requirements], capture_output=True, text=True, check=False)


def processors(folder: Path) -> Iterator[int]:
    """The processor of each compiled module."""
    for path in folder.rglob("*.so"):
        with path.open("rb") as file:
            header = file.read(20)
        assert header[:4] == b"\x7fELF"
        yield struct.unpack("<H", header[18:])[0]


@pytest.mark.slow_fault
@pytest.mark.parametrize("name", ["operator", "client", "trainer"])
def test_the_lock_installs_for_arm64(name: str, tmp_path: Path) -> None:
    done = install(REPOSITORY / "requirements" / f"{name}.txt", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {*processors(tmp_path)} == {AARCH64}


@pytest.mark.slow_fault
def test_a_package_without_builds_for_arm64_is_refused(tmp_path: Path) -> None:
    done = install(REPOSITORY / "requirements" / "trainer-cpu.txt", tmp_path)
    assert done.returncode != 0 and "tensorflow-cpu" in done.stderr

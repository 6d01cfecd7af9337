"""What a release publishes works by itself: the packages in a clean environment, and the workflows by actionlint."""

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import binaries, release_files
from tests.support.repository import REPOSITORY

UV = str(Path(sys.executable).with_name("uv"))
DIGEST = "sha256:" + "0" * 64
SOURCES = [REPOSITORY / name for name in ("api", "operator", "trainer", "client")]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("release") / "dist"
    release_files.make(REPOSITORY, into, "", f"example.org/operator@{DIGEST}")
    return into


def sources() -> Iterator[str]:
    """Each file of the packages, as it is named in the wheel."""
    for folder in SOURCES:
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            made = any(each.startswith((".", "__pycache__")) or each.endswith(".egg-info") for each in parts)
            if path.is_file() and len(parts) > 1 and not made:
                yield "/".join(parts)


def test_the_wheel_has_every_file_of_the_packages(released: Path) -> None:
    (wheel,) = released.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = {*content.namelist()}
    missing = [name for name in sources() if name not in names and not name.endswith((".toml", ".md"))]
    assert missing == []


def test_the_packages_work_in_a_clean_environment(released: Path, tmp_path: Path) -> None:
    (wheel,), (sdist,) = released.glob("*.whl"), released.glob("*.tar.gz")
    environment = os.environ | {"VIRTUAL_ENV": str(tmp_path / "venv")}
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, tmp_path / "venv"], check=True)
    for requirements in ("client", "operator"):
        locked = REPOSITORY / "requirements" / f"{requirements}.txt"
        subprocess.run([UV, "pip", "install", "-q", "--require-hashes", "-r", locked], env=environment, check=True)
    subprocess.run([UV, "pip", "install", "-q", "--no-deps", wheel], env=environment, check=True)
    programs = tmp_path / "venv" / "bin"
    for command in (["tftj", "--version"], ["kubectl-tftj", "--help"], ["python", "-c", "import tftraining_operator"]):
        done = subprocess.run([programs / command[0], *command[1:]], cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command
    with tarfile.open(sdist) as content:
        assert any(each.name.endswith("/client/tftraining_client/tftrainingjobs.yaml") for each in content)


def test_the_chart_and_the_manifests_name_the_image_by_its_digest(released: Path) -> None:
    assert f'image: "example.org/operator@{DIGEST}"' in (released / "install.yaml").read_text()
    with tarfile.open(next(released.glob("*.tgz"))) as chart:
        values = chart.extractfile("tftraining-operator/values.yaml")
        assert values is not None
        assert f"digest: {DIGEST}" in values.read().decode()


def test_the_checksums_are_those_of_all_files(released: Path) -> None:
    lines = [line.split() for line in (released / "SHA256SUMS").read_text().splitlines()]
    told = {name: digest for digest, name in lines}
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in released.iterdir()}
    assert told == {name: digest for name, digest in files.items() if name != "SHA256SUMS"}


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    actionlint = binaries.ensure("actionlint") / "actionlint"
    workflows = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
    done = subprocess.run([actionlint, *workflows], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

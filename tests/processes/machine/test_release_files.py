"""What a release publishes works by itself: the packages in a clean environment, and the workflows by actionlint."""

import hashlib
import json
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
HOME = "https://example.org/team/tftraining"
SOURCES = [REPOSITORY / name for name in ("api", "operator", "trainer", "client")]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    (folder / "sbom").mkdir()
    (folder / "sbom" / "operator.cdx.json").write_text(json.dumps({"bomFormat": "CycloneDX"}))
    release = release_files.Release("", f"example.org/operator@{DIGEST}", HOME, folder / "sbom")
    release_files.make(REPOSITORY, folder / "dist", release)
    return folder / "dist"


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


@pytest.mark.parametrize("pattern", ["*.whl", pytest.param("*.tar.gz", marks=pytest.mark.slow_fault)])
def test_a_package_works_in_a_clean_environment(pattern: str, released: Path, tmp_path: Path) -> None:
    (package,) = released.glob(pattern)
    environment = os.environ | {"VIRTUAL_ENV": str(tmp_path / "venv")}
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, tmp_path / "venv"], check=True)
    for requirements in ("client", "operator"):
        locked = REPOSITORY / "requirements" / f"{requirements}.txt"
        subprocess.run([UV, "pip", "install", "-q", "--require-hashes", "-r", locked], env=environment, check=True)
    subprocess.run([UV, "pip", "install", "-q", "--no-deps", package], env=environment, check=True)
    programs = tmp_path / "venv" / "bin"
    for command in (["tftj", "--version"], ["kubectl-tftj", "--help"], ["python", "-c", "import tftraining_operator"]):
        done = subprocess.run([programs / command[0], *command[1:]], cwd=tmp_path, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command
    places = [*(tmp_path / "venv").rglob("tftrainingjobs.yaml")]
    assert len(places) == 1, "the definition of the resource, by which tftj validates"


def test_the_chart_and_the_manifests_name_the_image_by_its_digest(released: Path) -> None:
    assert f'image: "example.org/operator@{DIGEST}"' in (released / "install.yaml").read_text()
    with tarfile.open(next(released.glob("*.tgz"))) as chart:
        values = chart.extractfile("tftraining-operator/values.yaml")
        assert values is not None
        assert f"digest: {DIGEST}" in values.read().decode()


@pytest.mark.parametrize("which", ["of the checkout", pytest.param("released", marks=pytest.mark.slow_fault)])
def test_helm_and_chart_testing_accept_the_chart(which: str, released: Path, tmp_path: Path) -> None:
    chart = REPOSITORY / release_files.CHART
    if which == "released":
        with tarfile.open(next(released.glob("*.tgz"))) as package:
            package.extractall(tmp_path, filter="data")
        chart = tmp_path / release_files.CHART.name
    settings = binaries.module_files("ct") / "etc"
    programs = binaries.ensure("ct", "helm")
    path = os.pathsep.join([str(Path(sys.executable).parent), str(programs), os.environ["PATH"]])
    files = ("--lint-conf", settings / "lintconf.yaml", "--chart-yaml-schema", settings / "chart_schema.yaml")
    environment = os.environ | {"PATH": path, "HOME": str(tmp_path)}
    testing: list[str | Path] = [programs / "ct", "lint", "--charts", chart, *files]
    linting: list[str | Path] = [programs / "helm", "lint", "--strict", chart]
    for words in (testing, linting):
        done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert which == "of the checkout" or "is recommended" not in done.stdout


def test_the_checksums_are_those_of_all_files(released: Path) -> None:
    lines = [line.split() for line in (released / "SHA256SUMS").read_text().splitlines()]
    told = {name: digest for digest, name in lines}
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in released.iterdir()}
    assert told == {name: digest for name, digest in files.items() if name != "SHA256SUMS"}
    assert "operator.cdx.json" in told


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    actionlint = binaries.ensure("actionlint") / "actionlint"
    workflows = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
    done = subprocess.run([actionlint, *workflows], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

"""The digest of the program: of its own modules, not of the launcher's; and that of the installed distributions."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from tftraining.launch.in_user_process.memory_backup.program_digest import program_digest

TRAINER = Path(__file__).parents[5] / "trainer"
TRAIN = """
import sys, {imports}
sys.path.insert(0, {trainer!r})
from tftraining.launch.in_user_process.memory_backup.program_digest import distributions_digest, program_digest
print(program_digest(), distributions_digest())
"""


def add(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a module with this source."""
    module = types.ModuleType("model_of_the_program")
    module.__file__ = str(path)
    path.write_text(text)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_module_of_the_program_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = program_digest()
    add(tmp_path / "model_of_the_program.py", "WIDTH = 3", monkeypatch)
    assert program_digest() != before


def test_an_edit_under_a_running_program_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the text that it has read: another `fit` of this process must not get the digest of the new one."""
    add(tmp_path / "model_of_the_program.py", "WIDTH = 3", monkeypatch)
    before = program_digest()
    (tmp_path / "model_of_the_program.py").write_text("WIDTH = 4")
    assert program_digest() == before


@pytest.mark.parametrize("name", ["claim", "memory_backup.interval"])
def test_a_module_of_the_launcher_does_not_count(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher of the next version restores a copy of the same program."""
    module = importlib.import_module(f"tftraining.launch.in_user_process.{name}")
    monkeypatch.delitem(sys.modules, module.__name__)
    without = program_digest()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert program_digest() == without


class Site:
    """An environment with an installed program `company` and two installed libraries, of which it uses one."""

    def __init__(self, place: Path) -> None:
        self.place = place / "site-packages"
        for name in ("company", "used", "unused"):
            self.write(f"{name}/__init__.py", "")
            self.install(name, "1")
        self.write("company/train.py", TRAIN.format(imports="used, company.model", trainer=str(TRAINER)))
        self.write("company/model.py", "WIDTH = 3")

    def write(self, name: str, text: str) -> None:
        (self.place / name).parent.mkdir(parents=True, exist_ok=True)
        (self.place / name).write_text(text)

    def install(self, name: str, digest: str) -> None:
        self.write(f"{name}-1.0.dist-info/RECORD", f"{name}/__init__.py,sha256={digest},0\n")

    def digests(self, *command: str) -> list[str]:
        """The digests of the program and of its distributions, in a process of its own."""
        environment = {**os.environ, "PYTHONPATH": str(self.place), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.split()


@pytest.mark.parametrize("command", [["-m", "company.train"], ["-c", "import company.train"]])
def test_an_installed_package_that_is_the_program_counts(tmp_path: Path, command: list[str]) -> None:
    site = Site(tmp_path)
    before = site.digests(*command)
    assert site.digests(*command) == before
    site.write("used/__init__.py", "WIDTH = 5")
    assert site.digests(*command) == before, "its version counts"
    for name in ("company/model.py", "company/train.py"):
        site.write(name, (site.place / name).read_text() + "\n")
        assert site.digests(*command)[0] != before[0]
        before = site.digests(*command)


def test_the_distributions_of_loaded_modules_count(tmp_path: Path) -> None:
    site = Site(tmp_path)
    before = site.digests("-m", "company.train")
    site.install("unused", "2")
    assert site.digests("-m", "company.train") == before
    site.install("used", "2")
    program, distributions = site.digests("-m", "company.train")
    assert program == before[0] and distributions != before[1]


def test_a_program_in_an_archive_has_a_digest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    text = TRAIN.format(imports="os", trainer=str(TRAINER))
    with zipfile.ZipFile(tmp_path / "program.pyz", "w") as archive:
        archive.writestr("__main__.py", text)
    assert len(site.digests(str(tmp_path / "program.pyz"))) == 2

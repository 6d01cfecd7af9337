"""The sources of a program's own modules are found without an import."""

from __future__ import annotations

import sys
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from tftraining.launch.in_user_process.fork_eligibility import UnparsableSource, reason_for_plain_start
from tftraining.launch.in_user_process.module_sources import SourceFinder

EXECUTED = "raise AssertionError('this module must only be read')\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    files = {
        "script.py": "import package.settings, helper, json, numpy",
        "helper.py": "from package import other\nimport helper",
        "package/__init__.py": "",
        "package/__main__.py": "from . import settings",
        "package/settings.py": "from .deep.down import x",
        "package/other.py": "",
        "package/deep/__init__.py": "",
        "package/deep/down.py": "from ..other import y\nfrom ... import nothing",
        "space/inside.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EXECUTED + text)
    return tmp_path


def looked_at(finder: SourceFinder, place: Path) -> set[str]:
    return {str(Path(path).relative_to(place.resolve())) for path in finder.read_paths}


def test_the_sources_of_a_script_and_its_imports(place: Path) -> None:
    finder = SourceFinder(str(place))
    assert reason_for_plain_start(finder.script_sources(str(place / "script.py"))) == ""
    inside = {"__init__.py", "settings.py", "other.py", "deep/__init__.py", "deep/down.py"}
    assert looked_at(finder, place) == {"script.py", "helper.py", *(f"package/{name}" for name in inside)}
    assert "package" not in sys.modules


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("package", ["package/__init__.py", "package/__main__.py"]),
        ("package.other", ["package/__init__.py", "package/other.py"]),
        ("package.deep.down", ["package/__init__.py", "package/deep/__init__.py", "package/deep/down.py"]),
        ("space.inside", ["space/inside.py"]),
        ("helper", ["helper.py"]),
        ("space", []),
        ("nothing_of_this_name", []),
        ("package.nothing", []),
        ("helper.nothing", []),
    ],
)
def test_the_sources_that_running_a_module_executes(place: Path, name: str, files: list[str]) -> None:
    finder = SourceFinder(str(place))
    found = finder.module_sources(name)
    assert [source.text for source in found] == [(place / file).read_text() for file in files]


def test_installed_packages_are_not_examined(place: Path) -> None:
    (place / "script.py").write_text("import json, numpy, os.path, sys, yaml")
    finder = SourceFinder(str(place))
    assert reason_for_plain_start(finder.script_sources(str(place / "script.py"))) == ""
    assert looked_at(finder, place) == {"script.py"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a package `firm` lies that sets a variable, and a helper that does so too."""
    place = tmp_path / "lib/site-packages"
    sets = "import os\nos.environ['TF_A'] = '1'\n"
    for name, text in {
        "firm/__init__.py": "",
        "firm/train.py": "from firm import settings\nimport tensorflow",
        "firm/settings.py": sets,
        "firm/quiet.py": "import helper\nimport tensorflow",
        "helper.py": sets,
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.syspath_prepend(str(place))
    return place


def test_the_programs_own_package_is_examined_even_if_installed(installed: Path, tmp_path: Path) -> None:
    assert (
        reason_for_plain_start(SourceFinder(str(tmp_path)).module_sources("firm.train"))
        == "it sets TF_A before importing TensorFlow"
    )
    script = installed / "firm/train.py"
    assert reason_for_plain_start(SourceFinder(str(script.parent)).script_sources(str(script)))
    assert not reason_for_plain_start(SourceFinder(str(tmp_path)).module_sources("firm.quiet")), (
        "what is installed beside it is not"
    )


def test_a_script_beside_its_modules_in_site_packages(installed: Path) -> None:
    script = installed / "firm/beside.py"
    script.write_text("import settings, tensorflow")
    (installed / "firm/__init__.py").unlink()
    assert reason_for_plain_start(SourceFinder(str(script.parent)).script_sources(str(script)))


def test_a_package_of_an_editable_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "elsewhere/firm"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("import os\nos.environ['TF_A'] = '1'\n")
    (source / "train.py").write_text("import tensorflow")

    class Editable:  # as setuptools installs one
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            return spec_from_file_location(name, source / "__init__.py") if name == "firm" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Editable])
    assert reason_for_plain_start(SourceFinder(str(tmp_path)).module_sources("firm.train"))
    (tmp_path / "script.py").write_text("import firm, tensorflow")
    assert reason_for_plain_start(SourceFinder(str(tmp_path)).script_sources(str(tmp_path / "script.py")))


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"# -*- coding: no-such -*-\n", b"print('\xe4')"])
def test_a_script_that_is_no_text_raises(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "script.py").write_bytes(data)
    with pytest.raises(UnparsableSource):
        SourceFinder(str(tmp_path)).script_sources(str(tmp_path / "script.py"))


def test_an_own_module_that_cannot_be_parsed_raises(place: Path) -> None:
    (place / "helper.py").write_text("this is no Python")
    with pytest.raises(UnparsableSource):
        reason_for_plain_start(SourceFinder(str(place)).script_sources(str(place / "script.py")))

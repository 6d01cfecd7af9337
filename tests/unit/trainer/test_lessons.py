"""A lesson is one file of 40 to 80 lines that imports nothing of this project, with a manifest of 25 lines at most."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from tests.support.repository import REPOSITORY
from tftraining import lessons
from tftraining.launch.in_user_process.fork_eligibility import reason_for_plain_start
from tftraining.launch.in_user_process.module_sources import SourceFinder

LESSONS = sorted(path.stem for path in Path(lessons.__path__[0]).glob("[!_]*.py"))
MANIFESTS = REPOSITORY / "examples" / "lessons"
# TensorFlow and Keras, what the image has for the data, the bar, and the standard library.
ALLOWED = {"tensorflow", "keras", "tf_keras", "sklearn", "numpy", "tqdm", "os"}


def source(name: str) -> str:
    return (Path(lessons.__path__[0]) / f"{name}.py").read_text(encoding="utf-8")


def imported(name: str) -> set[str]:
    """The top-level packages that a lesson imports."""
    nodes = list(ast.walk(ast.parse(source(name))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {each.partition(".")[0] for each in names}


def test_each_lesson_has_a_manifest() -> None:
    assert len(LESSONS) == 5
    assert sorted(path.stem.replace("-", "_") for path in MANIFESTS.iterdir()) == LESSONS


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_is_short_and_self_contained(name: str) -> None:
    assert 40 <= len(source(name).splitlines()) <= 80
    assert {"tensorflow"} < imported(name) <= ALLOWED


@pytest.mark.parametrize("name", LESSONS)
def test_a_manifest_is_short_and_runs_its_lesson(name: str) -> None:
    text = (MANIFESTS / f"{name.replace('_', '-')}.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", f"tftraining.lessons.{name}"]
    assert f"tftj run examples/lessons/{name.replace('_', '-')}.yaml" in source(name)


@pytest.mark.parametrize("name", LESSONS)
def test_the_page_has_the_accuracy_of_the_lesson(name: str) -> None:
    page = (REPOSITORY / "docs" / "programs.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| \[{name}\].* \| ([\d.]+) \|$", page, re.MULTILINE)
    words = re.search(r"reaches a test accuracy of (\d\.\d+)", source(name))
    assert row and words
    assert row[1] == words[1]


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_can_be_forked_from_a_warm_interpreter(name: str, tmp_path: Path) -> None:
    assert reason_for_plain_start(SourceFinder(str(tmp_path)).module_sources(f"tftraining.lessons.{name}")) == ""

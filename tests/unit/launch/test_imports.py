"""The launcher runs in any image with a Python 3.9: it may import nothing but the standard library and itself."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tftraining.launch import install

LAUNCH = Path(install.__file__).parent
# Installed with it: what programs of the user's own call.
BESIDE = [LAUNCH.parent / name for name in install.FOR_PROGRAMS]
FILES = [*sorted(LAUNCH.rglob("*.py")), *BESIDE]
OWN = ("tftraining.launch.", *(f"tftraining.{path.stem}." for path in BESIDE))
# Inside the training process, where the user's own packages are; _tftraining is this package under a name of its own.
GUESTS = {"zygote.py": {"tensorflow", "tf_keras", "_tftraining"}, "sitecustomize.py": {"_tftraining"}}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "tftraining.launch" if node.level == 1 else node.module or ""


def test_there_is_something_to_look_at() -> None:
    assert {"__main__.py", "launcher.py", "coordinator.py"} <= {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_the_standard_library_and_itself(path: Path) -> None:
    allowed = sys.stdlib_module_names | GUESTS.get(path.name, set())
    foreign = [
        name
        for name in imported(ast.parse(path.read_text()))
        if name.split(".")[0] not in allowed and not f"{name}.".startswith(OWN)
    ]
    assert foreign == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_syntax_is_that_of_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))

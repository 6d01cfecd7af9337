"""The launcher runs in any image with Python 3.9: it imports only that standard library and itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tftraining.launch import install

LAUNCH = Path(install.__file__).parent
# Installed with it: what programs of the user's own call.
BESIDE = [LAUNCH.parent / name for name in install.FOR_PROGRAMS]
FILES = [*sorted(LAUNCH.rglob("*.py")), *BESIDE]
BARE = LAUNCH.parent / "cleanup.py"  # runs by itself in the same images
ASKED_FOR = ["sys.orig_argv"]  # of a later Python, and used only where hasattr finds them
OWN = ("tftraining.launch.", *(f"tftraining.{path.stem}." for path in BESIDE))
# Inside the training process, where the user's own packages are; _tftraining is this package under a name of its own.
GUESTS = {
    "bucket_object.py": {"tensorflow"},
    "zygote.py": {"tensorflow", "tf_keras", "_tftraining"},
    "sitecustomize.py": {"_tftraining"},
}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "tftraining.launch" if node.level else node.module or ""


def test_the_scan_finds_modules() -> None:
    assert {"__main__.py", "launcher.py", "coordinator.py"} <= {path.name for path in FILES}


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """The files, read as by Python 3.9; SyntaxError with the name of the file for newer syntax."""
    return {path: ast.parse(path.read_text(), path, feature_version=(3, 9)) for path in (*FILES, BARE)}


def test_only_the_standard_library_and_itself(trees: dict[Path, ast.Module]) -> None:
    foreign = [
        f"{path.name}: {name}"
        for path in FILES
        for name in imported(trees[path])
        if name.split(".")[0] not in sys.stdlib_module_names | GUESTS.get(path.name, set())
        and not f"{name}.".startswith(OWN)
    ]
    assert foreign == []


def newer_than_3_9(*paths: Path) -> list[str]:
    """What of the standard library and the syntax Python 3.9 does not have, as vermin's lines say."""
    excluded = [word for name in ASKED_FOR for word in ("--exclude", name)]
    vermin = Path(sys.executable).with_name("vermin")
    command = [str(vermin), "--target=3.9-", "--violations", "--no-tips", "--processes=1", *excluded]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else done.stdout.splitlines()


def test_the_standard_library_is_that_of_python_3_9() -> None:
    assert newer_than_3_9(*FILES, BARE) == []


NEWER = {
    "datetime": "from datetime import UTC",
    "itertools": "import itertools; itertools.pairwise([])",
    "dataclasses": "import dataclasses; dataclasses.dataclass(slots=True)",
    "zip": "zip([], [], strict=True)",
    "asyncio": "import asyncio; asyncio.timeout(1)",
    "match": "match 1:\n    case 1:\n        pass",
}


def test_the_check_finds_newer_library_functions(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.py" for name in NEWER]
    for path in paths:
        path.write_text(NEWER[path.stem])
    found = "\n".join(newer_than_3_9(*paths))
    assert [path for path in paths if str(path) not in found] == []


def unions_at_run_time(tree: ast.AST) -> Iterator[int]:
    """The lines with `isinstance(x, A | B)`, which is an error before Python 3.10 and which vermin does not see."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            yield from (node.lineno for found in ast.walk(node.args[-1]) if isinstance(found, ast.BitOr))


def test_no_union_type_is_evaluated_at_run_time(trees: dict[Path, ast.Module]) -> None:
    assert [f"{path.name}:{line}" for path, tree in trees.items() for line in unions_at_run_time(tree)] == []


def test_the_check_finds_a_union_type_at_run_time() -> None:
    assert list(unions_at_run_time(ast.parse("isinstance(3, int | str)"))) == [1]

"""`make mutants`: what it changes, and that it tells a change that a test notices from one that none does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import equivalents, key, pure, sample
from tests.mutation.mutations import Mutant, mutants
from tests.support.repository import REPOSITORY

CHANGES = {
    "a < b": {"a <= b", "a >= b"},
    "a is None": {"a is not None"},
    "a and b": {"a or b"},
    "not a": {"a"},
    "f(a, b)": {"f(b, a)", "pass"},
    "f(a, key=b)": {"f(a)", "pass"},
    "min(a, b)": {"max(a, b)", "pass"},
    "a.b = c": {"pass"},
    "a = 1": {"a = 2", "a = 0"},
    "a = True": {"a = False"},
    "a = 'word'": {"a = ''"},
    "a = f'{b} words'": {"a = ''"},
    "return a": {"return None"},
    "if a: b()": {"if not a:", "pass"},
    "raise a": {"pass"},
    "a: int = b": set(),
    "'''A docstring.'''": set(),
}


def found(source: str, function: str) -> Mutant:
    [mutant] = [each for each in mutants(source) if each.function == function]
    return mutant


@pytest.mark.parametrize("source", CHANGES)
def test_what_is_changed(source: str) -> None:
    assert {each.after for each in mutants(source)} == CHANGES[source]


def test_a_change_is_known_by_what_it_changes_wherever_it_stands() -> None:
    before, after = "def f():\n    return a", "import b\n\ndef f():\n    return a"
    one, other = key(Path("old/x.py"), found(before, "f")), key(Path("new/x.py"), found(after, "f"))
    assert one == other == ("x", "f", "return a", "return None")


def test_each_module_gives_its_share(tmp_path: Path) -> None:
    small, large = tmp_path / "small.py", tmp_path / "large.py"
    small.write_text("a = b < c\n" * 10)
    large.write_text("a = b < c\n" * 30)
    chosen = sample([small, large], 20)
    assert [sum(path == each for path, _ in chosen) for each in (small, large)] == [5, 15]
    assert chosen == sample([small, large], 20)


def test_what_reaches_outside_is_left_out(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    for text, expected in {"import re": True, "import os.path": False, "from asyncio import Task": False}.items():
        module.write_text(text)
        assert pure(module) is expected


COUNTED = """
NOTICED = 3
UNNOTICED = 3

def noticed(a):
    return not a


def unnoticed(a):
    return not a
"""
TESTS = """
import counted

def test_noticed():
    assert counted.noticed(False) is True
    assert counted.NOTICED == 3

def test_unnoticed():
    counted.unnoticed(False)
"""


def test_what_no_test_notices_is_shown(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "counted.py").write_text(COUNTED)
    (tmp_path / "test_counted.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow_fault\n")
    words = [sys.executable, "-m", "tests.mutation", package.name, "--tests", "test_counted.py"]
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}:{package}"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    shown = [line.partition("counted.py:")[2] for line in done.stdout.splitlines() if "counted.py:" in line]
    assert shown == ["10 unnoticed (1 tests)"] * 2 + ["3  (2 tests)"] * 2
    assert "\n  - return not a\n  + return a\n" in done.stdout


@pytest.mark.slow_fault  # it changes every module that the list names: seconds
def test_each_listed_equivalent_is_a_change_of_the_present_code() -> None:
    roots = (REPOSITORY / "operator/tftraining_operator/plan", REPOSITORY / "trainer/tftraining/launch")
    modules = [path for root in roots for path in root.rglob("*.py") if pure(path)]
    changes = {key(path, each) for path in modules for each in mutants(path.read_text(encoding="utf-8"))}
    assert sorted(equivalents() - changes) == []

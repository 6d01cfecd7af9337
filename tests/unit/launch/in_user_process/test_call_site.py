"""Which calls of `fit` have the same identity in a restarted process, and which have none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tftraining.launch.in_user_process.call_site import environment_fingerprint

LAUNCH = Path(__file__).parents[4] / "trainer"
PROGRAM = """
import sys
sys.path.insert(0, {path!r})
from tftraining.launch.in_user_process import call_site
def fit(*more):
    print(call_site.identity(sys._getframe(), *more) or "unknown")
def helper(*more):
    fit(*more)
"""


def identities(directory: Path, text: str, *arguments: str, name: str = "train.py") -> list[str]:
    """What a program prints for each of its calls of fit."""
    path = directory / name
    path.write_text(PROGRAM.format(path=str(LAUNCH)) + text)
    command = [sys.executable, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=directory, timeout=60)
    return done.stdout.split()


CALLS = """
fit(3)
fit(3)
helper(3)
helper(3)
fit(4)
"""


def test_the_identity_of_a_call_is_stable_and_unique(tmp_path: Path) -> None:
    first = identities(tmp_path, CALLS)
    assert identities(tmp_path, CALLS) == first
    assert len(set(first)) == 5 and "unknown" not in first


def test_arguments_and_the_program_are_part_of_the_identity(tmp_path: Path) -> None:
    one, two = (identities(tmp_path, "fit()", argument) for argument in ("--fold=1", "--fold=2"))
    assert one != two
    assert identities(tmp_path, "fit()", "--fold=1", name="other.py") != one


@pytest.mark.parametrize(
    "text",
    [
        "for fold in range(2):\n    fit()",
        "while True:\n    with open(__file__):\n        fit()\n    break",
        "def train():\n    helper()\nfor _ in range(1):\n    train()",
        "[fit() for _ in range(1)]",
        "exec('fit()')",
    ],
)
def test_a_call_in_a_loop_or_without_source_has_no_identity(tmp_path: Path, text: str) -> None:
    assert set(identities(tmp_path, text)) == {"unknown"}


def test_a_with_block_or_a_loop_elsewhere_is_no_loop_around_the_call(tmp_path: Path) -> None:
    text = """
for _ in range(3):
    pass
try:
    import nothing
except ImportError:
    pass
with open(__file__):
    if True:
        fit()
"""
    assert identities(tmp_path, text) != ["unknown"]
    assert identities(
        tmp_path, f"def main():\n    {text.strip().splitlines()[0]}\n        pass\n    fit()\nmain()"
    ) != ["unknown"]


def test_environment_variables_of_the_program_are_part_of_the_fingerprint() -> None:
    variables = {"FOLD": "1", "PATH": "/bin", "TFTRAINING_DIR": "/job"}
    same = environment_fingerprint(variables)
    untold = {"TF_CONFIG": "{}", "TFTRAINING_ROUND": "2", "SHLVL": "3", "PYTHONPATH": "/inject"}
    assert environment_fingerprint({**variables, **untold}) == same
    assert environment_fingerprint({**variables, "FOLD": "2"}) != same
    assert environment_fingerprint({**variables, "TFTRAINING_DIR": "/other"}) != same

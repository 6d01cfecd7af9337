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
def objection():
    print(call_site.objection(sys._getframe()))
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


def test_two_calls_on_one_line_are_told_apart(tmp_path: Path) -> None:
    one, two = identities(tmp_path, "both = [helper(), helper()]")
    assert one != two


IN_LOOPS = {
    "for fold in range(2):\n    fit()": 2,
    "for name, (rate, more) in [('a', (0.1, None)), ('a', (0.2, [True])), ('a', (0.2, {'b': 1}))]:\n    fit()": 3,
    "import pathlib\nfor path in (pathlib.Path('a'), pathlib.Path('b')):\n    helper()": 2,
    "def train():\n    helper()\ndef folds():\n    for fold in 'ab':\n        train()\nfolds()": 2,
    "def folds():\n    global fold\n    for fold in 'ab':\n        fit()\nfolds()": 2,
    "for a in (1, 2):\n    for b in (1, 2):\n        def train():\n            fit()\n        train()": 4,
    "[fit() for fold in range(2)]": 2,
    "def train():\n    return {rate: [helper() for fold in range(2)] for rate in (0.1, 0.2)}\ntrain()": 4,
    "list(helper() for fold in range(2))": 2,
    "def folds():\n    for fold in range(2):\n        fit()\n        yield\nlist(folds())": 2,
    "import numpy\nfor a in (numpy.arange(3), numpy.arange(4), numpy.float32(3)):\n    fit()": 3,
    "for fold in range(2):\n    pass\nelse:\n    fit()": 1,
}


@pytest.mark.parametrize(("text", "calls"), IN_LOOPS.items())
def test_the_values_of_the_loops_tell_their_passes_apart(tmp_path: Path, text: str, calls: int) -> None:
    first = identities(tmp_path, text)
    assert len(set(first)) == calls and "unknown" not in first
    assert identities(tmp_path, text) == first


UNKNOWN = {
    "while 1:\n    with sys.stdin:\n        fit()\n    break": "nothing tells the passes of the loop in line 11 apart",
    "for model in [object()]:\n    fit()": "the value of model in its loop is no plain value",
    "for fold, data in enumerate([open(__file__)]):\n    helper()": "the value of data in its loop is no plain value",
    "import numpy\nfor a in [numpy.array([None])]:\n    fit()": "the value of a in its loop is no plain value",
    "def train():\n    yield fit()\nfor _ in train():\n    pass": "it is in the head of the loop in line 13",
    "[fit() for model in [object()]]": "the value of model in its loop is no plain value",
    "exec('fit()')": "<string> has no source",
}


@pytest.mark.parametrize(("text", "why"), UNKNOWN.items())
def test_a_call_without_such_values_or_without_source_has_no_identity(tmp_path: Path, text: str, why: str) -> None:
    assert identities(tmp_path, text) == ["unknown"]
    asked = text.replace("fit()", "objection()").replace("helper()", "objection()")
    assert " ".join(identities(tmp_path, asked)) == why


def test_a_call_that_is_repeated_without_a_trace_has_no_second_identity(tmp_path: Path) -> None:
    first, *others = identities(tmp_path, "list(map(fit, (3, 3, 3)))")
    assert first != "unknown" and others == ["unknown", "unknown"]


@pytest.mark.parametrize(
    "text",
    ["import fire\nfire.Fire(helper, '1')", "import absl.app\nabsl.app.run(helper, ['-'])"],
)
def test_the_loops_of_what_reads_the_command_line_do_not_count(tmp_path: Path, text: str) -> None:
    (tmp_path / "fire.py").write_text(
        "def Fire(function, argument):\n    while True:\n        return function(argument)"
    )
    assert "unknown" not in identities(tmp_path, text)


def test_what_the_program_deletes_is_not_kept(tmp_path: Path) -> None:
    text = """
import weakref
class Data: pass
def train():
    data = Data()
    kept = weakref.ref(data)
    for fold in range(1):
        fit()
    del data
    print(kept())
train()
"""
    assert identities(tmp_path, text)[1:] == ["None"]


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

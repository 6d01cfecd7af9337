"""A program answers --help and refuses wrong options before it pays for the import of TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tftraining import examples
from tftraining.launch.in_user_process.fork_eligibility import reason_for_plain_start
from tftraining.launch.in_user_process.module_sources import SourceFinder

PROGRAMS = sorted(path.stem for path in Path(examples.__path__[0]).glob("[!_]*.py"))
# Executed by `python -c`, then the program as `python -m` does; the imports that take long fail.
FORBIDDING = """
import runpy, sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tf_keras", "keras", "numpy", "sklearn"):
            raise AssertionError(f"imported {name}")
sys.meta_path.insert(0, Forbid())
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def started(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FORBIDDING, f"tftraining.examples.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_these_are_the_programs() -> None:
    assert len(PROGRAMS) == 5


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_help_needs_no_tensorflow(name: str) -> None:
    done = started(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {name} ")


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        *((name, ["--epochs", "0"], "0 must be a whole number of at least 1") for name in PROGRAMS),
        ("dtensor_mlp", ["--hidden", "7", "5", "--model-parts", "2"], "dtensor_mlp: --hidden 7 5: not multiples"),
        ("dtensor_mlp", ["--logical-devices", "3", "--model-parts", "2"], "dtensor_mlp: 3 devices cannot be divided"),
        ("dtensor_mlp", ["--logical-devices", "8", "--batch-size", "12"], "--batch-size 12 is not a multiple of 8"),
        ("mirrored_custom_loop", ["--accumulate", "3"], "--batch-size 64 is not a multiple of --accumulate 3"),
        ("multi_worker_mnist", ["--accumulate", "2"], "multi_worker_mnist: --accumulate needs --loop custom"),
        ("parameter_server", ["--jit"], "parameter_server: --jit is not supported"),
        ("transfer_learning", ["--validation", "2"], "transfer_learning: --validation 2.0 is not between 0 and 1"),
    ],
)
def test_wrong_options_are_refused_without_tensorflow(name: str, wrong: list[str], message: str) -> None:
    done = started(name, *wrong)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_options_go_on_to_tensorflow(name: str) -> None:
    """So that the tests above can fail."""
    done = started(name)
    assert done.returncode == 1
    assert "AssertionError: imported " in done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_can_be_forked_from_a_warm_interpreter(name: str, tmp_path: Path) -> None:
    sources = SourceFinder(str(tmp_path)).module_sources(f"tftraining.examples.{name}")
    assert len(sources) == 3
    assert reason_for_plain_start(sources) == ""

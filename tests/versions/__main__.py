"""Train under several versions of TensorFlow and Keras, each with a kill: `python -m tests.versions 2.15 2.18+3.12`.

Each version gets an environment in the cache directory (about 1.5 GB; --keep leaves it there), with the launcher and
the client of this checkout, the Keras behind the `+`, and the newest packages that this version of TensorFlow accepts.
There the tests of two lessons, of README's program of Keras 3 and of BackupAndRestore run as they are. A Keras 3 that
the launcher does not patch must be refused with its words. The last lines are a table for docs/support.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.shell import cache_dir
from tests.support.repository import REPOSITORY

VERSIONS = ("2.15", "2.16+3.10", "2.18+3.12", "2.21", "2.18+3.8")
UNPATCHED = ("3.8", "3.9")
PACKAGES = ("scikit-learn", "tqdm", "hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
LESSONS = "tests/processes/client/test_lessons.py"
BACKUPS = "tests/processes/client/test_fit_backups.py"
OWN_PROGRAM = "tests/processes/client/test_own_program.py"
# What a column of the table shows, and the test that it comes from.
CASES = {
    "tf_keras, fit, 2 workers": (LESSONS, "multi-worker-fit"),
    "keras, custom loop, 2 workers": (LESSONS, "multi-worker-custom-loop"),
    "keras, fit, 2 workers": (OWN_PROGRAM, "resumes_after_a_kill"),
    "tf_keras, fit, 1 worker": (BACKUPS, "tf_keras-mirrored"),
    "keras, fit, 1 worker": (BACKUPS, "[keras-none]"),
}
KERAS3_FIT = "keras, fit, 2 workers"
VERSIONS_OF = "import tensorflow, keras, sys; print(sys.version.split()[0], tensorflow.__version__, keras.__version__)"


@dataclass(frozen=True)
class Row:
    """A version of TensorFlow: the versions of Python, TensorFlow and Keras, and the result of each case."""

    versions: tuple[str, ...]
    results: dict[str, str]

    def __str__(self) -> str:
        return "| " + " | ".join((*self.versions, *(self.results.get(each, "") for each in CASES))) + " |"


def install(folder: Path, version: str, python: str) -> Path:
    """The interpreter of a new environment with this version of TensorFlow."""
    uv, interpreter = Path(sys.executable).with_name("uv"), folder / "bin" / "python"
    if interpreter.exists():
        return interpreter
    environment = {**os.environ, "VIRTUAL_ENV": str(folder)}
    tensorflow, _, keras = version.partition("+")
    chosen = [f"tensorflow-cpu=={tensorflow}.*", *([f"keras=={keras}.*"] if keras else [])]
    for arguments in (
        ["venv", "-q", "--python", python, str(folder)],
        ["pip", "install", "-q", "-e", f"{REPOSITORY}[client,local]", *chosen, *PACKAGES],
        # Without its dependency `tensorflow`, which would be a second one.
        ["pip", "install", "-q", "--no-deps", f"tf_keras=={tensorflow}.*"],
    ):
        subprocess.run([uv, *arguments], check=True, env=environment, cwd=REPOSITORY)
    return interpreter


def passes(interpreter: Path, test: str, case: str) -> str:
    """The result of one test, `yes` or `no`; the output of a test that fails is printed."""
    command = [str(interpreter), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", test, "-k", case]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTEST_ADDOPTS": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command += ["--basetemp", f"{folder}/tests"]
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], sep="\n", flush=True)
    return "no" if done.returncode else "yes"


def refuses(interpreter: Path) -> str:
    """Whether README's program of Keras 3 ends with the words, `refused` or `no`."""
    command = [str(interpreter), "-m", "tftraining_client", "run", "examples/own-program.yaml", "--workdir"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*command, folder], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    if done.returncode and all(each in told for each in ("3.10", "import tf_keras as keras")):
        return "refused"
    print(told[-6000:], flush=True)
    return "no"


def cases_of(version: str, words: str | None) -> dict[str, tuple[str, str]]:
    """The cases that this version has, by column, with these words in it."""
    keras = version.partition("+")[2]
    columns = (
        [KERAS3_FIT] if keras in UNPATCHED else [each for each in CASES if each != KERAS3_FIT or version != "2.15"]
    )
    return {each: CASES[each] for each in columns if words is None or words in each}


def measure(version: str, options: argparse.Namespace) -> Row:
    """The row of a version."""
    folder = cache_dir() / "versions" / f"tensorflow-{version}"
    try:
        interpreter = install(folder, version, options.python)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        told = subprocess.run(
            [interpreter, "-c", VERSIONS_OF], check=True, env=environment, capture_output=True, text=True
        )
        refused = version.partition("+")[2] in UNPATCHED
        results: dict[str, str] = {}
        for column, case in cases_of(version, options.only).items():
            results[column] = refuses(interpreter) if refused else passes(interpreter, *case)
            print(f"TensorFlow {version}: {column}: {results[column]}", file=sys.stderr, flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return Row(tuple(told.stdout.split()), results)


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all cases pass."""
    parser = argparse.ArgumentParser(prog="tests.versions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, help=f"TensorFlow[+Keras] ({' '.join(VERSIONS)})")
    parser.add_argument("--python", default="python3.11", help="the Python, which all these versions support (3.11)")
    parser.add_argument("--only", metavar="WORDS", help="the columns with these words only")
    parser.add_argument("--keep", action="store_true", help="keep the environments, for the next run")
    options = parser.parse_args(argv)
    rows = [measure(version, options) for version in options.versions]
    columns = ("Python", "TensorFlow", "Keras", *CASES)
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    print(*rows, sep="\n", flush=True)
    return 0 if all(result != "no" for row in rows for result in row.results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Every program that our code calls is installed where it is missing, or part of the machine that README asks for."""

from pathlib import Path

import pytest

from testbed.packages import ASSUMED, PACKAGES
from tests.support import program_calls
from tests.support.repository import REPOSITORY

TESTBED = REPOSITORY / "testbed"
# Names of no program of the machine: what a test wants to be missing, and what .venv or a pod has.
NO_PROGRAMS = {"no-such-command", "python", "python3.9", "tftj"}


FOLDERS = ("tests", "testbed", "benchmarks", "client", "trainer", "operator", "api")
SOURCES = {path: path.read_text() for folder in FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.py"))}


@pytest.fixture(scope="module")
def calls() -> list[tuple[Path, program_calls.Call]]:
    """Each call of a program in our Python code, with the path of the file."""
    return [(path, call) for path, source in SOURCES.items() for call in program_calls.in_python(source)]


@pytest.fixture(scope="module")
def scripted() -> list[tuple[str, str]]:
    """The programs that the Makefile and the shell scripts of the machine call, with the path of the file."""
    scripts = [REPOSITORY / ".ci" / "run", *REPOSITORY.glob("tests/bare/*.sh")]
    found = [(path.name, name) for path in scripts for name in program_calls.in_shell(path.read_text())]
    makefile = program_calls.in_makefile((REPOSITORY / "Makefile").read_text())
    return [*found, *(("Makefile", name) for name in makefile)]


def test_each_program_is_asked_for_or_is_part_of_a_bare_machine(
    calls: list[tuple[Path, program_calls.Call]], scripted: list[tuple[str, str]]
) -> None:
    known = {*PACKAGES, *ASSUMED, *NO_PROGRAMS}
    strange = [
        f"{path.relative_to(REPOSITORY)}:{call.line}: {call.program}"
        for path, call in calls
        if call.program not in known
    ]
    strange += [f"{path}: {name}" for path, name in scripted if name not in ASSUMED]
    assert not strange, "add these to PACKAGES (testbed/packages.py), and ask for them by `need`"


def test_whoever_calls_a_program_of_a_package_asks_for_it(calls: list[tuple[Path, program_calls.Call]]) -> None:
    in_testbed = {
        name for path, text in SOURCES.items() if TESTBED in path.parents for name in program_calls.asked_for(text)
    }
    unasked = [
        f"{path.relative_to(REPOSITORY)}:{call.line}: {call.program}"
        for path, call in calls
        if call.program in PACKAGES
        and call.program not in (in_testbed if TESTBED in path.parents else program_calls.asked_for(SOURCES[path]))
    ]
    assert not unasked, "each file asks for what it calls: need_or_skip (tests/support/needed.py), or packages.need"


def test_nothing_is_assumed_that_nobody_calls(
    calls: list[tuple[Path, program_calls.Call]], scripted: list[tuple[str, str]]
) -> None:
    assert ASSUMED - {call.program for _, call in calls} - {name for _, name in scripted} == set()


CALLS = {
    'subprocess.run(["rsync", "-a"])': ["rsync"],
    'subprocess.Popen(["/usr/bin/rsync"], env=env)': ["rsync"],
    'x = ["rsync", "-a"]\nsubprocess.run(x)': ["rsync"],
    'x: list[str] = ["rsync", path]\nrun(x)': ["rsync"],
    'await asyncio.create_subprocess_exec("rsync", path)': ["rsync"],
    'asyncio.create_subprocess_exec(*("rsync", "-a"))': ["rsync"],
    'if not shutil.which("rsync"): pass': ["rsync"],
    'os.execvp("rsync", words)': ["rsync"],
    'self._run(*self.wrapper, "rsync", "-a")': ["rsync"],
    'run([*wrapper, "rsync", "-a"])': ["rsync"],
    'X = ("rsync", "-a")\nrun([*X, path])': ["rsync"],
    'gang.wrappers["worker-1"] = ["rsync", "-a"]': ["rsync"],
    'def wrapper(self):\n    return ["rsync"]': ["rsync"],
    'run(["sh", "-c", f"cd {place} && A=1 rsync -a | tac; exec cpio <in"])': ["sh", "rsync", "tac", "cpio"],
    'run([sys.executable, "-c", code])': [],
    'run([binaries.ensure("helm") / "helm", "list"])': [],
    'programs.run("multi_worker_mnist")': [],
    'names = ["rsync"]': [],
}


@pytest.mark.parametrize("code", CALLS)
def test_calls_are_found_in_python(code: str) -> None:
    assert [call.program for call in program_calls.in_python(code)] == CALLS[code]


SCRIPTS = {
    "rsync -a && tac": ["rsync", "tac"],
    "if ! rsync; then tac; fi": ["rsync", "tac"],
    'x=$(rsync -a) && echo "$(tac x)"': ["rsync", "tac"],
    "echo 'install rsync; then tac'": [],
    '"$@"': [],
    "# rsync\nmount a b >log 2>&1\nexec tac": ["mount", "tac"],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_calls_are_found_in_shell_scripts(script: str) -> None:
    assert program_calls.in_shell(script) == SCRIPTS[script]


MAKEFILE = r"""
RUN := .venv/bin/
HELP = { rsync -a; }
all: tac
>@# shred
>@$(RUN)pytest $(if $(filter no,$(X)),-q) | x=$$(shuf) \
>  && cpio
""".replace(">", "\t")


def test_calls_are_found_in_a_makefile() -> None:
    assert program_calls.in_makefile(MAKEFILE) == ["shuf", "cpio", "rsync"]

"""Runs tests against changed modules, each change in a child of its own that has the heavy imports from its parent.

It must never import a module that may be changed: each child imports these anew.
"""

import importlib
import io
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import hypothesis
import pytest

from .mutations import Mutant, mutated

FLAGS = ["-q", "--no-header", "--no-summary", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow_fault"]
FLAGS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that were loaded before
SURVIVED, UNSEEN = 0, 5  # how pytest ends when all tests pass, and when there is none


@dataclass
class Runs:
    """Which tests run which line of which module, how long each takes, and what they have imported."""

    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    imported: list[str] = field(default_factory=list)

    def of(self, path: Path, mutant: Mutant) -> list[str]:
        """The tests of a change, the quick ones first; what runs at import concerns all tests of the module."""
        found = set().union(*(self.tests.get((str(path), line), ()) for line in range(mutant.first, mutant.last + 1)))
        if not found:
            found = set().union(*(tests for (file, _), tests in self.tests.items() if file == str(path)))
        return sorted(found - self.failed, key=lambda test: self.seconds[test])


class _Watch:
    """Notes the lines that each test runs of some files."""

    def __init__(self, files: set[str]) -> None:
        self.runs, self._files, self._test = Runs(), files, ""

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self.runs.tests.setdefault((frame.f_code.co_filename, frame.f_lineno), set()).add(self._test)
        return self._trace

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, began = item.nodeid, time.process_time()
        sys.settrace(self._trace)
        yield
        sys.settrace(None)
        self.runs.seconds[item.nodeid] = time.process_time() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.runs.failed.add(report.nodeid)


class _Choice:
    """Runs these tests and no others, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._rank = {test: rank for rank, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (each for each in items if each.nodeid in self._rank), key=lambda each: self._rank[each.nodeid]
        )


def watch(files: Sequence[Path], tests: Sequence[str]) -> Runs:
    """Run all tests once, unchanged."""
    with tempfile.TemporaryFile() as result:

        def work() -> int:
            watched = _Watch(set(map(str, files)))
            pytest.main([*FLAGS, *tests], plugins=[watched])
            watched.runs.imported = [name for name, module in sys.modules.items() if _is_installed(module)]
            pickle.dump(watched.runs, result)
            result.flush()
            return 0

        in_child(work, 3600)
        result.seek(0)
        runs = pickle.load(result)
    assert isinstance(runs, Runs)
    return runs


def _is_installed(module: ModuleType) -> bool:
    """Whether it belongs to a package or to Python, so nothing that may be changed is part of it."""
    return (getattr(module, "__file__", None) or "").startswith((sys.prefix, sys.base_prefix))


def preload(runs: Runs) -> None:
    """Import what the tests import, but for what may be changed and what imports it."""
    for name in runs.imported:
        try:
            importlib.import_module(name)
        except Exception:  # a module that only works as part of another
            continue


def survives(path: Path, mutant: Mutant, tests: Sequence[str], seconds: float) -> bool:
    """Whether no test notices the change; one that takes more than `seconds` of processor time was noticed."""
    code = compile(mutated(path.read_text(), mutant.number), str(path), "exec")

    def work() -> int:
        _replace(path, code)
        # A failure is enough, the smallest example of it is not looked for.
        quick = hypothesis.settings(phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate])
        hypothesis.settings.register_profile("quick", quick)
        hypothesis.settings.load_profile("quick")
        return int(
            pytest.main([*FLAGS, "-x", *sorted({test.split("::")[0] for test in tests})], plugins=[_Choice(tests)])
        )

    return not tests or in_child(work, seconds) in (SURVIVED, UNSEEN)


def _replace(path: Path, code: CodeType) -> None:
    """Have the module made from this code when it is imported."""
    original: Callable[[SourceFileLoader, str], CodeType | None] = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return code if self.path == str(path) else original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def in_child(work: Callable[[], int], seconds: float) -> int:
    """The exit status of `work` in a child, negative for a signal; it is ended after so much time of the processor."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status, errors = 70, os.dup(2)
        try:
            _be_alone(seconds)
            status = work()
        except BaseException:
            os.write(errors, traceback.format_exc().encode())
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended)


def _be_alone(seconds: float) -> None:
    """Bounded, silent, and last in the queue for the processor."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, resource.RLIM_INFINITY))
    signal.alarm(int(10 * seconds) + 60)  # for what waits and computes nothing
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    sys.stdout, sys.stderr = io.TextIOWrapper(io.FileIO(1, "w")), io.TextIOWrapper(io.FileIO(2, "w"))

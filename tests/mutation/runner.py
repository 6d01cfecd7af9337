"""Runs tests against changed modules, each change in a child of its own that has the heavy imports from its parent.

It must never import a module that may be changed: each child imports these anew.
"""

import gc
import importlib
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import hypothesis
import pytest

from .mutations import Mutant, mutated

FLAGS = ["-q", "--no-header", "--no-summary", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow_fault"]
FLAGS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that were loaded before
SURVIVED, NOTICED, BROKEN = 0, 1, 70
ERRORS = os.dup(2)  # children are silent


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
    """Notes the lines that each test runs of some files, and looks no longer at a function that it has seen all of."""

    def __init__(self, files: set[str]) -> None:
        self.runs, self._files, self._test = Runs(), files, ""
        self._left: dict[int, set[int]] = {}

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self._files:
            return None
        left = self._left.get(id(code))
        if left is None:
            left = self._left[id(code)] = {line for _, _, line in code.co_lines() if line}
        if frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.runs.tests.setdefault((code.co_filename, frame.f_lineno), set()).add(self._test)
        return self._trace if left else None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test, self._left, began = item.nodeid, {}, time.process_time()
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
            _pytest(tests, watched)
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


@dataclass(frozen=True)
class Trial:
    """A change, the tests that should notice it, and the processor time that they may take."""

    path: Path
    source: str
    mutant: Mutant
    tests: tuple[str, ...]
    seconds: float

    @property
    def code(self) -> CodeType:
        """The changed module."""
        return compile(mutated(self.source, self.mutant.number), str(self.path), "exec")


def judge(trials: Sequence[Trial], tests: Sequence[str]) -> Iterator[tuple[Trial, bool]]:
    """Each trial with whether no test notices its change; one that takes too long is noticed."""
    reading, writing = os.pipe()
    quick = [number for number, trial in enumerate(trials) if trial.mutant.inside]
    child = _fork(lambda: _serve(trials, quick, tests, writing), 1e6)
    os.close(writing)
    told = set()
    with os.fdopen(reading) as lines:
        for number, status in (map(int, line.split()) for line in lines):
            assert status != BROKEN, f"{trials[number]} cannot be tried"
            told.add(number)
            yield trials[number], status == SURVIVED
    os.waitpid(child, 0)
    assert told == set(quick), "the tests cannot be collected, or fail without a change"
    yield from ((trial, _survives(trial)) for trial in trials if not trial.mutant.inside)


def _serve(trials: Sequence[Trial], numbers: Sequence[int], tests: Sequence[str], told: int) -> int:
    """Collect all tests once, and have a child for each change of a function, whose code is exchanged there."""

    class Server:
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            items = {item.nodeid: item for item in session.items}
            # Without a change all must pass here too, or everything would count as noticed.
            some = random.Random(0).sample(session.items, min(300, len(session.items)))
            if in_child(partial(self._run, some), 1e6) != SURVIVED:
                return True
            for number in numbers:
                trial = trials[number]
                chosen = [items[test] for test in trial.tests if test in items]
                status = in_child(partial(self._run, chosen, trial), trial.seconds)
                os.write(told, f"{number} {status}\n".encode())
            return True

        def _run(self, chosen: Sequence[pytest.Item], trial: Trial | None = None) -> int:
            if trial is not None:
                _exchange(trial.path, trial.code)
            for item, after in zip(chosen, [*chosen[1:], None], strict=False):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            return SURVIVED

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                os._exit(NOTICED)

    _be_quick()
    return _pytest(tests, Server())


def _survives(trial: Trial) -> bool:
    """The same for what runs when the module is imported: all is imported anew."""

    def work() -> int:
        _replace(trial.path, trial.code)
        _be_quick()
        files = sorted({test.split("::")[0] for test in trial.tests})
        return _pytest(["-x", *files], _Choice(trial.tests))

    return not trial.tests or in_child(work, trial.seconds) == SURVIVED


def _be_quick() -> None:
    """A failure is enough, the smallest example of it is not looked for."""
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile("quick", hypothesis.settings(phases=phases))
    hypothesis.settings.load_profile("quick")


def _exchange(path: Path, code: CodeType) -> None:
    """Give the functions of a module that is imported already the code that they have in the changed one."""
    changed: dict[tuple[str, int], CodeType] = {}
    rest = [code]
    while rest:
        inner = [each for each in rest.pop().co_consts if isinstance(each, CodeType)]
        changed |= {(each.co_qualname, each.co_firstlineno): each for each in inner}
        rest += inner
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(path):
            old = function.__code__
            function.__code__ = changed[old.co_qualname, old.co_firstlineno]


def _replace(path: Path, code: CodeType) -> None:
    """Have the module made from this code when it is imported."""
    original: Callable[[SourceFileLoader, str], CodeType | None] = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return code if self.path == str(path) else original(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def in_child(work: Callable[[], int], seconds: float) -> int:
    """The exit status of `work` in a child, negative for a signal; it is ended after so much time of the processor."""
    _, ended = os.waitpid(_fork(work, seconds), 0)
    return os.waitstatus_to_exitcode(ended)


def _fork(work: Callable[[], int], seconds: float) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = BROKEN
        try:
            _be_bounded(seconds)
            status = work()
        except BaseException:
            os.write(ERRORS, traceback.format_exc().encode())
        finally:
            os._exit(status)
    return child


def _be_bounded(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, 20 * seconds)  # for what waits and computes nothing


def _pytest(arguments: Sequence[str], plugin: object) -> int:
    """Run pytest, silently."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    return int(pytest.main([*FLAGS, *arguments], plugins=[plugin]))

"""An iterator that dies leaves its handle to a thread: its destructor may take long, and the program goes on."""

from __future__ import annotations

import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from tftraining.launch.in_user_process import iterator_release, surface
from tftraining.launch.in_user_process.iterator_release import SURFACES, Release

HERE = threading.current_thread().name
THERE = iterator_release.NAME
MODULE = next(iter(SURFACES))


class Handle:
    """A handle as TensorFlow has it outside of graphs; notes the thread in which it dies."""

    _numpy_internal = None

    def __init__(self, died: list[str]) -> None:
        self._died = died

    def __del__(self) -> None:
        self._died.append(threading.current_thread().name)


class Symbol(Handle):
    """A handle inside a graph."""

    def __getattribute__(self, name: str) -> Any:
        if name == "_numpy_internal":
            raise AttributeError(name)
        return super().__getattribute__(name)


class Context:
    """As TensorFlow's, which has the functions of all datasets."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove_function(self, name: str) -> None:
        self.removed.append(name)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[Release]:
    changed = type("Context", (Context,), {"remove_function": Context.remove_function})
    context = types.SimpleNamespace(Context=changed)
    monkeypatch.setitem(sys.modules, iterator_release._FUNCTIONS.module, context)
    release = Release()
    release.allow()
    yield release
    release.finish()


@pytest.fixture
def iterator(release: Release) -> Any:
    """TensorFlow's class, as the hook changes it."""

    class OwnedIterator:
        def __init__(self, handle: Any) -> None:
            self._iterator_resource = handle

    module = types.SimpleNamespace(__name__=MODULE, OwnedIterator=OwnedIterator)
    iterator_release._extend(release, module)
    return OwnedIterator


def wait_for_one(died: list[str]) -> str:
    deadline = time.monotonic() + 30
    while not died:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return died[0]


def test_a_handle_dies_in_a_thread(iterator: Any) -> None:
    died: list[str] = []
    iterator(Handle(died))
    assert wait_for_one(died) == THERE


def test_a_handle_that_somebody_else_lets_go_of_a_little_later_dies_in_a_thread(iterator: Any) -> None:
    died: list[str] = []
    held = [Handle(died)]
    iterator(held[0])
    time.sleep(3 * iterator_release.PAUSE_SECONDS)
    assert died == []
    held.clear()
    assert wait_for_one(died) == THERE


def test_a_handle_in_use_stays(iterator: Any, monkeypatch: pytest.MonkeyPatch, release: Release) -> None:
    monkeypatch.setattr(iterator_release, "PATIENCE_SECONDS", 0.0)
    died: list[str] = []
    first = iterator(Handle(died))
    iterator(first._iterator_resource)
    release.finish()
    assert died == []
    del first
    assert died == [HERE]


def test_one_handle_that_waits_does_not_keep_the_next_one(iterator: Any) -> None:
    first, second = [], []  # type: ignore[var-annotated]
    held = Handle(first)
    iterator(held)
    iterator(Handle(second))
    assert wait_for_one(second) == THERE
    assert first == []
    del held
    assert wait_for_one(first) == THERE


def test_a_context_keeps_functions_for_the_threads_that_wait(iterator: Any) -> None:
    context = sys.modules[iterator_release._FUNCTIONS.module].Context()
    context.remove_function("before")
    assert context.removed == ["before"]
    died: list[str] = []
    held = [Handle(died)]
    iterator(held[0])
    context.remove_function("meanwhile")
    assert context.removed == ["before"]
    later: list[str] = []
    iterator(Handle(later))
    assert wait_for_one(later) == THERE
    assert context.removed == ["before"]
    held.clear()
    assert wait_for_one(died) == THERE
    while context.removed != ["before", "meanwhile"]:
        time.sleep(0.01)


def test_the_end_of_the_process_waits_for_the_threads(iterator: Any, release: Release) -> None:
    died: list[str] = []

    class Slow(Handle):
        def __del__(self) -> None:
            time.sleep(0.2)
            super().__del__()

    iterator(Slow(died))
    release.finish()
    assert died == [THERE]
    iterator(Handle(died))
    assert died == [THERE, HERE]


def test_the_end_of_the_process_waits_for_a_moment_only(
    iterator: Any, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterator_release, "END_SECONDS", 0.1)
    died: list[str] = []
    told = threading.Event()

    class Slow(Handle):
        def __del__(self) -> None:
            told.wait(30)
            super().__del__()

    for _ in range(5):
        iterator(Slow(died))
    began = time.monotonic()
    release.finish()
    assert time.monotonic() - began < 5
    assert died == []
    told.set()
    assert wait_for_one(died) == THERE


def test_behind_a_dataset_whose_end_may_be_noticed_a_handle_dies_at_once(iterator: Any, release: Release) -> None:
    died: list[str] = []
    iterator(Handle(died))
    assert wait_for_one(died) == THERE
    release.forbid()
    iterator(Handle(died))
    assert died == [THERE, HERE]


@pytest.mark.parametrize("change", ["another parameter", "no functions"])
def test_where_datasets_are_not_known_a_handle_dies_at_once(
    iterator: Any, release: Release, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    monkeypatch.setattr(surface, "_told", set())

    class DatasetV2:
        def __init__(self, variant_tensor: Any) -> None:
            pass

    class OtherDataset:
        def __init__(self, variant: Any) -> None:
            pass

    functions = type("StructuredFunctionWrapper", (), {} if change == "no functions" else {"function": property(id)})
    monkeypatch.setitem(
        sys.modules,
        iterator_release.WATCHED.parts[1].module,
        types.SimpleNamespace(StructuredFunctionWrapper=functions),
    )
    release.forbid()
    datasets = OtherDataset if change == "another parameter" else DatasetV2
    before = datasets.__init__
    iterator_release._watch(release, types.SimpleNamespace(DatasetV2=datasets))
    assert datasets.__init__ is before
    assert "the end of an epoch may wait for its input: " in capsys.readouterr().err
    died: list[str] = []
    iterator(Handle(died))
    assert died == [HERE]


def test_in_a_forked_process_a_handle_dies_at_once(iterator: Any, release: Release) -> None:
    died: list[str] = []
    one = iterator(Handle(died))
    release._pid = -1
    del one
    assert died == [HERE]


def test_the_symbol_of_a_handle_in_a_graph_dies_at_once(iterator: Any) -> None:
    died: list[str] = []
    iterator(Symbol(died))
    assert died == [HERE]


def test_a_class_that_has_a_destructor_stays_as_it_is(capsys: pytest.CaptureFixture[str], release: Release) -> None:
    class OwnedIterator:
        def __init__(self, handle: Any) -> None:
            self._iterator_resource = handle

        def __del__(self) -> None:
            pass

    before = dict(OwnedIterator.__dict__)
    iterator_release._extend(release, types.SimpleNamespace(__name__=MODULE, OwnedIterator=OwnedIterator))
    assert dict(OwnedIterator.__dict__) == before
    assert "OwnedIterator has a destructor of its own" in capsys.readouterr().err


def test_a_class_whose_handle_has_another_name_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], release: Release
) -> None:
    class OwnedIterator:
        def __init__(self, handle: Any) -> None:
            self._resource = handle

    before = dict(OwnedIterator.__dict__)
    iterator_release._extend(release, types.SimpleNamespace(__name__=MODULE, OwnedIterator=OwnedIterator))
    assert dict(OwnedIterator.__dict__) == before
    assert "does not use _iterator_resource" in capsys.readouterr().err


def test_at_the_limit_of_threads_a_handle_dies_all_the_same(iterator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    died: list[str] = []
    one = iterator(Handle(died))
    monkeypatch.setattr(threading.Thread, "start", fail)
    del one
    assert wait_for_one(died) == THERE  # the one thread that there is


def test_without_any_thread_an_iterator_dies_as_usual(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    died: list[str] = []
    release.start()
    release.take(Handle(died))
    assert died == [HERE]

"""What is said of failures and restarts, the same by launchers, the operator and `tftj`."""

from __future__ import annotations

import signal

import pytest

from tests.support.restart_messages import RESUMPTIONS
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure_and_restart_messages import (
    describe,
    done_before,
    earlier_run,
    exited_early,
    resumption,
    went_on,
)


def test_the_description_of_an_exit() -> None:
    assert describe("worker-1", Exit(None, 9)) == "worker-1 was killed (SIGKILL)"
    told = describe("worker-0", Exit(3, None, ("a", "b ", "")))
    assert told == "worker-0 failed with exit code 3: b"
    assert describe("worker-1", Exit(137, None, kind="OOMKilled")) == "worker-1 ran out of memory (OOMKilled)"
    assert describe("worker-1", Exit(None, 99)) == "worker-1 was killed (signal 99)"
    assert "tf_keras" in describe("worker-0", Exit(1, None, ("ValueError: PerReplica",), "Keras3Fit"))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("NotFound", "the command was not found"),
        ("SyntaxError", "the program has a syntax error"),
        ("ImportError", "the program cannot import a module"),
    ],
)
def test_fatal_kinds_are_explained_in_the_description(kind: str, words: str) -> None:
    assert words in describe("worker-1", Exit(1, None, ("the last line",), kind))


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP"])
def test_a_signal_of_its_own_is_explained_by_what_the_program_has_said(name: str) -> None:
    line = "2026-11-21 10:20:30.123456: F tensorflow/core/x.cc:9] Check failed: a == b"
    assert describe("worker-1", Exit(None, signal.Signals[name], (line,))).startswith(f"worker-1 was killed ({name}): ")


@pytest.mark.parametrize(("source", "epoch", "step", "words"), RESUMPTIONS)
def test_where_a_training_resumed(source: str | None, epoch: int | None, step: int | None, words: str) -> None:
    assert resumption(source, epoch, step) == words


@pytest.mark.parametrize(
    ("where", "alone", "seconds", "words"),
    [
        ("resumed from epoch 2", False, 1.1, "resumed from epoch 2 after 1.1 s"),
        ("resumed from epoch 2", False, None, "resumed from epoch 2"),
        ("started over: no backup found", False, "1.1", "started over: no backup found, after 1.1 s"),
        ("started over: no backup found", False, None, "started over: no backup found"),
        ("", False, 1.1, "resumed after 1.1 s"),
        ("", False, None, "resumed"),
        ("", True, 0.5, "restarted alone after 0.5 s; other members kept training"),
        ("", True, None, "restarted alone; other members kept training"),
    ],
)
def test_what_came_of_a_restart(where: str, alone: bool, seconds: float | str | None, words: str) -> None:
    assert went_on(where, alone, seconds) == words


@pytest.mark.parametrize(
    ("epoch", "step", "words"),
    [
        (3, 210, "resumed from epoch 3 of an earlier run in the same directory"),
        (0, 40, "resumed from step 40 of an earlier run in the same directory"),
        (0, 0, ""),
        (None, None, ""),
    ],
)
def test_an_earlier_run(epoch: int | None, step: int | None, words: str) -> None:
    assert earlier_run(epoch, step) == words


@pytest.mark.parametrize(
    ("finished", "lingering", "words"),
    [
        ([], [], ""),
        (["a"], [], "; a has finished"),
        (["a", "b", "c"], [], "; a, b, c have finished"),
        (["a", "b", "c", "d"], [], "; a, b, c and 1 more have finished"),
        (["a", "b"], ["c"], "; a, b have finished; a thread of the finished program still runs in c"),
    ],
)
def test_members_that_are_done_before_the_others(finished: list[str], lingering: list[str], words: str) -> None:
    assert done_before(finished, lingering) == words


def test_members_that_ended_before_the_others_had_started() -> None:
    assert exited_early(["a"]) == "a exited with code 0 before the others had started"

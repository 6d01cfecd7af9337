"""The progress page: what a training process writes is what the launcher reads, whatever either of them does."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tftraining.launch.in_user_process import progress_page
from tftraining.launch.in_user_process.claim import Claim
from tftraining.launch.in_user_process.progress_page import Writer
from tftraining.launch.in_user_process.tracker import Tracker
from tftraining.launch.process import progress_reader
from tftraining.launch.progress import Snapshot


class Page:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = progress_reader.create(path)

    def read(self) -> Snapshot:
        return progress_reader.read(self.fd)

    def tracker(self) -> Tracker:
        return Tracker(str(self.path))


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Page]:
    shared = Page(tmp_path / "page")
    yield shared
    os.close(shared.fd)


def train(tracker: Tracker, epochs: range, steps: int, done: int = 0, stride: int = 1) -> None:
    """As Keras goes through a training."""
    tracker.begin(done, epochs.stop, steps)
    for epoch in epochs:
        tracker.begin_epoch(epoch, done, steps)
        for batch in range(0, steps, stride):
            tracker.begin_batch(batch)
            tracker.end_batch(batch + stride - 1)
        done += steps
        tracker.end_epoch({"loss": 1 / (epoch + 1)})
    tracker.end(epochs.stop)


def test_an_empty_page_tells_nothing(shared: Page) -> None:
    assert shared.read() == Snapshot()
    assert progress_reader.stack_pid(shared.fd) is None


def test_who_dials_its_peers_tells_so_before_it_tells_anything_else(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.connects(True)
    assert shared.read() == Snapshot(connecting=True)
    tracker.begin(0, 1, 1)
    assert shared.read().connecting
    tracker.connects(False)
    assert not shared.read().connecting


def test_a_training_from_its_beginning(shared: Page) -> None:
    train(shared.tracker(), range(3), 5)
    now = shared.read()
    assert (now.epoch, now.epochs, now.step, now.steps_per_epoch) == (3, 3, 15, 5)
    assert (now.first_epoch, now.first_step) == (0, 0)
    assert now.metrics == {"loss": 1 / 3}
    assert now.first_step_time is not None
    assert now.last_step_time is not None
    assert now.first_step_time < now.last_step_time


def test_a_training_that_goes_on(shared: Page) -> None:
    train(shared.tracker(), range(2, 4), 70, done=140)
    now = shared.read()
    assert (now.first_epoch, now.first_step, now.step) == (2, 140, 280)


def test_a_training_that_goes_on_in_the_middle_of_an_epoch(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.begin(155, 4, 70)
    tracker.begin_epoch(2, 155, 70)
    tracker.begin_batch(15)
    tracker.end_batch(15)
    assert (shared.read().first_step, shared.read().step) == (155, 156)


def test_a_training_that_was_done_already(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.begin(210, 3, 70)
    tracker.end(3)
    now = shared.read()
    assert (now.epoch, now.first_epoch, now.first_step) == (3, 3, 210)
    assert now.first_step_time is not None, "it trains: there is nothing left to wait for"


def test_several_steps_an_execution(shared: Page) -> None:
    train(shared.tracker(), range(2), 20, stride=5)
    assert shared.read().step == 40


def test_a_second_fit_does_not_move_the_beginning_of_the_round(shared: Page) -> None:
    tracker = shared.tracker()
    train(tracker, range(1, 2), 10, done=10)
    train(tracker, range(3), 4, done=20)
    now = shared.read()
    assert (now.first_epoch, now.first_step, now.step, now.epoch) == (1, 10, 32, 3)


def test_without_an_optimizer_the_batches_count(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.begin(None, 2, 3)
    for epoch in range(2):
        tracker.begin_epoch(epoch, None, 3)
        for batch in range(3):
            tracker.begin_batch(batch)
            tracker.end_batch(batch)
    assert shared.read().step == 6


def test_the_speed_of_steps(shared: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    writer = Writer(str(shared.path))
    writer.begin(None)
    for step in range(1, 31):
        clock[0] += 0.125 if step > 1 else 30
        writer.stepped(step)
    assert shared.read().steps_per_second == 8


def test_reports_of_a_custom_loop(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.report(1001, 3, 10, None)
    tracker.report(1002, None, None, {"loss": 0.5, "bad": float("nan"), "text": "x"})
    now = shared.read()
    assert (now.step, now.epoch, now.epochs, now.first_step, now.first_epoch) == (1002, 3, 10, 1000, 2)
    assert now.metrics == {"loss": 0.5}


def test_checkpoints_of_a_custom_loop(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.begin(20, None, None)
    assert shared.read().checkpoint is None
    tracker.report(24, None, None, None)
    tracker.saved(24)
    tracker.report(25, None, None, None)
    assert (shared.read().checkpoint, shared.read().step, shared.read().first_step) == (24, 25, 20)


def test_a_loop_that_tells_its_checkpoints_only_makes_steps(shared: Page) -> None:
    tracker = shared.tracker()
    for step in (100, 200):
        tracker.saved(step)
    told = shared.read()
    assert (told.checkpoint, told.step, told.epoch, told.first_step) == (200, 200, None, None)
    assert told.first_step_time is not None


def reporting(shared: Page, step: int) -> int:
    """Another process that has reported this step, and lives on."""
    told, tell = os.pipe()
    other = os.fork()
    if not other:
        shared.tracker().report(step, None, None, None)
        os.write(tell, b"x")
        threading.Event().wait()
    os.close(tell)
    assert os.read(told, 1) == b"x"
    os.close(told)
    return other


def test_the_first_process_that_reports_has_the_page_as_long_as_it_lives(shared: Page) -> None:
    other = reporting(shared, 5)
    try:
        tracker = shared.tracker()
        tracker.report(99, None, None, None)
        tracker.connects(True)
        tracker.lists_gpus(lambda: 2)
        assert (shared.read().step, shared.read().connecting) == (5, False)
        assert progress_reader.gpus(shared.fd) is None
        assert progress_reader.stack_pid(shared.fd) == other
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)
    tracker.report(99, None, None, None)
    assert (shared.read().step, progress_reader.gpus(shared.fd)) == (99, 2)
    assert shared.read().first_step == 4, "the round began with what the first one has told"
    assert progress_reader.stack_pid(shared.fd) == os.getpid()


def test_a_process_whose_parent_only_looked_reports(shared: Page) -> None:
    tracker = shared.tracker()
    child = os.fork()
    if not child:
        tracker.report(7, None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.read().step == 7


def test_who_has_the_page_has_it_until_it_executes_another_program(shared: Page) -> None:
    told, tell = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if not child:
        claim = Claim(str(shared.path))
        os.write(tell, b"%d" % claim.holds())
        os.read(wait, 1)
        os.dup2(tell, 1)
        os.execvp("sh", ["sh", "-c", "echo executed; exec sleep 600"])
    try:
        assert os.read(told, 1) == b"1"
        assert not Claim(str(shared.path)).holds()
        os.write(go, b"x")
        assert os.read(told, 100) == b"executed\n"
        assert Claim(str(shared.path)).holds()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        for fd in (told, tell, wait, go):
            os.close(fd)


def test_who_dials_its_peers_takes_part_whoever_has_the_page(shared: Page) -> None:
    other = reporting(shared, 5)
    try:
        claim = Claim(str(shared.path))
        assert not claim.takes_part()
        claim.dials()
        assert claim.takes_part()
        assert not claim.holds()
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)


def test_where_nothing_can_be_locked_nobody_is_refused(tmp_path: Path) -> None:
    assert Claim(str(tmp_path / "not there")).holds()


@pytest.mark.parametrize(("variable", "shown"), [("TF_X", "TF_X"), ("X" * 70, "X" * 48), ("ä\n\udcff", "ä??")])
def test_a_program_that_has_to_be_started_plainly(shared: Page, variable: str, shown: str) -> None:
    assert progress_reader.changed(shared.fd) == ""
    Writer(str(shared.path)).has_changed(variable)
    assert progress_reader.changed(shared.fd) == shown


def test_a_fork_of_the_program_reports_nothing(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.report(1, None, None, None)
    child = os.fork()
    if not child:
        tracker.report(99, None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.read().step == 1


def test_errors_end_the_reports_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = Tracker(str(tmp_path / "not there"))
    for _ in range(3):
        train(tracker, range(2), 3)
        tracker.report(1, 1, 1, {"loss": 1})
    assert capsys.readouterr().err.count("\n") == 1


def test_wrong_reports_do_not_raise(shared: Page, capsys: pytest.CaptureFixture[str]) -> None:
    shared.tracker().report("five", None, None, None)  # type: ignore[arg-type]
    assert "progress reports stopped: ValueError" in capsys.readouterr().err


def test_a_page_that_is_destroyed_is_an_empty_one(shared: Page) -> None:
    train(shared.tracker(), range(1), 3)
    os.pwrite(shared.fd, b"garbage!", 0)
    assert shared.read() == Snapshot()
    os.ftruncate(shared.fd, 10)
    assert shared.read() == Snapshot()
    assert progress_reader.stack_pid(shared.fd) is None


@pytest.mark.parametrize("pid", [-(2**63), -1, 0, 2**22, 2**40])
def test_what_is_no_process_gets_no_signal(shared: Page, pid: int) -> None:
    os.pwrite(shared.fd, progress_page.PIDS.pack(0, os.getpid()), progress_page.PIDS_AT)
    assert progress_reader.stack_pid(shared.fd) == os.getpid()
    os.pwrite(shared.fd, progress_page.PIDS.pack(0, pid), progress_page.PIDS_AT)
    assert progress_reader.stack_pid(shared.fd) is None


def test_any_bytes_can_be_read(shared: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_reader, "PAUSE_SECONDS", 0)  # nobody writes: half of these look unfinished for ever
    source = random.Random(1)
    for _ in range(300):
        os.pwrite(shared.fd, source.randbytes(400), 8)
        assert isinstance(shared.read(), Snapshot)


def test_what_is_read_is_consistent_while_it_is_written(shared: Page) -> None:
    child = os.fork()
    if not child:
        writer = Writer(str(shared.path))
        writer.begin(None)
        while True:
            writer.step = writer.epoch = writer.step + 1
            writer.write({"loss": writer.step})
            time.sleep(0.0001)
    try:
        torn = 0
        for _ in range(2000):
            now = shared.read()
            told = (now.step or 0, now.epoch or 0, now.metrics.get("loss", now.step or 0))
            assert max(told) - min(told) <= 1
            torn += len(set(told)) > 1
        # Without a sequence number every tenth would be; on a busy machine the writer may lose its processor for long.
        assert torn <= 10
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_writer_that_died_in_the_middle_is_read_and_followed(shared: Page) -> None:
    train(shared.tracker(), range(1), 3)
    os.pwrite(shared.fd, progress_page.SEQUENCE.pack(7), progress_page.SEQUENCE_AT)
    assert shared.read().step == 3
    writer = Writer(str(shared.path))
    writer.step = 4
    writer.write()
    assert os.pread(shared.fd, 8, progress_page.SEQUENCE_AT) == progress_page.SEQUENCE.pack(8)

"""The progress page: the launcher reads what the training process has written."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import tftraining
from tftraining import memory_backup
from tftraining.launch.in_user_process import progress_page
from tftraining.launch.in_user_process.claim import Claim
from tftraining.launch.in_user_process.progress_page import PageWriter
from tftraining.launch.in_user_process.tracker import Tracker
from tftraining.launch.process import progress_reader
from tftraining.launch.progress import Snapshot, fit_step, lost_steps, resumed_step, to_status


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
    """As Keras goes through a `fit` that counts its steps."""
    tracker.begin_fit(done, epochs.stop, steps)
    for epoch in epochs:
        tracker.begin_epoch(epoch, done, steps)
        for batch in range(0, steps, stride):
            tracker.begin_batch(batch)
            tracker.end_batch(batch + stride - 1)
        done += steps
        tracker.end_epoch({"loss": 1 / (epoch + 1)})
    tracker.end(epochs.stop)


def test_an_empty_page_has_no_progress(shared: Page) -> None:
    assert shared.read() == Snapshot()
    assert progress_reader.read_stack_pid(shared.fd) is None


def test_connecting_to_peers_is_the_first_report(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.record_connecting(True)
    assert shared.read() == Snapshot(connecting=True)
    tracker.begin(0, 1, 1)
    assert shared.read().connecting
    tracker.record_connecting(False)
    assert not shared.read().connecting


def test_progress_of_a_new_training(shared: Page) -> None:
    train(shared.tracker(), range(3), 5)
    now = shared.read()
    assert (now.epoch, now.epochs, now.step, now.steps_per_epoch) == (3, 3, 15, 5)
    assert (now.first_epoch, now.first_step) == (0, 0)
    assert now.metrics == {"loss": 1 / 3}
    assert now.first_step_time is not None
    assert now.last_step_time is not None
    assert now.first_step_time < now.last_step_time


def test_progress_of_a_resumed_training(shared: Page) -> None:
    train(shared.tracker(), range(2, 4), 70, done=140)
    now = shared.read()
    assert (now.first_epoch, now.first_step, now.step) == (2, 140, 280)


def test_progress_of_a_training_resumed_inside_an_epoch(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.begin_fit(155, 4, 70)
    tracker.begin_epoch(2, 155, 70)
    tracker.begin_batch(15)
    tracker.end_batch(15)
    assert (shared.read().first_step, shared.read().step) == (155, 156)


def test_progress_of_a_training_that_was_done_already(shared: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    restored(shared.tracker(), 3, 210)
    now = shared.read()
    assert (now.epoch, now.first_epoch, now.first_step) == (3, 3, 210)
    assert now.first_step_time is None, "another fit may follow, which resumes"
    monkeypatch.setattr(progress_reader, "RESTORED_SECONDS", 0)
    now = shared.read()
    assert now.first_step_time is not None, "it trains: there is nothing left to wait for"


def test_progress_with_several_steps_per_execution(shared: Page) -> None:
    train(shared.tracker(), range(2), 20, stride=5)
    assert shared.read().step == 40


def restored(tracker: Tracker, epochs: int, done: int) -> None:
    """A `fit` whose end is restored: it trains nothing."""
    tracker.begin_fit(done, epochs, done // epochs)
    tracker.end(epochs)


def test_a_second_fit_counts_its_own_steps_and_keeps_the_first_step_of_the_round(shared: Page) -> None:
    tracker = shared.tracker()
    train(tracker, range(1, 2), 10, done=10)
    train(tracker, range(3), 4)
    now = shared.read()
    assert (now.first_epoch, resumed_step(now), now.epoch) == (1, 10, 3)
    assert (fit_step(now), now.step) == (12, 32), "the steps of the program rise"


def test_a_round_resumes_in_the_second_fit_behind_one_whose_end_was_restored(shared: Page) -> None:
    tracker = shared.tracker()
    restored(tracker, 3, 120)
    assert (shared.read().first_epoch, resumed_step(shared.read())) == (3, 120)
    tracker.begin_fit(40, 5, 16)
    tracker.saved_fit(40)
    tracker.begin_epoch(2, 40, 16)
    now = shared.read()
    assert (now.first_step_time, now.first_epoch, now.first_step) == (None, 2, 160)
    tracker.begin_batch(8)
    tracker.end_batch(8)
    now = shared.read()
    assert (resumed_step(now), fit_step(now)) == (40, 41)
    told = to_status(now) or {}
    assert (told["firstStep"], told["step"], told["checkpoint"]) == (40, 41, 160), "a newer checkpoint is progress"
    assert now.first_step_time is not None
    assert lost_steps(185, 120, now) == 25


def test_fits_that_are_trained_again_count_as_lost_though_a_later_one_resumes(shared: Page) -> None:
    """Three fits of 50 steps and 46 of the fourth were made; the fourth resumes at its step 20."""
    tracker = shared.tracker()
    for _ in range(3):
        train(tracker, range(2), 25)
    assert (lost_steps(196, 150, shared.read()), resumed_step(shared.read())) == (196, 0)
    tracker.begin_fit(20, 4, 25)
    tracker.begin_epoch(0, 20, 25)
    now = shared.read()
    assert now.fit == 4
    assert (resumed_step(now), now.first_epoch, now.made_before) == (20, 0, 150)
    assert lost_steps(196, 150, now) == 176


def test_a_finished_fit_behind_one_that_is_trained_again_is_not_lost(shared: Page) -> None:
    tracker = shared.tracker()
    train(tracker, range(2), 25)
    restored(tracker, 2, 50)
    train(tracker, range(1), 25)
    now = shared.read()
    assert (now.step, now.first_step, now.made_before) == (125, 100, 50)
    assert lost_steps(146, 100, now) == 50 + 46


def test_a_fit_that_has_nothing_to_do_resumes_nowhere(shared: Page) -> None:
    tracker = shared.tracker()
    train(tracker, range(2), 25)
    tracker.begin_fit(0, 2, 25)
    tracker.end(2)
    assert (shared.read().step, resumed_step(shared.read()), shared.read().fit) == (50, 0, 2)


def test_a_program_that_has_restored_its_end_and_ended_has_trained(shared: Page) -> None:
    child = os.fork()
    if not child:
        restored(shared.tracker(), 3, 120)
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.read().first_step_time is not None


def test_a_round_resumes_at_the_restored_end_of_a_fit_if_the_next_one_begins_anew(shared: Page) -> None:
    tracker = shared.tracker()
    restored(tracker, 3, 120)
    train(tracker, range(1), 16)
    now = shared.read()
    assert (now.first_epoch, now.first_step, fit_step(now)) == (3, 120, 16)
    assert lost_steps(185, 120, now) == 65


@pytest.mark.parametrize("told", [0, None])  # by tf_keras with an initial_epoch, by Keras 3
def test_a_fit_that_counts_no_earlier_epochs_begins_behind_them(shared: Page, told: int | None) -> None:
    tracker = shared.tracker()
    tracker.begin_fit(told, 3, 4)
    tracker.begin_epoch(2, told, 4)
    assert (shared.read().first_epoch, shared.read().first_step) == (2, 8)
    tracker.begin_batch(0)
    tracker.end_batch(0)
    assert fit_step(shared.read()) == 9


def test_a_fit_with_an_initial_epoch_goes_on_with_the_one_before(shared: Page) -> None:
    tracker = shared.tracker()
    for epoch in range(4):
        tracker.begin_fit(0, epoch + 1, 5)
        tracker.begin_epoch(epoch, 0, 5)
        for batch in range(5):
            tracker.begin_batch(batch)
            tracker.end_batch(batch)
        tracker.end(epoch + 1)
    now = shared.read()
    assert (fit_step(now), now.step, now.first_step) == (20, 20, 0)


def test_the_restored_end_of_a_fit_that_counts_no_steps_is_behind_all_epochs(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.begin_fit(None, 5, 6)
    tracker.end(5)
    now = shared.read()
    assert (now.step, now.first_step, now.first_epoch) == (30, 30, 5)


def test_a_fit_that_cannot_be_counted_reports_nothing(shared: Page) -> None:
    tracker = shared.tracker()
    tracker.report(7, None, None, None)
    tracker.leave_fit()
    tracker.begin_epoch(0, 0, 5)
    tracker.end_batch(3)
    tracker.end_epoch({"loss": 1})
    assert (shared.read().step, shared.read().epoch, shared.read().metrics) == (7, None, {})
    tracker.report(8, None, None, None)
    assert (shared.read().step, shared.read().first_step) == (8, 6)


@pytest.mark.parametrize(
    ("step", "fit_start", "resumed", "lost"),
    [
        (145, 80, Snapshot(first_step=120, first_fit_start=80), 25),
        (145, 80, Snapshot(first_step=40), 25),  # the program skips its first fit by itself
        (145, 80, Snapshot(first_step=0), 145),  # it trains the first fit again
        (145, 80, Snapshot(first_step=80, first_fit_start=80), 65),
        (65, 0, Snapshot(first_step=70), 0),
        (None, 0, Snapshot(first_step=70), None),
        (65, 0, Snapshot(), None),
    ],
)
def test_the_steps_that_a_round_has_to_make_again(
    step: int | None, fit_start: int, resumed: Snapshot, lost: int | None
) -> None:
    assert lost_steps(step, fit_start, resumed) == lost


def test_the_speed_of_steps(shared: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    writer = PageWriter(str(shared.path))
    writer.begin(None)
    for step in range(1, 31):
        clock[0] += 0.125 if step > 1 else 30
        writer.record_step(step)
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


def test_a_loop_that_restores_a_newer_state_after_its_begin_resumes_there(
    shared: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = SimpleNamespace(restore=lambda step: max(step, 480))
    monkeypatch.setattr(memory_backup, "_loop", lambda *_: loop)
    monkeypatch.setenv("TFTRAINING_PROGRESS", str(shared.path))
    monkeypatch.setattr(sys.modules["tftraining.report"], "_own", None)  # the function hides it
    assert tftraining.MemoryBackup(None).restore(400) == 480  # before `begin`, which has the number itself
    tftraining.begin(step=400, epochs=10)
    assert tftraining.MemoryBackup(None).restore(400) == 480
    assert (shared.read().first_step, shared.read().step, shared.read().epochs) == (480, 480, 10)
    tftraining.report(step=481)
    assert tftraining.MemoryBackup(None).restore(470) == 480  # of a second loop
    now = shared.read()
    assert (now.first_step, now.step, lost_steps(503, 0, now)) == (480, 481, 23)


def test_checkpoints_count_as_steps_if_the_loop_reports_nothing_else(shared: Page) -> None:
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


def test_the_first_process_that_reports_owns_the_page_until_it_ends(shared: Page) -> None:
    other = reporting(shared, 5)
    try:
        tracker = shared.tracker()
        tracker.report(99, None, None, None)
        tracker.record_connecting(True)
        tracker.record_gpus(lambda: 2)
        assert (shared.read().step, shared.read().connecting) == (5, False)
        assert progress_reader.read_gpu_count(shared.fd) is None
        assert progress_reader.read_stack_pid(shared.fd) == other
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)
    tracker.report(99, None, None, None)
    assert (shared.read().step, progress_reader.read_gpu_count(shared.fd)) == (99, 2)
    assert shared.read().first_step == 4, "the round began with what the first one has told"
    assert progress_reader.read_stack_pid(shared.fd) == os.getpid()


def test_a_child_of_a_process_without_reports_may_report(shared: Page) -> None:
    tracker = shared.tracker()
    child = os.fork()
    if not child:
        tracker.report(7, None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    assert shared.read().step == 7


def test_the_claim_ends_when_its_process_executes_another_program(shared: Page) -> None:
    told, tell = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if not child:
        claim = Claim(str(shared.path))
        os.write(tell, b"%d" % claim.try_hold())
        os.read(wait, 1)
        os.dup2(tell, 1)
        os.execvp("sh", ["sh", "-c", "echo executed; exec sleep 600"])
    try:
        assert os.read(told, 1) == b"1"
        assert not Claim(str(shared.path)).try_hold()
        os.write(go, b"x")
        assert os.read(told, 100) == b"executed\n"
        assert Claim(str(shared.path)).try_hold()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        for fd in (told, tell, wait, go):
            os.close(fd)


def test_a_process_that_connects_takes_part_without_the_claim(shared: Page) -> None:
    other = reporting(shared, 5)
    try:
        claim = Claim(str(shared.path))
        assert not claim.takes_part()
        claim.note_connecting()
        assert claim.takes_part()
        assert not claim.try_hold()
    finally:
        os.kill(other, 9)
        os.waitpid(other, 0)


def test_without_file_locks_every_process_may_claim(tmp_path: Path) -> None:
    assert Claim(str(tmp_path / "not there")).try_hold()


@pytest.mark.parametrize(("variable", "shown"), [("TF_X", "TF_X"), ("X" * 70, "X" * 48), ("ä\n\udcff", "ä??")])
def test_the_page_names_the_variable_that_requires_a_plain_start(shared: Page, variable: str, shown: str) -> None:
    assert progress_reader.read_changed_variable(shared.fd) == ""
    PageWriter(str(shared.path)).record_changed_variable(variable)
    assert progress_reader.read_changed_variable(shared.fd) == shown


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


def test_invalid_reports_do_not_raise(shared: Page, capsys: pytest.CaptureFixture[str]) -> None:
    shared.tracker().report("five", None, None, None)  # type: ignore[arg-type]
    assert "progress reports stopped: ValueError" in capsys.readouterr().err


def test_a_destroyed_page_reads_as_empty(shared: Page) -> None:
    train(shared.tracker(), range(1), 3)
    os.pwrite(shared.fd, b"garbage!", 0)
    assert shared.read() == Snapshot()
    os.ftruncate(shared.fd, 10)
    assert shared.read() == Snapshot()
    assert progress_reader.read_stack_pid(shared.fd) is None


@pytest.mark.parametrize("pid", [-(2**63), -1, 0, 2**22, 2**40])
def test_an_invalid_pid_on_the_page_gets_no_signal(shared: Page, pid: int) -> None:
    os.pwrite(shared.fd, progress_page.PIDS.pack(0, os.getpid()), progress_page.PIDS_AT)
    assert progress_reader.read_stack_pid(shared.fd) == os.getpid()
    os.pwrite(shared.fd, progress_page.PIDS.pack(0, pid), progress_page.PIDS_AT)
    assert progress_reader.read_stack_pid(shared.fd) is None


def test_any_bytes_can_be_read(shared: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_reader, "PAUSE_SECONDS", 0)  # nobody writes: half of these look unfinished for ever
    source = random.Random(1)
    for _ in range(300):
        os.pwrite(shared.fd, source.randbytes(400), 8)
        assert isinstance(shared.read(), Snapshot)


def test_reads_during_writes_are_consistent(shared: Page) -> None:
    child = os.fork()
    if not child:
        writer = PageWriter(str(shared.path))
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


def test_a_writer_that_died_in_a_write_can_be_read_and_replaced(shared: Page) -> None:
    train(shared.tracker(), range(1), 3)
    os.pwrite(shared.fd, progress_page.SEQUENCE.pack(7), progress_page.SEQUENCE_AT)
    assert shared.read().step == 3
    writer = PageWriter(str(shared.path))
    writer.step = 4
    writer.write()
    assert os.pread(shared.fd, 8, progress_page.SEQUENCE_AT) == progress_page.SEQUENCE.pack(8)

"""The copies of any training: their files, what the launcher hears and asks for, and a loss that is no number."""

from __future__ import annotations

import json
import math
import struct
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tftraining.launch.in_user_process.memory_backup import copier, copy_file, copy_report, copy_request, room
from tftraining.launch.in_user_process.memory_backup.copier import Copier, LossIsNotFinite
from tftraining.launch.in_user_process.memory_backup.copy_file import HEAD, held
from tftraining.launch.in_user_process.memory_backup.replica_digest import ReplicaDigests
from tftraining.launch.in_user_process.memory_backup.settings import CopySettings

SIZE = 64


class State:
    """A number in place of variables, which may be told to be no finite one."""

    size = SIZE
    finite = False
    has_own = False  # values of each member
    draws = False  # random numbers that depend on the batch
    replicas = 1  # of this member
    looked_up = 0

    def __init__(self) -> None:
        self.value = 0
        self.calls: list[str] = []

    def complete(self) -> None:
        self.calls.append("complete")

    def grown(self) -> bool:
        return False

    def is_finite(self) -> bool:
        return self.finite

    def leave_averages(self) -> None:
        self.calls.append("leave averages")

    def draws_apart(self) -> bool:
        return self.draws

    def gather_draws(self) -> None:
        self.calls.append("gather draws")

    def gathers(self) -> bool:
        return self.has_own

    def gather(self, totals: Any) -> None:
        self.calls.append("gather")

    def views(self, buffer: Any, start: int) -> list[Any]:
        return [memoryview(buffer)[start : start + SIZE]]

    def copy_to(self, views: list[Any]) -> None:
        self.calls.append("copy")
        views[0][:] = bytes([self.value]) * SIZE

    def replicated(self, views: list[Any]) -> list[tuple[str, list[Any]]]:
        self.looked_up += 1
        arrays = [np.frombuffer(views[0], "uint8") for _ in range(self.replicas)]
        return [("weights", arrays)] if arrays else []

    def restore_from(self, views: list[Any], own: bool, all_own: bool) -> None:
        self.value, self.restored_as = views[0][0], (own, all_own)


def take_copy(copier: Copier, state: State) -> int:
    """Begin as a program does; the step of the restored copy, or 0."""
    copier.use(state, "this")
    copier.agree()
    found = copier.find()
    if copier.choose(found, newer=True) is not None and found is not None:
        copier.take(found)
    step = found.step if found is not None else 0
    copier.begin(step)
    return step


class Training:
    """A training of one member that makes a copy every second step; each value of its state is the step."""

    def __init__(self, directory: Path, number: int, log: list[str], told: dict[str, Any]) -> None:
        settings = json.dumps({"directory": str(directory), "percent": 1, **told})
        self.sums: list[list[float]] = []
        self.copier = Copier(CopySettings(settings, {"TFTRAINING_ROUND": str(number)}), 1, self.sum, list, log.append)
        self.directory, self.state = str(directory), State()
        self.step = take_copy(self.copier, self.state)
        self.copier.schedule.exponent = 1

    def sum(self, numbers: list[float]) -> list[float]:
        self.sums.append(numbers)
        if len(numbers) > 5 and not numbers[-1]:  # a vote: every second step, whatever this machine has measured
            return [float(place == 1) for place in range(len(numbers))]
        return numbers

    def train(self, steps: int, loss: float = 1.0, at_a_time: int = 1) -> Training:
        for _ in range(steps):
            before, self.step = self.step, self.step + at_a_time
            self.state.value = self.step
            due, asked = self.copier.due(before, self.step), self.copier.asked(before, self.step)
            if due:
                self.copier.copy(self.step, {}, loss)
            if asked:
                self.copier.answer(self.step, {}, loss)
        return self

    def held(self) -> list[int]:
        return [step for _, step in held(self.directory)]

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((Path(self.directory) / "report.json").read_text())
        return found


Begin = Callable[..., Training]


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def begin(tmp_path: Path, log: list[str]) -> Begin:
    """A function that begins a training in this round, with these settings."""
    return lambda number=1, **told: Training(tmp_path, number, log, told)


def test_the_launcher_hears_of_each_copy(begin: Begin) -> None:
    training = begin()
    assert training.report() == {"round": 1, "on": False, "reason": "", "resumed": None, "epochResumed": "", "begun": 0}
    training.train(5)
    told = training.report()
    assert told.pop("time") == pytest.approx(time.time(), abs=60)
    assert 0 < told.pop("seconds") <= told.pop("blockedSeconds")
    assert told == {
        "round": 1,
        "on": True,
        "reason": "",
        "resumed": None,
        "epochResumed": "",
        "begun": 0,
        "step": 4,
        "bytes": HEAD + SIZE,
        "interval": 2,
    }
    training.copier.end("")
    assert training.report()["reason"] == "the training has ended"
    assert "step" not in training.report()
    assert training.held() == []


def test_a_report_that_cannot_be_written_disturbs_nothing(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "report.json.new").mkdir()
    assert begin().train(4).held() == [2, 4]


def test_after_a_restore_the_copy_before_it_stays_until_the_next_one(begin: Begin) -> None:
    begin().train(5)
    resumed = begin(2, restore=[1, 4], source="Peer")
    assert resumed.state.value == 4
    assert resumed.report()["resumed"] == {"from": "Peer", "step": 4}
    assert resumed.report()["step"] == 4
    assert resumed.train(1).held() == [2, 4]
    assert resumed.train(1).held() == [4, 6]
    assert held(resumed.directory) == [(1, 4), (2, 6)]


def test_what_is_newer_than_the_restored_copy_goes(begin: Begin) -> None:
    begin().train(5)
    resumed = begin(2, restore=[1, 2])
    assert resumed.held() == [2]
    assert resumed.train(4).held() == [4, 6]


def test_a_copy_of_another_size_is_not_kept(begin: Begin, tmp_path: Path) -> None:
    begin().train(5)
    with (tmp_path / "copy-1-2").open("ab") as file:
        file.write(b"more")
    assert begin(2, restore=[1, 4]).train(2).held() == [4, 6]
    assert {path.stat().st_size for path in tmp_path.glob("copy-*")} == {HEAD + SIZE}


def test_a_copy_that_is_smaller_than_the_state_is_not_restored(
    begin: Begin, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin().train(4)
    monkeypatch.setattr(State, "size", SIZE + 1)
    assert begin(2, restore=[1, 4]).copier.resumed is None
    assert log == ["the copy in memory is of another training or another program"]


# The launcher fetches the copy from another member.


def test_a_copy_that_is_being_fetched_is_waited_for(begin: Begin, tmp_path: Path) -> None:
    begin().train(4)
    (tmp_path / "copy-1-4").rename(tmp_path / "fetch-1")
    later = threading.Timer(0.2, (tmp_path / "fetch-1").rename, [tmp_path / "copy-1-4"])
    later.start()
    assert begin(2, restore=[1, 4], source="Peer", fetching=True).state.value == 4
    later.join()


def test_a_later_training_of_the_process_does_not_wait_for_it_again(begin: Begin, log: list[str]) -> None:
    begin().train(4)
    first = begin(2, restore=[1, 4], source="Peer", fetching=True).train(6)
    assert first.step == 10 and (1, 4) not in held(first.directory)
    begun = time.monotonic()
    assert begin(2, restore=[1, 4], source="Peer", fetching=True).copier.resumed is None
    assert time.monotonic() - begun < 60 and log == []


@pytest.mark.parametrize("fails", [True, False])
def test_a_copy_that_does_not_come_is_not_restored(
    begin: Begin, tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(copier, "FETCH_SECONDS", 60.0 if fails else 0.1)
    if fails:
        (tmp_path / "failed-1-4").touch()
    training = begin(2, restore=[1, 4], source="Peer", fetching=True)
    assert training.copier.resumed is None
    assert log == ["the copy of step 4 could not be fetched from another member"]
    assert training.train(2).held() == [2]
    assert not (tmp_path / "failed-1-4").exists()


def test_rubbish_that_was_fetched_is_not_restored(begin: Begin, tmp_path: Path, log: list[str]) -> None:
    for content in (b"", b"rubbish" * 10_000, copy_file.MAGIC + b"\xff" * 10_000):
        (tmp_path / "copy-1-4").write_bytes(content)
        assert begin(2, restore=[1, 4]).copier.resumed is None
        assert log.pop().startswith("the copy in memory cannot be read: ")


# Whether there is memory.


@pytest.mark.parametrize(("epoch", "copies"), [(None, [6]), (3, [4, 6])])
def test_the_first_copy_waits_for_so_many_steps_or_the_end_of_an_epoch(
    begin: Begin, epoch: int | None, copies: list[int]
) -> None:
    training = begin(waitSteps=6, memoryLimit=None, sizeLimit=1 << 20)
    assert training.report()["reason"] == "waits for the end of an epoch, or 6 steps"
    assert training.train(3).held() == []
    if epoch is not None:
        training.copier.schedule.end_wait()
    assert training.train(3).held() == copies
    assert training.report()["on"] is True


def test_a_training_that_has_resumed_from_a_copy_waits_for_nothing(begin: Begin) -> None:
    begin().train(4)
    assert begin(2, restore=[1, 4], waitSteps=100, memoryLimit=None, sizeLimit=1 << 20).train(2).held() == [4, 6]


@pytest.mark.parametrize(
    ("memory", "size", "why"),
    [
        (None, None, "no memory limit: set spec.launcher.memoryBackup.sizeLimit"),
        (None, 16_000, "two copies need 0 MiB, and sizeLimit is 0 MiB"),
        (1 << 20, None, "two copies need 0 MiB, more than half of what is left: the limit is 1 MiB, the peak "),
    ],
)
def test_without_memory_there_are_no_copies_and_the_reason_is_told(
    begin: Begin, log: list[str], memory: int | None, size: int | None, why: str
) -> None:
    training = begin(memoryLimit=memory, sizeLimit=size).train(4)
    assert training.held() == []
    assert not training.report()["on"]
    assert training.report()["reason"].startswith(why)
    assert log[-1].startswith(f"no backups in memory: {why}")


def test_the_files_go_when_memory_gets_short(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    training = begin(memoryLimit=None, sizeLimit=1 << 20).train(3)
    assert training.held() == [2]
    monkeypatch.setattr(room, "shortage", lambda *_: "memory is short: ...")
    training.train(3)  # copy 2 is followed by a vote
    assert training.held() == []
    assert training.report()["reason"] == "memory is short: ..."


# A stop that the launcher announces.


def ask(directory: Path, step: int) -> None:
    """What the launcher does: in place, because the program has the file mapped."""
    with (directory / "request").open("r+b" if (directory / "request").exists() else "wb") as file:
        file.write(struct.pack("<Q", step))


def take_back_after(directory: Path, seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, ask, [directory, 0])
    timer.start()
    return timer


@pytest.mark.parametrize(
    ("at_a_time", "asked", "copies"),
    [(1, 5, [4, 5]), (1, 4, [2, 4]), (3, 4, [3, 6]), (3, 5, [3, 6])],
)
def test_the_step_that_is_asked_for_is_copied_and_nothing_follows(
    begin: Begin, tmp_path: Path, at_a_time: int, asked: int, copies: list[int]
) -> None:
    ask(tmp_path, 0)
    training = begin()
    ask(tmp_path, asked)
    thread = threading.Thread(target=training.train, args=[6], kwargs={"at_a_time": at_a_time})
    thread.start()
    time.sleep(0.3)
    assert (training.step, training.held()) == (copies[-1], copies)
    assert training.report()["step"] == copies[-1]
    ask(tmp_path, 0)
    thread.join()
    assert training.step == 6 * at_a_time


def test_a_step_that_has_passed_is_not_waited_at(begin: Begin, tmp_path: Path) -> None:
    ask(tmp_path, 0)
    training = begin().train(3)
    ask(tmp_path, 3)
    begun = time.monotonic()
    assert training.train(2).held() == [2, 4]
    assert time.monotonic() - begun < copy_request.HOLD_SECONDS / 2


def test_if_the_training_goes_on_the_others_newest_copy_is_kept_until_the_next_one(
    begin: Begin, tmp_path: Path
) -> None:
    """Another member may have heard of the request too late, and holds 2 and 4: they must share one at any time."""
    ask(tmp_path, 0)
    training = begin().train(4)
    ask(tmp_path, 5)
    timer = take_back_after(tmp_path, 0.2)
    assert training.train(1).held() == [4, 5]
    assert training.train(1).held() == [4, 6]
    timer.join()


def test_a_request_before_the_memory_is_judged_is_answered(begin: Begin, tmp_path: Path) -> None:
    ask(tmp_path, 0)
    training = begin(waitSteps=10, memoryLimit=None, sizeLimit=1 << 20)
    ask(tmp_path, 3)
    timer = take_back_after(tmp_path, 0.2)
    assert training.train(4).held() == [3]
    assert len(training.sums) == 2  # those of the begin: the other members need not have heard it
    assert training.train(10).held() == [12, 14]
    timer.join()


def test_a_copy_at_an_announced_stop_has_the_own_values_of_all_members(begin: Begin, tmp_path: Path) -> None:
    ask(tmp_path, 5)
    training = begin()
    training.state.has_own = True
    training.train(4)
    training.state.calls.clear()
    timer = take_back_after(tmp_path, 0.2)
    assert training.train(1).held() == [4, 5]
    assert training.state.calls == ["gather", "copy"]
    timer.join()


def test_a_member_without_memory_gives_its_own_values_all_the_same(begin: Begin, tmp_path: Path) -> None:
    ask(tmp_path, 5)
    training = begin()
    training.state.has_own = True
    training.train(4)
    training.state.calls.clear()
    training.copier.why_not = "no memory"
    timer = take_back_after(tmp_path, 0.2)
    training.train(1)
    assert training.state.calls == ["gather"]
    timer.join()


def test_a_request_before_all_have_judged_their_memory_gets_no_copy_that_lacks_their_own_values(
    begin: Begin, tmp_path: Path
) -> None:
    ask(tmp_path, 0)
    training = begin(waitSteps=10, memoryLimit=None, sizeLimit=1 << 20)
    training.state.has_own, training.copier._members = True, 2
    ask(tmp_path, 3)
    timer = take_back_after(tmp_path, 0.2)
    assert training.train(4).held() == []
    assert "gather" not in training.state.calls
    timer.join()


def test_a_request_without_memory_is_waited_for_without_a_copy(begin: Begin, tmp_path: Path) -> None:
    ask(tmp_path, 0)
    training = begin(waitSteps=10, memoryLimit=None, sizeLimit=1)
    ask(tmp_path, 3)
    timer = take_back_after(tmp_path, 0.2)
    assert training.train(3).held() == []
    assert training.report()["reason"] == "two copies need 0 MiB, and sizeLimit is 0 MiB"
    timer.join()


def test_a_launcher_that_forgets_the_request_stops_the_training_for_a_while_only(tmp_path: Path) -> None:
    ask(tmp_path, 5)
    begun = time.monotonic()
    copy_request.CopyRequest(str(tmp_path)).hold(0.05)
    assert time.monotonic() - begun >= 0.05


def test_an_older_launcher_asks_for_nothing(tmp_path: Path) -> None:
    request = copy_request.CopyRequest(str(tmp_path))
    assert request.step() == 0
    assert not request.is_for(0, 10**9)


# The loss.


@pytest.mark.parametrize(("loss", "name"), [(math.nan, "NaN"), (-math.inf, "infinite")])
def test_a_loss_that_is_no_number_right_after_a_restore_ends_the_program(begin: Begin, loss: float, name: str) -> None:
    begin().train(4)
    resumed = begin(2, restore=[1, 4])
    with pytest.raises(LossIsNotFinite) as caught:
        resumed.train(2, loss)
    after = "2 steps after the restore of the copy of step 4; that copy is dropped"
    assert str(caught.value) == f"tftraining: the loss is {name} {after}"
    assert resumed.held() == [2, 4]  # the launcher removes 4, and goes back to 2


def test_a_state_whose_loss_is_no_number_is_not_copied(begin: Begin) -> None:
    training = begin().train(4).train(4, math.nan)
    assert training.held() == [2, 4]
    assert not training.report()["on"]
    assert training.report()["reason"] == "the loss of step 8 is nan: the copies before it are kept"
    assert training.report()["step"] == 4
    assert training.train(2).held() == [4, 10]
    assert training.report()["on"]


def test_a_training_that_has_got_over_a_bad_loss_is_copied_and_goes_on(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(State, "finite", True)
    assert begin().train(4, math.nan).held() == [2, 4]
    assert begin(2, restore=[1, 4]).train(2, math.nan).held() == [4, 6]


@pytest.mark.parametrize(("loss", "calls"), [(1.0, ["gather", "copy"]), (math.nan, ["gather"])])
def test_a_member_that_makes_no_copy_gathers_like_the_others(begin: Begin, loss: float, calls: list[str]) -> None:
    training = begin().train(1)
    training.state.calls.clear()
    assert training.train(1, loss).state.calls == calls


@pytest.mark.parametrize("loss", [1.0, math.nan])
def test_the_members_vote_at_the_same_steps_whatever_their_loss(begin: Begin, loss: float) -> None:
    assert len(begin().train(16, loss).sums) == 6  # twice at the begin, the memory, and after 2, 4 and 8 copies


def gang_of_three(place: Path, others: list[float], **told: Any) -> Copier:
    """One of three members; `others` is what the other two have said, all of it together."""

    def sums(numbers: list[float]) -> list[float]:
        return [*(one + other for one, other in zip(numbers, others, strict=False)), 0.0]  # more than was asked

    settings = json.dumps({"directory": str(place), "percent": 1, **told})
    return Copier(CopySettings(settings, {"TFTRAINING_ROUND": "2"}), 3, sums, list, print)


@pytest.mark.parametrize(
    ("vote", "others", "agreed", "told"),
    [(1.0, [2, 1, 2], True, 2), (1.0, [1, 2, 2], False, 3), (0.0, [2, 0, 2], True, 0)],
)
def test_all_members_hear_every_vote_and_copy_only_if_all_can(
    tmp_path: Path, vote: float, others: list[float], agreed: bool, told: float
) -> None:
    own = gang_of_three(tmp_path, others)
    assert (own.agree([vote]), own.agreed) == ([told], agreed)
    assert own.why_not == ("" if agreed else "another member cannot")


@pytest.mark.parametrize(("others", "calls"), [([2, 0, 2], []), ([2, 0, 1], ["leave averages"])])
def test_with_a_member_of_an_earlier_version_no_averages_are_gathered(
    tmp_path: Path, others: list[float], calls: list[str]
) -> None:
    own, state = gang_of_three(tmp_path, others), State()
    own.use(state, "this")
    own.agree([0.0])
    assert (own.agreed, state.calls) == (True, calls)


@pytest.mark.parametrize(
    ("draws", "others", "gathers"),
    [
        (True, [2.0, 0.0, 2.0], True),
        (False, [2.0, 1.0, 2.0], True),  # another member says so: all gather, or none
        (False, [2.0, 0.0, 2.0], False),
        (True, [2.0, 1.0, 1.0], False),  # a program of an earlier launcher could not take part
    ],
)
def test_all_gather_how_many_random_numbers_each_has_drawn_or_none_does(
    tmp_path: Path, draws: bool, others: list[float], gathers: bool
) -> None:
    own, state = gang_of_three(tmp_path, [2.0, 2.0]), State()
    own.use(state, "this")
    own.agree()
    own.begin(0)
    own.schedule.end_wait()
    own.schedule.exponent, state.draws = 1, draws
    own.sums = lambda numbers: [mine + other for mine, other in zip(numbers, others, strict=False)]
    own.due(1, 2)
    assert ("gather draws" in state.calls) == gathers and own.agreed


FOUND: Any = types.SimpleNamespace(exponent=5, head={"workers": 3})  # what `choose` uses of a copy


@pytest.mark.parametrize("newer", [1, 3])  # members that know the storage: the chief of `fit`, or all in a custom loop
def test_the_interval_of_the_copy_is_kept_whoever_tells_it(tmp_path: Path, newer: int) -> None:
    others = newer - 1
    own = gang_of_three(tmp_path, [2, others, 7 * others, 5 * others, 2])
    assert own.choose(FOUND, True, 7) == 7
    assert own.schedule.exponent == 5


@pytest.mark.parametrize(
    ("found", "newer", "others"),
    [(None, False, [2, 1, 7, 5, 2]), (FOUND, True, [1, 0, 0, 0, 2]), (FOUND, False, [2, 0, 0, 0, 2])],
)
def test_none_restores_a_copy_that_one_lacks_or_that_is_older_than_the_storage(
    tmp_path: Path, found: Any, newer: bool, others: list[float]
) -> None:
    assert gang_of_three(tmp_path, others).choose(found, newer) is None


@pytest.mark.parametrize(
    ("origin", "own_copies", "workers", "restored_as"),
    [
        (("Memory", "worker-0"), 2, 3, (True, True)),
        (("Memory", "worker-0"), 1, 3, (True, False)),
        (("Memory", "worker-1"), 2, 3, (False, False)),  # it was fetched in an earlier round
        (("Peer", "worker-1"), 2, 3, (False, False)),
        (("Memory", "worker-0"), 2, 4, (True, False)),  # a gang that has shrunk: one member's part is nobody's
    ],
)
def test_the_state_hears_who_has_made_the_copies(
    log: list[str], tmp_path: Path, origin: tuple[str, str], own_copies: int, workers: int, restored_as: Any
) -> None:
    source, maker = origin
    (tmp_path / maker).mkdir()
    written = Training(tmp_path / maker, 1, log, {}).train(1)
    written.copier._members = workers  # what the head says
    written.train(1)
    (tmp_path / maker).rename(tmp_path / "worker-0")
    others = [2.0, 2, 0, 8, own_copies]
    member, state = gang_of_three(tmp_path / "worker-0", others, restore=[1, 2], source=source), State()
    assert take_copy(member, state) == 2
    assert state.restored_as == restored_as


# What tells whether the replicas hold the same.


def test_the_digests_of_each_copy_are_told_where_there_are_several_replicas(begin: Begin) -> None:
    training = begin()
    training.state.replicas = 2
    told = training.train(6).report()
    assert list(told["digests"]) == ["2", "4", "6"] and told["summary"] is None
    assert all(len(each) == 2 and each[0] == each[1] for each in told["digests"].values())
    assert len({each[0] for each in told["digests"].values()}) == 3
    assert training.state.looked_up == copy_file.SLOTS, "what they are is looked up once a file"
    training.copier.end("")
    assert not {"digests", "summary"} & training.report().keys()


@pytest.mark.parametrize("copies", [1, 10, 100])
def test_heartbeats_with_so_many_copies_between_them_tell_common_steps(tmp_path: Path, copies: int) -> None:
    told, report = [], copy_report.CopyReport(str(tmp_path), 1)
    for step in range(16, 16 * 600, 16):
        report.note_digests(step, [str(step)], None)
        told.append({int(each) for each in report._fields["digests"]})
    assert max(map(len, told)) <= 16
    common = {step for step in range(16, 16 * 400, 16) if step % (16 << copies.bit_length()) == 0}
    for phase in range(0, copies, 7):
        assert common <= set().union(*told[phase::copies])


def test_one_replica_is_compared_with_nothing(begin: Begin) -> None:
    assert "digests" not in begin().train(6).report()


def test_a_summary_is_made_once_of_the_first_copy_behind_the_step(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "request").write_bytes(bytes(16))
    training = begin()
    training.state.replicas = 2
    training.train(4)
    (tmp_path / "request").write_bytes(struct.pack("<QQ", 0, 7))
    assert training.train(2).report()["summary"] is None
    summary = training.train(2).report()["summary"]
    assert (summary["step"], summary["replicas"]) == (8, 2)
    assert training.train(2).report()["summary"] is None


@pytest.mark.parametrize(("step", "of"), [(6, 6), (4, 4), (2, 8)], ids=["newest", "the one before", "overwritten"])
def test_a_summary_is_of_the_copy_that_is_asked_for_while_it_is_held(
    begin: Begin, tmp_path: Path, step: int, of: int
) -> None:
    (tmp_path / "request").write_bytes(bytes(16))
    training = begin()
    training.state.replicas = 2
    training.train(6)
    (tmp_path / "request").write_bytes(struct.pack("<QQ", 0, step))
    summary = training.train(2).report()["summary"]
    arrays = [np.full(SIZE, of, "uint8")] * 2
    assert summary == {**ReplicaDigests([("weights", arrays)]).summary(), "step": of}
    assert training.train(2).report()["summary"] is None


def test_a_comparison_that_fails_ends_no_copies(begin: Begin, log: list[str]) -> None:
    training = begin()
    training.state.replicated = lambda _: 1 / 0  # type: ignore[assignment, return-value]
    assert training.train(8).held() == [6, 8]
    assert log == ["the replicas are not compared any more: ZeroDivisionError: division by zero"]


# Copies that are set aside, for spec.restartPolicy.onDivergence: Restore.


def order_set_aside(directory: Path, step: int, agreed: tuple[int, int] = (0, 0)) -> None:
    told = copy_request.STEP.pack(0) * 2 + copy_request.STEP.pack(step) + copy_request.AGREED.pack(*agreed)
    with (directory / copy_request.NAME).open("r+b" if (directory / copy_request.NAME).exists() else "wb") as file:
        file.write(told)


def set_aside(training: Training) -> list[list[Any]]:
    found: list[list[Any]] = training.report()["setAside"]
    return found


def values(directory: Path, prefix: str) -> dict[str, int]:
    """The state of each file with such a name: the step at which it was made."""
    return {path.name: path.read_bytes()[HEAD] for path in directory.glob(f"{prefix}*")}


@pytest.fixture
def setting_aside(begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    monkeypatch.setattr(State, "replicas", 2)
    order_set_aside(tmp_path, 0)
    return lambda number=1, **told: begin(number, setsAside=True, **told)


def test_a_copy_that_is_set_aside_stays_while_newer_ones_overwrite_each_other(
    setting_aside: Begin, tmp_path: Path
) -> None:
    training = setting_aside().train(4)
    order_set_aside(tmp_path, 5)
    training.train(20)
    assert training.held() == [22, 24]
    assert values(tmp_path, "agreed-") == {"agreed-1-6": 6}
    ((number, step, digests),) = set_aside(training)
    assert (number, step) == (1, 6) and len(set(digests)) == 1 < len(digests)
    assert values(tmp_path, "copy-") == {"copy-1-22": 22, "copy-1-24": 24}


def test_beside_the_next_one_only_the_copy_on_which_all_agree_stays(setting_aside: Begin, tmp_path: Path) -> None:
    training = setting_aside().train(4)
    files = set()
    for step, agreed in ((5, (0, 0)), (13, (1, 6)), (31, (1, 6)), (51, (1, 32)), (52, (1, 52)), (53, (1, 52))):
        order_set_aside(tmp_path, step, agreed)
        training.train(1)
        training.train(9)
        files.add(
            len({path.stat().st_ino for path in tmp_path.iterdir() if path.name.startswith(("copy", "agr", "fr"))})
        )
        kept = {f"agreed-{agreed[0]}-{agreed[1]}"} if agreed[0] else set()
        assert kept <= set(values(tmp_path, "agreed-")) and len(values(tmp_path, "agreed-")) <= 2
        assert {f"agreed-{number}-{made}" for number, made, _ in set_aside(training)} == set(
            values(tmp_path, "agreed-")
        )
        for name, value in {**values(tmp_path, "agreed-"), **values(tmp_path, "copy-")}.items():
            assert name.endswith(f"-{value}"), "no file has another step than its name"
    assert files == {4}, "four slots, whatever is set aside"


def test_what_is_set_aside_outlives_the_program_and_goes_with_another_training(
    setting_aside: Begin, tmp_path: Path
) -> None:
    training = setting_aside().train(4)
    order_set_aside(tmp_path, 5)
    training.train(4)
    order_set_aside(tmp_path, 0)
    resumed = setting_aside(2, restore=[1, 8])
    assert set_aside(resumed) == [[1, 6, []]], "its digests were told"
    resumed.train(10)
    assert values(tmp_path, "agreed-") == {"agreed-1-6": 6} and resumed.held() == [16, 18]
    back = setting_aside(3, restore=[2, 18])
    back.copier.end("")
    assert values(tmp_path, "agreed-") == {}


def test_a_copy_that_is_set_aside_and_restored_is_not_overwritten(setting_aside: Begin, tmp_path: Path) -> None:
    training = setting_aside().train(4)
    order_set_aside(tmp_path, 5)
    training.train(2)
    order_set_aside(tmp_path, 0)
    resumed = setting_aside(2, restore=[1, 6])
    assert resumed.state.value == 6
    resumed.train(10)
    assert values(tmp_path, "agreed-") == {"agreed-1-6": 6} and resumed.held() == [14, 16]


def test_without_room_for_four_two_copies_are_made_and_nothing_is_set_aside(
    setting_aside: Begin, tmp_path: Path, log: list[str]
) -> None:
    training = setting_aside(sizeLimit=3 * (HEAD + SIZE), memoryLimit=None).train(4)
    order_set_aside(tmp_path, 5)
    training.train(10)
    assert training.held() == [12, 14] and values(tmp_path, "agreed-") == {}
    assert set_aside(training) == [] and training.report()["setAsideReason"].startswith("four copies need 0 MiB")
    assert log[-1].startswith("replicas that differ are only reported, and not restored: four copies need")


def test_no_order_of_the_launcher_is_heeded_with_onDivergence_report(begin: Begin, tmp_path: Path) -> None:
    order_set_aside(tmp_path, 2)
    training = begin().train(10)
    assert values(tmp_path, "agreed-") == {} and "setAside" not in training.report()


def test_a_file_that_cannot_be_set_aside_ends_no_copies(
    setting_aside: Begin, tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("no more links")

    training = setting_aside().train(4)
    order_set_aside(tmp_path, 5)
    monkeypatch.setattr("os.link", full)
    training.train(10)
    assert training.held() == [12, 14] and set_aside(training) == []
    assert log[-1] == "replicas that differ are only reported, and not restored: OSError: no more links"

"""What the members of a gang agree on when they differ, or when something is wrong with one of them, without Keras.

Each member has a thread. A collective waits for all members, and fails if one of them makes another call, or none. What
a training ends with is tested with the real Keras: tests/exact.
"""

from __future__ import annotations

import json
import threading
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launch.in_user_process.memory_backup.test_copier import SIZE, State
from tftraining.launch.in_user_process import call_site
from tftraining.launch.in_user_process.keras_backup import LegacyBackup
from tftraining.launch.in_user_process.memory_backup import copier, fit, input_kind, interval, stored_state
from tftraining.launch.in_user_process.memory_backup.copier import LossIsNotFinite
from tftraining.launch.in_user_process.memory_backup.copy_file import HEAD, Copy, Slots, held
from tftraining.launch.in_user_process.memory_backup.fit import PATIENCE_SECONDS, Session
from tftraining.launch.in_user_process.memory_backup.input_kind import DRAWN_ANEW, EPOCH, STEP, STORAGE, Kind
from tftraining.launch.in_user_process.memory_backup.legacy_fit import LegacyFit
from tftraining.launch.in_user_process.memory_backup.self_check import ResumedTrainingDiffers
from tftraining.launch.in_user_process.memory_backup.settings import CopySettings

STEPS = 20  # in an epoch
PLACE = {"epoch": 1, "batch": 12, "drawn": 32, "made": 1}
ANOTHER = {"epoch": 0, "batch": 3, "drawn": 3, "made": 2}


class Gang:
    """The collectives of some members."""

    def __init__(self, members: int) -> None:
        self._barrier = threading.Barrier(members, timeout=20)
        self._said: dict[int, list[float]] = {}
        self.calls = 0

    def sums_of(self, place: int) -> Callable[[list[float]], list[float]]:
        def sums(numbers: list[float]) -> list[float]:
            self._said[place] = numbers
            first = self._barrier.wait() == 0
            self.calls += first
            told = [sum(each) for each in zip(*self._said.values(), strict=True)]
            self._barrier.wait()
            return told

        return sums

    def run(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make a call in each member; their results."""

        def guarded(call: Callable[[], Any]) -> Any:
            try:
                return call()
            except BaseException:
                self._barrier.abort()
                raise

        with ThreadPoolExecutor(len(calls)) as pool:
            return [each.result() for each in [pool.submit(guarded, call) for call in calls]]


class Backup(LegacyBackup):
    """BackupAndRestore in one of two workers."""

    def __init__(self, path: Path, chief: bool) -> None:
        self.path, self.workers, self.writes, self.saves_each_epoch = str(path), 2, chief, False

    def has_stopped(self) -> bool:
        return False


class Model:
    """A model that counts its steps."""

    run_eagerly = False
    trainable_variables = ()
    train_function = None

    error: Exception | None = None  # of its state
    steps = 32

    def __init__(self) -> None:
        self.distribute_strategy = types.SimpleNamespace(extended=None, num_replicas_in_sync=2)
        self._train_counter = types.SimpleNamespace(numpy=lambda: self.steps)

    def reset_metrics(self) -> None:
        pass


class TrainingState(State):
    """The state of a `fit`, without variables."""

    def __init__(self, model: Any, *_: object) -> None:
        super().__init__()
        if model.error is not None:
            raise model.error

    def restored(self) -> dict[str, Any]:
        return {}

    told = late = restored

    def restore_late(self, head: object) -> str:
        return ""

    def restore_again(self, head: object, **_: bool) -> None:
        pass

    def resume_random(self, told: object, own: bool) -> None:
        pass

    def gather_for_storage(self, totals: object) -> None:
        pass

    def forget_restored(self) -> None:
        pass


def write_copy(directory: Path, head: dict[str, Any]) -> None:
    """The copy of step 32 that round 1 has left; its gang is this one."""
    slots = Slots(str(directory), SIZE, None)
    slots.reserve()
    slots.begin()[HEAD : HEAD + SIZE] = b"\7" * SIZE
    of_gang = {"workers": 2, "stepsPerEpoch": STEPS, "globalBatch": None, "input": "digest"}
    slots.commit(1, 32, {"identity": "this", "step": 32, "exponent": 6, **of_gang, **head})


class Member:
    """One of two members in round 2. `copy`: the head of its copy, None for none; `stored`: what is beside the backup
    that it reads in the storage, whose step is `saved`; an error is raised instead."""

    def __init__(self, place: Path, gang: Gang, number: int, **case: Any) -> None:
        self.directory = place / str(number)
        self.directory.mkdir()
        if (copy := case.get("copy", PLACE)) is not None:
            write_copy(self.directory, copy)
        self.model = Model()
        self.model.error = case.get("error")
        self.callbacks: Any = types.SimpleNamespace(model=self.model, params={"steps": STEPS, "epochs": 9})
        self.callbacks.callbacks, self.callbacks.identity = [], case.get("identity", "this")
        manager = types.SimpleNamespace(latest_checkpoint=case.get("stored"), checkpoint=self)
        self.saved = types.SimpleNamespace(read_checkpoint_manager=manager, step=case.get("saved", 20))
        self.counted: list[int] = []
        self.save_counter, self.assign = self, self.counted.append
        adapter = types.SimpleNamespace(should_recreate_iterator=lambda: False)
        self.handler: Any = types.SimpleNamespace(_adapter=adapter)
        kind = case.get("kind", Kind(STEP, digest="digest"))
        self.handler._dataset, self.handler._initial_epoch = types.SimpleNamespace(_datasets=[], kind=kind), 0
        self.handler._inferred_steps, self.handler._insufficient_data, self.handler.step_increment = None, False, 0
        told = {"directory": str(self.directory), "percent": 1, "restore": [1, 32], **case.get("told", {})}
        settings = CopySettings(json.dumps(told), {"TFTRAINING_ROUND": "2"})
        self.fit = LegacyFit(self.model, self.handler)
        self.session = Session(settings, self.callbacks, Backup(place, number == 0), self.fit)
        self.copier = self.session.copier
        self.copier.sums = gang.sums_of(number)

    def begin(self) -> Member:
        """What the hook does at the begin of `fit`."""
        self.session.prepare()
        self.taken = self.session.restore(self.saved)
        self.session.after_begin()
        return self

    def place(self) -> tuple[int, ...]:
        """Where the training goes on."""
        return self.session._epoch, self.session._batch, *self.session._place_in_input

    def train(self, batches: int, logs: Any = None) -> Member:
        """Make so many steps, up to the end of an epoch at most."""
        for _ in range(batches):
            self.session.begin_batch()
            self.model.steps += 1
            self.session.end_step()
            self.session.end_batch(self.session._batch, logs)
        return self

    def held(self) -> list[int]:
        return [step for _, step in held(str(self.directory))]

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "report.json").read_text())
        return found


Begin = Callable[..., tuple[Gang, Member, Member]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A function that begins a `fit` of two members, the first of which is the chief."""

    def stored(found: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(fit, "FitState", TrainingState)
    monkeypatch.setattr(input_kind, "kind_of", lambda dataset, several: dataset.kind)
    monkeypatch.setattr(stored_state, "read", stored)
    monkeypatch.setattr(LegacyFit, "latest", lambda self: self._saved.read_checkpoint_manager.latest_checkpoint)
    monkeypatch.setattr(call_site, "objection", lambda frame: "")
    monkeypatch.setattr(Session, "_identify", lambda self, state: self._callbacks.identity)
    monkeypatch.setattr(Session, "_stored", lambda self, behind: (self._fit._saved.step, 5))

    def run(one: dict[str, Any] | None = None, other: dict[str, Any] | None = None, **both: Any) -> Any:
        gang = Gang(2)
        members = [Member(tmp_path, gang, number, **both, **(case or {})) for number, case in enumerate((one, other))]
        return (gang, *gang.run(*(each.begin for each in members)))

    return run


# Where a restart resumes.


@pytest.mark.parametrize(
    ("kinds", "told", "at", "reasons"),
    [
        ((Kind(STEP), Kind(STEP)), {}, STEP, ("", "")),
        ((Kind(STEP), Kind(EPOCH, "a generator")), {}, EPOCH, ("the input of another member", "a generator")),
        ((Kind(DRAWN_ANEW, "no seed"), Kind(STEP)), {}, DRAWN_ANEW, ("no seed", "the input of another member")),
        ((Kind(DRAWN_ANEW, "no seed"),) * 2, {"exactness": "Required"}, EPOCH, ("no seed", "no seed")),
    ],
)
def test_the_least_kind_of_the_members_counts(
    begin: Begin, kinds: tuple[Kind, Kind], told: Any, at: str, reasons: tuple[str, str]
) -> None:
    _, *members = begin({"kind": kinds[0]}, {"kind": kinds[1]}, told=told, copy=None)
    assert [each.report()["resumesAt"] for each in members] == [at, at]
    assert tuple(each.report()["resumesAtReason"] for each in members) == reasons


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"identity": ""}, "another call of fit looks the same"),
        ({"error": ArithmeticError("a table")}, "ArithmeticError: a table"),
    ],
)
def test_no_member_makes_copies_unless_all_can(begin: Begin, other: Any, why: str) -> None:
    gang, one, two = begin(None, other)
    assert gang.calls == 1
    assert [each.copier.agreed for each in (one, two)] == [False, False]
    assert [each.copier.why_not for each in (one, two)] == ["another member cannot", why]
    assert (two.report()["resumesAt"], two.report()["resumesAtReason"]) == (STORAGE, why)


# The restore.


def test_all_go_on_where_the_chief_says(begin: Begin) -> None:
    many = 5 * (1 << 20) + 17  # more than a number of single precision holds
    gang, one, two = begin({"copy": {**PLACE, "drawn": many}}, {"copy": ANOTHER})
    assert gang.calls == 3  # the kinds, the copy, the place
    assert [each.taken for each in (one, two)] == [True, True]
    assert one.place() == two.place() == (1, 12, many, 1)
    states: Any = [each.copier._state for each in (one, two)]
    assert [each.value for each in states] == [7, 7]
    assert one.counted == two.counted == [5]  # the next backup of Keras is number 6, and does not overwrite number 5
    assert (two.handler._initial_epoch, two.handler._initial_step) == (1, 12)


@pytest.mark.parametrize(
    ("of_copy", "kind", "told"),
    [
        (
            {"workers": 3, "globalBatch": 24},
            Kind(STEP, digest="digest", shared_out="files are"),
            "files are, and the number of workers is another one: the rest of the epoch has some examples twice, and "
            "others not at all",
        ),
        (
            {"workers": 1, "globalBatch": 8},
            Kind(STEP, digest="digest", orders=(types.SimpleNamespace(),)),
            "Keras 3 looks at a batch of the shuffled input in a gang of one worker, and in no other: the rest of the "
            "training sees it in another order",
        ),
        (
            {"globalBatch": 16},
            Kind(STEP, digest="another"),
            "the input differs from that before the restart: the rest of the training sees it in another order",
        ),
    ],
)
def test_it_says_what_of_the_training_is_drawn_anew(
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    of_copy: dict[str, int],
    kind: Kind,
    told: str,
) -> None:
    monkeypatch.setattr(fit, "examples_in_a_step", lambda dataset, replicas: 16)
    monkeypatch.setattr(LegacyFit, "looks_alone", True)
    begin(copy={**PLACE, **of_copy}, kind=kind)
    assert capsys.readouterr().err.count(f"tftraining: {told}\n") == 2


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ({"saved": 33}, {}, {}),  # a backup in the storage that is newer
        ({}, {"copy": None}, {}),
        ({}, {"copy": {**PLACE, "identity": "another"}}, {}),
        ({}, {"copy": {"epoch": "rubbish"}}, {}),
        ({}, {"copy": {**PLACE, "workers": 3}}, {}),
        ({}, {}, {"kind": Kind(EPOCH, digest="digest")}),  # a copy inside an epoch
        ({}, {}, {"kind": Kind(STEP, digest="another"), "told": {"exactness": "Required"}}),
    ],
)
def test_otherwise_keras_restores_in_all_and_copies_are_made(begin: Begin, one: Any, other: Any, both: Any) -> None:
    gang, *members = begin(one, other, **both)
    assert gang.calls == 3  # the kinds, the copy, what is beside the backup
    assert [(each.taken, each.copier.agreed, each.place()) for each in members] == [(False, True, (0, 0, 0, 0))] * 2
    assert [each.held() for each in members] == [[], []]


STORED: Any = (
    {**PLACE, "identity": "this", "step": 32, "workers": 2, "stepsPerEpoch": STEPS, "input": "digest"},
    [],
    None,
)


@pytest.mark.parametrize(
    ("found", "place"),
    [
        ((STORED, STORED), (1, 12, 32, 1)),
        ((STORED, None), (0, 0, 0, 0)),
        ((ValueError("damaged"), STORED), (0, 0, 0, 0)),
        ((STORED, ({**STORED[0], "step": 31}, [], None)), (0, 0, 0, 0)),  # of another backup
        ((STORED, ({**STORED[0], "identity": "another"}, [], None)), (0, 0, 0, 0)),
    ],
)
def test_all_take_what_was_stored_beside_the_backup_or_none_does(begin: Begin, found: Any, place: Any) -> None:
    gang, one, two = begin({"stored": found[0]}, {"stored": found[1]}, copy=None)
    assert gang.calls == (4 if place[0] else 3)
    assert one.place() == two.place() == place
    assert one.session._resumed == (STORED[0] if place[0] else None)


@pytest.mark.parametrize("backup", ["a backup", None])
def test_a_resumed_training_that_differs_ends_if_the_storage_has_a_backup(begin: Begin, backup: str | None) -> None:
    _, one, two = begin(stored=backup)
    if backup:
        with pytest.raises(ResumedTrainingDiffers, match="goes on in epoch 3 instead of 2"):
            one.session.begin_epoch(2)
    else:
        one.session.begin_epoch(2)
        one.train(1)
    assert one.report()["violation"] == "the training goes on in epoch 3 instead of 2"
    assert (one.copier.agreed, one.held(), one.report()["resumesAt"]) == (False, [], STORAGE)
    assert "violation" not in two.report()


# The copies.


def votes_for(monkeypatch: pytest.MonkeyPatch, *exponents: int) -> None:
    """Let each member vote for its interval."""
    told = iter(range(len(exponents) * 99))
    monkeypatch.setattr(interval.Measured, "exponent", lambda *_: exponents[next(told) % len(exponents)])


def together(gang: Gang, members: list[Member], batches: int, logs: Any = None) -> None:
    for each in members:
        each.session.begin_epoch(1)
        each.copier.schedule.exponent = 0
    gang.run(*(lambda each=each: each.train(batches, logs) for each in members))


def test_the_largest_vote_counts(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    gang, *members = begin()
    votes_for(monkeypatch, 3, 20)
    together(gang, members, 2)
    assert [(each.copier.schedule.exponent, each.held()) for each in members] == [(20, [33, 34])] * 2


def test_a_train_function_that_counts_no_steps_has_no_copies(begin: Begin) -> None:
    gang, *members = begin()
    for each in members:
        each.model._train_counter.numpy = lambda: 32
    together(gang, members, 2)
    assert [(each.copier.agreed, each.report()["resumesAt"]) for each in members] == [(False, STORAGE)] * 2
    assert [each.report()["reason"] for each in members] == ["the train function does not count its steps"] * 2


def test_a_member_without_memory_ends_the_copies_of_all(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gang, one, two = begin()
    reserve = Slots.reserve

    def fails(self: Slots, size: int | None = None) -> None:
        if self._directory == str(two.directory):
            raise OSError(28, "No space left on device")
        reserve(self, size)

    monkeypatch.setattr(Slots, "reserve", fails)
    together(gang, [one, two], 4)
    assert [(each.copier.agreed, each.held()) for each in (one, two)] == [(False, [])] * 2
    assert [each.report()["reason"][:30] for each in (one, two)] == [
        "another member cannot",
        "no memory for two copies: OSEr",
    ]


def test_a_loss_that_is_no_number_right_after_the_restore_ends_the_program_before_keras_saves(begin: Begin) -> None:
    gang, *members = begin()
    together(gang, members, 1)
    for each in members:
        each.copier.schedule.exponent, each.copier.schedule.turns = 6, 0
        each.train(6)
        with pytest.raises(LossIsNotFinite):
            each.train(1, {"loss": types.SimpleNamespace(numpy=lambda: float("nan"))})


@pytest.mark.parametrize(("logs", "loss"), [(None, None), ({}, None), ({"loss": [1, 2]}, None), ({"loss": 1.5}, 1.5)])
def test_other_logs_have_no_loss(logs: Any, loss: float | None) -> None:
    assert fit._loss(logs) == loss


@pytest.mark.parametrize(
    ("saves", "exponent", "kind", "copied"),
    [
        (False, 4, STEP, [48, 64, 80]),
        (True, 4, STEP, [40, 48, 60, 80]),  # 64 is too near to 60, the end of an epoch
        (True, 3, STEP, [40, 48, 60, 64, 72, 80]),
        (True, 5, STEP, [80]),  # an epoch is shorter than the interval: a copy that is due waits for its end
        (False, 4, EPOCH, [40, 60, 80]),  # at the ends of epochs only
    ],
)
def test_where_the_copies_lie_in_the_epochs(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, saves: bool, exponent: int, kind: str, copied: list[int]
) -> None:
    gang, *members = begin(kind=Kind(kind, digest="digest"), copy={**PLACE, "inside": True})
    made: list[int] = []
    monkeypatch.setattr(copier.Copier, "_write", lambda self, step, where: made.append(step))
    monkeypatch.setattr(copier.Copier, "_vote", lambda self: None)
    monkeypatch.setattr(Session, "_look_at_clock", lambda self: None)

    def train(member: Member) -> None:
        member.copier.schedule.exponent, member.session._backup.saves_each_epoch = exponent, saves
        member.session._inside = False
        for epoch in (1, 2, 3):
            member.session.begin_epoch(epoch)
            member.train(STEPS - member.session._batch)
            member.session.end_epoch(epoch, {})

    gang.run(*(lambda each=each: train(each) for each in members))
    assert sorted(made) == sorted(copied * 2)


def test_a_copy_that_is_asked_for_at_the_end_of_an_epoch_waits_for_its_callbacks(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang, *members = begin()
    for each in members:
        monkeypatch.setattr(each.copier._request, "step", lambda: 40)
        monkeypatch.setattr(each.copier._request, "hold", lambda: None)
        each.session.begin_epoch(1)
    gang.run(*(lambda each=each: each.train(8) for each in members))
    assert [each.held() for each in members] == [[32], [32]]
    members[1].session.end_epoch(1, {})  # alone: the other member need not have heard it
    assert members[1].held() == [32, 40]
    head = Copy(str(members[1].directory), 2, 40).head
    assert (head["epoch"], head["batch"]) == (2, 0)


# A long epoch of an input that is not known to be reproducible.


def test_the_members_go_inside_an_epoch_together_when_the_chiefs_clock_says_so(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang, *members = begin(kind=Kind(EPOCH, "a generator"), copy=None)
    now = time.time()
    for each, seconds in zip(members, (0.3, PATIENCE_SECONDS + 60), strict=True):
        each.session.begin_epoch(0)
        each.copier.schedule.exponent, each.session._steps, each.session._began = (
            24,
            10**6,
            now - PATIENCE_SECONDS + seconds,
        )
        each.session._look_after = 1
    before = gang.calls

    def train(member: Member, pace: float) -> int:
        while not member.session._inside and member.session._batch < 2000:
            time.sleep(pace)
            member.train(1)
        return member.session._batch

    one, two = gang.run(lambda: train(members[0], 0.01), lambda: train(members[1], 0.001))
    assert 1 < one == two < 2000
    assert 2 <= gang.calls - before < one, "they look now and then"
    assert [each.report()["inputNotReproducible"] for each in members] == [True, True]

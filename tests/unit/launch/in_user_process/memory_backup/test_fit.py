"""What the members of a gang decide about backups in memory when something is wrong with one of them, without Keras.

With the real one it is tested in tests/processes/launch/test_memory_backups.py.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.in_user_process.keras_backup import LegacyBackup
from tftraining.launch.in_user_process.memory_backup import copier, fit, fit_hook
from tftraining.launch.in_user_process.memory_backup.copier import LossIsNotFinite, Unsupported
from tftraining.launch.in_user_process.memory_backup.copy_file import HEAD, Copy, Slots, held
from tftraining.launch.in_user_process.memory_backup.fit import Session
from tftraining.launch.in_user_process.memory_backup.settings import Settings

SIZE = 64
OFF = copier._OFF


class State:
    """Some bytes in place of variables."""

    size = SIZE

    def __init__(self, model: Any) -> None:
        if model.error is not None:
            raise model.error
        self._model = model

    def grown(self) -> bool:
        return False

    def views(self, buffer: Any, start: int) -> list[Any]:
        return [memoryview(buffer)[start : start + SIZE]]

    def copy_to(self, views: list[Any]) -> None:
        views[0][:] = bytes([self._model.value]) * SIZE

    def restore_from(self, views: list[Any]) -> None:
        self._model.value = views[0][0]


class TwoWorkers(LegacyBackup):
    """The chief of two workers, with BackupAndRestore; `saved` is the step of the backup in the storage."""

    def __init__(self, path: Path) -> None:
        self.path, self.workers, self.writes = str(path), 2, True

    def has_stopped(self) -> bool:
        return False


@pytest.fixture
def chief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """A function that begins a `fit` in round 2; the copy of step 32 is there, and said to be held by all."""
    slots = Slots(str(tmp_path), SIZE, None)
    slots.reserve()
    slots.begin()[HEAD : HEAD + SIZE] = b"\7" * SIZE
    pace = {"workers": 2, "stepsPerEpoch": 20, "globalBatch": 8}
    place = {"epoch": 1, "batch": 12, "drawn": 32, "made": 1}
    slots.commit(1, 32, {"identity": "this", "step": 32, "exponent": 6, **pace, **place})
    monkeypatch.setattr(fit, "State", State)
    monkeypatch.setattr(Session, "_identify", lambda self, state: self._callbacks.identity)

    def begin(
        others: list[float], saved: int = 20, identity: str = "this", steps: int | None = 20, error: Any = None
    ) -> Session:
        strategy = types.SimpleNamespace(extended=None, num_replicas_in_sync=2)
        counter = types.SimpleNamespace(numpy=lambda: 32)
        model = types.SimpleNamespace(distribute_strategy=strategy, _train_counter=counter, value=0, error=error)
        callbacks = types.SimpleNamespace(model=model, params={"steps": steps, "epochs": 3}, identity=identity)
        told = json.dumps({"directory": str(tmp_path), "percent": 1, "restore": [1, 32]})
        session = Session(Settings(told, {"TFTRAINING_ROUND": "2"}), callbacks, TwoWorkers(tmp_path), fit_hook._log)
        heard: list[list[float]] = []

        def sums(numbers: list[float]) -> list[float]:
            heard.append(numbers)
            return [one + other for one, other in zip(numbers, others + [0.0] * OFF, strict=False)]

        monkeypatch.setattr(session.copier, "sums", sums)
        saves = types.SimpleNamespace(assign=lambda count: setattr(session, "count", count))
        checkpoint = types.SimpleNamespace(save_counter=saves)
        manager = types.SimpleNamespace(checkpoint=checkpoint)
        session.saved = types.SimpleNamespace(read_checkpoint_manager=manager)  # type: ignore[attr-defined]
        monkeypatch.setattr(session, "_stored", lambda _: (saved, 5))
        session.taken = session.restore(session.saved)  # type: ignore[attr-defined]
        assert len(heard) == 1  # a member that does not call the collective keeps the others waiting for ever
        session.after_begin(session.saved)  # type: ignore[attr-defined]
        return session

    return begin


def outcome(session: Any) -> tuple[bool, bool, int]:
    """Whether the copy was restored, whether copies are made, and the state."""
    return session.taken, session.copier.agreed, session._model.value


def test_a_copy_that_all_hold_is_restored_in_place_of_an_older_backup(chief: Callable[..., Any]) -> None:
    session = chief([1, 1], saved=20)
    assert outcome(session) == (True, True, 7)
    assert session.saved.maybe_load_initial_counters_from_ckpt(20, 0) == (1, 12)
    assert session.copier._exponent == 6
    assert session.count == 5  # the next backup of Keras is number 6, and does not overwrite number 5


def handler(anew: bool = False) -> Any:
    """The input of a `fit` whose epochs share an iterator, or have one each."""
    adapter = types.SimpleNamespace(should_recreate_iterator=lambda: anew)
    return types.SimpleNamespace(_dataset=types.SimpleNamespace(_datasets=[]), _adapter=adapter)


@pytest.mark.parametrize(
    ("examples", "anew", "resumed", "why"),
    [
        (8, False, (12, 32), ""),
        (4, False, (12, 64), ""),
        (4, True, (0, 0), "an epoch had 160 examples, and has 80"),
    ],
)
def test_the_chief_says_where_to_resume(
    chief: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    examples: int,
    anew: bool,
    resumed: tuple[int, int],
    why: str,
) -> None:
    session = chief([1, 1])
    monkeypatch.setattr(session.copier, "sums", lambda numbers: [*numbers, *[0.0] * 21])
    monkeypatch.setattr(fit, "examples_in_a_step", lambda *_: examples)
    given = handler(anew)
    assert session.follows(given)
    assert (given._initial_epoch, given._initial_step, session.position.drawn) == (1, *resumed)
    assert session.position.made == 1
    assert json.loads(Path(session._settings.directory, "report.json").read_text())["epochResumed"] == why


def test_another_member_follows_the_chief(chief: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session = chief([1, 1])
    session._backup.writes = False
    heard: list[list[float]] = []
    many = 5 * (1 << 20) + 17  # more than a number of single precision holds

    def sums(numbers: list[float]) -> list[float]:
        heard.append(numbers)
        return [2, 3, 5, 17, 4, *[0.0] * 21]

    monkeypatch.setattr(session.copier, "sums", sums)
    given = handler()
    assert session.follows(given)
    assert heard == [[0, 0, 0, 0, 0]]
    assert (given._initial_epoch, given._initial_step) == (2, 3)
    assert (session.position.drawn, session.position.made) == (many, 4)


@pytest.mark.parametrize(
    ("others", "change"),
    [
        ([1, 0], {}),  # the copy does not fit there
        ([1, 1], {"saved": 33}),
        ([1, 1], {"identity": "another"}),
    ],
)
def test_keras_restores_and_copies_are_made(chief: Callable[..., Any], others: list[float], change: Any) -> None:
    session = chief(others, **change)
    assert outcome(session) == (False, True, 0)
    assert not hasattr(session.saved, "maybe_load_initial_counters_from_ckpt")
    assert held(session._settings.directory) == []


@pytest.mark.parametrize(
    ("others", "change", "why"),
    [
        ([0, 0], {}, "another member cannot"),
        ([1, 1], {"steps": None}, "the number of steps in an epoch is unknown, or 1"),
        ([1, 1], {"identity": ""}, "the call of fit is in a loop, so another process cannot recognize it"),
        ([1, 1], {"error": Unsupported("a table")}, "Unsupported: a table"),
    ],
)
def test_no_member_makes_copies_unless_all_can(
    chief: Callable[..., Any], others: list[float], change: Any, why: str
) -> None:
    session = chief(others, **change)
    assert outcome(session)[:2] == (False, False)
    assert session.copier.why_not == why


def follow(session: Any, *, copies: int) -> None:
    """Steps with a copy after each."""
    session.copier._exponent, session._steps = 0, 10**6
    session._model._train_counter.numpy = lambda: session._step + 1
    for batch in range(session._batch, session._batch + copies):
        session.end_batch(batch, {})


def votes(session: Any, monkeypatch: pytest.MonkeyPatch, other: int) -> list[float]:
    """Let the other member vote; what this one has voted for."""
    voted: list[float] = []

    def sums(numbers: list[float]) -> list[float]:
        if len(numbers) == 1:  # whether there is memory
            return [numbers[0] + 1]
        voted.append(numbers.index(1.0))
        return [number + (place == other) for place, number in enumerate(numbers)]

    monkeypatch.setattr(session.copier, "sums", sums)
    return voted


def test_the_largest_vote_counts(chief: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    session = chief([1, 1])
    session.begin_epoch(1)
    voted = votes(session, monkeypatch, 20)
    follow(session, copies=2)
    assert len(voted) == 1
    assert voted[0] < 20
    assert session.copier._exponent == 20
    assert held(session._settings.directory) == [(2, 33), (2, 34)]


def test_one_member_that_cannot_copy_ends_it_for_all(
    chief: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = chief([1, 1])
    session.begin_epoch(1)
    votes(session, monkeypatch, OFF)
    follow(session, copies=3)
    assert not session.copier.agreed
    assert "no backups in memory: another member cannot" in capsys.readouterr().err
    assert held(session._settings.directory) == []


def test_a_member_without_memory_votes_against_copies(
    chief: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reserve(self: Slots) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Slots, "reserve", reserve)
    session = chief([1, 1])
    session.begin_epoch(1)
    voted = votes(session, monkeypatch, 3)
    follow(session, copies=2)
    assert voted == [OFF]
    assert not session.copier.agreed
    assert "no backups in memory: no memory for two copies: OSError" in capsys.readouterr().err


def test_a_loss_that_is_no_number_right_after_the_restore_ends_the_program(chief: Callable[..., Any]) -> None:
    session = chief([1, 1])
    session.begin_epoch(1)
    session.copier._exponent = 0
    session._model._train_counter.numpy = lambda: 33
    with pytest.raises(LossIsNotFinite):
        session.end_batch(12, {"loss": types.SimpleNamespace(numpy=lambda: float("nan"))})


@pytest.mark.parametrize("logs", [None, {}, {"loss": [1, 2]}, {"loss": 1.5}])
def test_other_logs_do_not_matter(chief: Callable[..., Any], logs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = chief([1, 1])
    session.begin_epoch(1)
    votes(session, monkeypatch, 0)
    session.copier._exponent = 0
    session._model._train_counter.numpy = lambda: 33
    session.end_batch(12, logs)
    assert held(session._settings.directory) == [(1, 32), (2, 33)]


def test_at_the_end_of_an_epoch_the_copy_waits_for_its_callbacks(
    chief: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chief([1, 1])
    session.position._handler = types.SimpleNamespace(
        _adapter=types.SimpleNamespace(should_recreate_iterator=lambda: True)
    )
    session.begin_epoch(1)
    votes(session, monkeypatch, 0)
    monkeypatch.setattr(session.copier._request, "step", lambda: 40)
    monkeypatch.setattr(session.copier._request, "hold", lambda: None)
    for batch in range(12, 20):
        session._model._train_counter.numpy = lambda: session._step + 1
        session.end_batch(batch, {})
    assert held(session._settings.directory) == [(1, 32)]
    session.end_epoch(1, {})
    assert held(session._settings.directory) == [(1, 32), (2, 40)]
    assert Copy(session._settings.directory, 2, 40).head["epoch"] == 2


class BackupAndRestore:
    """Another Keras' callback."""


@pytest.mark.parametrize("callbacks", [[], [BackupAndRestore()]])
def test_a_fit_without_backups_of_tf_keras_has_none_in_memory(
    callbacks: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.dumps({"directory": "/nowhere", "percent": 1, "restore": None})
    settings = Settings(told, {"TFTRAINING_ROUND": "1"})
    assert fit_hook._begin(settings, types.SimpleNamespace(callbacks=callbacks, model=None)) is None
    said = capsys.readouterr().err
    assert said.startswith("tftraining: no backups in memory: only BackupAndRestore of tf_keras") == bool(callbacks)

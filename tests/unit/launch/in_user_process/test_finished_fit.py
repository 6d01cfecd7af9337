"""What becomes of the end of `fit` when something goes wrong, with stand-ins for Keras.

With the real one it is tested in tests/processes/launch/test_finished_fit.py.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.in_user_process import finished_copy, finished_fit
from tftraining.launch.in_user_process.finished_fit import Keeper
from tftraining.launch.in_user_process.keras_backup import Backup


class StandIn(Backup):
    """A backup of some files; `answers` are what the other members say in turn, added to what this one says."""

    def __init__(self, path: Path, answers: list[int | Exception] | None = None, *, deletes: bool = True) -> None:
        super().__init__(types.SimpleNamespace(model=types.SimpleNamespace(weights=[]), delete_checkpoint=deletes))
        self.path = str(path)
        self.answers = answers or []
        self.workers = 1 if answers is None else 2
        self.fails: dict[str, Exception] = {}
        self.restored = ""

    def sum_over_members(self, number: int) -> int:
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        return number + answer

    def save(self, state: str) -> None:
        if state:
            Path(f"{state}.index").write_text("state")
        self._fail("save")

    def shapes(self) -> list[list[int]]:
        self._fail("shapes")
        return []

    def restore(self, state: str, epochs: int) -> None:
        self._fail("restore")
        self.restored = Path(f"{state}.index").read_text()

    def _fail(self, what: str) -> None:
        if what in self.fails:
            raise self.fails[what]


class Callbacks:
    """Keras' list of callbacks, with BackupAndRestore on it."""

    def __init__(self, backup: StandIn) -> None:
        self.params = {"epochs": 3}
        self.backup = backup
        self._history = types.SimpleNamespace(history={}, epoch=[])

    def on_train_begin(self, logs: Any = None) -> None:
        pass

    def on_train_end(self, logs: Any = None) -> None:
        if self.backup._callback.delete_checkpoint:
            finished_copy.remove(self.backup.path)


@pytest.fixture
def fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that trains, if it has to, in a process started for the n-th time, and tells whether it did."""
    monkeypatch.setattr(finished_fit, "find_backup", lambda callbacks: callbacks.backup)
    monkeypatch.setattr(finished_fit, "VISIBLE_SECONDS", 0.0)
    monkeypatch.setattr("tftraining.launch.in_user_process.call_site.identity", lambda *_: "the call")

    def run(start: int, backup: StandIn, uid: str = "a") -> Any:
        told = f'{{"uid": "{uid}", "file": "{tmp_path / "list"}", "launcher": "x"}}'
        keeper = finished_fit.make_keeper(told, {"TFTRAINING_ROUND": str(start)}, lambda: True)
        return fit_under(keeper, backup)

    return run


def fit_under(keeper: Keeper, backup: StandIn) -> Any:
    extended = type("Callbacks", (Callbacks,), dict(vars(Callbacks)))
    finished_fit.extend(keeper, extended)
    callbacks = extended(backup)
    callbacks.on_train_begin()
    if not backup.restored:
        Path(backup.path).mkdir(parents=True, exist_ok=True)
        (Path(backup.path) / "ckpt-3").write_text("backup")
        callbacks._history.history, callbacks._history.epoch = {"loss": [0.5]}, [2]
    callbacks.on_train_end({"loss": 0.5})
    return callbacks._history


def names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


def test_the_next_start_finds_the_finished_fit(tmp_path: Path, fit: Callable[..., Any]) -> None:
    first = fit(1, StandIn(tmp_path / "chief"))
    assert names(tmp_path) == {"chief.finished-1", "list"}
    assert names(tmp_path / "chief.finished-1") == {"final.index", "finished.json"}
    again = StandIn(tmp_path / "chief")
    history = fit(2, again)
    assert again.restored == "state"
    assert (history.history, history.epoch) == (first.history, first.epoch) == ({"loss": [0.5]}, [2])
    assert names(tmp_path) == {"chief.finished-1", "list"}, "it is found by the one after, too"


def test_another_process_of_the_same_start_finds_no_copy(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    again = StandIn(tmp_path / "chief")
    fit(1, again)
    assert not again.restored


def test_another_job_trains_and_removes_the_copy(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    (tmp_path / "chief.finished-7").mkdir()
    other = StandIn(tmp_path / "chief")
    fit(2, other, uid="b")
    assert not other.restored
    assert names(tmp_path) == {"chief.finished-1", "list"}
    mark = finished_copy.read_mark(str(tmp_path / "chief.finished-1"))
    assert mark is not None and mark["uid"] == "b"


def test_the_backup_of_a_later_fit_stays_where_it_is(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    (tmp_path / "chief").mkdir()
    fit(2, StandIn(tmp_path / "chief"))
    assert names(tmp_path) == {"chief", "chief.finished-1", "list"}


def test_a_backup_that_the_user_keeps_is_not_touched(tmp_path: Path, fit: Callable[..., Any]) -> None:
    for start in (1, 2):
        fit(start, StandIn(tmp_path / "chief", deletes=False))
        assert names(tmp_path) == {"chief", "chief.finished-1", "list"}
    assert names(tmp_path / "chief") == {"ckpt-3"}


def test_an_unfinished_copy_becomes_the_backup_again(tmp_path: Path, fit: Callable[..., Any]) -> None:
    (tmp_path / "chief.finished-1").mkdir()
    (tmp_path / "chief.finished-1" / "ckpt-2").write_text("backup")
    fit(2, backup := StandIn(tmp_path / "chief", [0, 0, RuntimeError("a peer is gone")]))
    assert not backup.restored
    assert names(tmp_path / "chief.finished-1") >= {"ckpt-2", "ckpt-3"}


def test_a_failed_save_leaves_the_backup_to_keras(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    backup = StandIn(tmp_path / "chief")
    backup.fails["save"] = OSError(28, "No space left on device")
    fit(1, backup)
    assert names(tmp_path) == {"list"}
    said = "tftraining: cannot save the end of this fit: OSError: [Errno 28] No space left on device\n"
    assert capsys.readouterr().err == said


def test_a_failed_save_of_the_chief_reaches_all_members(tmp_path: Path, fit: Callable[..., Any]) -> None:
    for what in ("shapes", "save"):
        asked: list[int | Exception] = [0, 0, 0]
        backup = StandIn(tmp_path / "chief", asked)
        backup.fails[what] = OSError(28, "No space left on device")
        fit(1, backup)
        assert len(asked) == {"shapes": 2, "save": 0}[what], "who did not ask would wait for the others for ever"
        assert not (tmp_path / "chief").exists()


def test_an_unwritable_list_leaves_the_backup_to_keras(tmp_path: Path, fit: Callable[..., Any]) -> None:
    (tmp_path / "list").mkdir()
    fit(1, StandIn(tmp_path / "chief"))
    assert names(tmp_path) == {"list"}


def test_a_peer_that_dies_at_the_end_of_fit_leaves_the_backup(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fit(1, StandIn(tmp_path / "chief", [0, 0, RuntimeError("Socket closed")]))
    finished_copy.drop_mark(str(tmp_path / "chief.finished-1"))  # it died before that
    assert (
        "a member was lost; the next start resumes from the backup: RuntimeError: Socket closed"
        in capsys.readouterr().err
    )
    fit(2, backup := StandIn(tmp_path / "chief", [0, 0]))
    assert not backup.restored


def test_a_copy_that_one_member_cannot_see_is_not_used(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief", []))
    fit(2, backup := StandIn(tmp_path / "chief", []))
    assert not backup.restored
    fit(3, backup := StandIn(tmp_path / "chief", [0, 1]))
    assert backup.restored


def test_members_that_do_not_write_follow_the_chief(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief", []))
    peer = StandIn(tmp_path / "chief", [2, 1])  # the chief has found copy 1, and sees it
    peer.writes = False
    fit(2, peer)
    assert peer.restored
    peer = StandIn(tmp_path / "chief", [0])  # it has decided to leave this fit alone
    peer.writes = False
    fit(2, peer)
    assert not peer.restored and peer.answers == []


def test_a_state_that_cannot_be_restored_loses_its_mark(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    broken = StandIn(tmp_path / "chief")
    broken.fails["restore"] = ValueError("another shape")
    with pytest.raises(ValueError, match="another shape"):
        fit(2, broken)
    again = StandIn(tmp_path / "chief")
    fit(3, again)
    assert not again.restored


def test_a_peer_lost_at_the_start_of_fit_leaves_the_backup_to_keras(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief", [RuntimeError("Socket closed")]))
    assert names(tmp_path) == set()


def test_the_number_of_copies_is_bounded(
    tmp_path: Path, fit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_copy, "MAX_COPIES", 2)
    for _ in range(3):
        fit(1, StandIn(tmp_path / "chief"))
    assert names(tmp_path) == {"chief.finished-1", "chief.finished-2", "list"}


def test_an_unsupported_backup_is_left_to_keras(
    tmp_path: Path, fit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(1, StandIn(tmp_path / "chief"))

    def begun(_: object) -> None:
        raise AttributeError("_training_state")

    monkeypatch.setattr(StandIn, "after_begin", begun)
    fit(2, backup := StandIn(tmp_path / "chief"))
    assert not backup.restored


def test_a_process_that_does_not_train_keeps_no_copy(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit_under(Keeper("a", str(tmp_path / "list"), "1", "", takes_part=lambda: False), StandIn(tmp_path / "chief"))
    assert names(tmp_path) == set()


def test_numbers_and_tensors_become_json_types() -> None:
    numpy = pytest.importorskip("numpy")
    told = {"loss": [numpy.float32(0.5), 1], "matrix": numpy.eye(2), "name": "a", 3: None, "other": object}
    assert finished_fit.plain(told) == {
        "loss": [0.5, 1],
        "matrix": [[1.0, 0.0], [0.0, 1.0]],
        "name": "a",
        "3": None,
        "other": str(object),
    }

"""What becomes of the end of `fit` when something goes wrong, with stand-ins for Keras.

With the real one it is tested in tests/processes/launch/test_finished_fit.py.
"""

from __future__ import annotations

import random
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tftraining.launch.in_user_process import backup_owner, call_site, finished_copy, finished_fit
from tftraining.launch.in_user_process.finished_fit import Keeper
from tftraining.launch.in_user_process.keras_backup import KerasBackup

COPY = "chief.finished-*"


class StandIn(KerasBackup):
    """A backup of some files; `answers` are what the other members say in turn, added to what this one says: in the
    first sum whether they keep the end, have found it, two parts of its name, and what was moved."""

    def __init__(self, path: Path, answers: list[Any] | None = None, *, deletes: bool = True) -> None:
        strategy = types.SimpleNamespace(extended=types.SimpleNamespace(_in_multi_worker_mode=lambda: False))
        model = types.SimpleNamespace(weights=[], distribute_strategy=strategy)
        super().__init__(types.SimpleNamespace(model=model, delete_checkpoint=deletes))
        self.path = str(path)
        self.answers = answers or []
        self.workers = 1 if answers is None else 2
        self.fails: dict[str, Exception] = {}
        self.restored = self.resumed = ""
        self.made: list[Any] = []

    def sums(self, *numbers: int) -> list[int]:
        answer = self.answers.pop(0) if self.answers else 0
        answer = [answer] if isinstance(answer, int) else answer
        if isinstance(answer, Exception):
            raise answer
        return [number + other for number, other in zip(numbers, [*answer, *[0] * len(numbers)], strict=False)]

    def save(self, state: str) -> None:
        if state:
            Path(f"{state}.index").write_text("state")
        self._fail("save")

    def shapes(self) -> list[list[int]]:
        self._fail("shapes")
        return []

    def variables(self) -> list[Any]:
        return self.made

    def trainable(self) -> list[int]:
        return [1]

    def restore(self, state: str, epochs: int) -> None:
        self._fail("restore")
        self.restored = Path(f"{state}.index").read_text()

    def _fail(self, what: str) -> None:
        if what in self.fails:
            raise self.fails[what]


class History:
    """Keras' own."""

    def __init__(self) -> None:
        self.history: dict[str, Any] = {}
        self.epoch: list[int] = []


class Callbacks:
    """Keras' list of callbacks, with BackupAndRestore on it."""

    callbacks = ()

    def __init__(self, backup: StandIn) -> None:
        self.params = {"epochs": 3}
        self.backup = backup
        self._history = History()

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

    def run(start: int, backup: StandIn, uid: str = "a", call: str = "one", version: str = "1", **ends: Any) -> Any:
        told = f'{{"uid": "{uid}", "file": "{tmp_path / "list"}", "launcher": "x"}}'
        keeper = finished_fit.make_keeper(told, {"TFTRAINING_ROUND": str(start)}, lambda: True)
        monkeypatch.setattr(finished_fit, "program_digest", lambda: version)
        monkeypatch.setattr(call_site, "place", lambda _: call_site.CallPlace("functions", call) if call else unknown())
        return fit_under(keeper, backup, **ends)

    return run


def unknown() -> None:
    raise call_site.UnknownCallError("the reason")


def fit_under(keeper: Keeper, backup: StandIn, killed: bool = False, makes: str = "", draws: bool = False) -> Any:
    """One `fit`; `killed` while it trains. A callback `makes` a variable of this name, or `draws` a random number."""
    extended = type("Callbacks", (Callbacks,), dict(vars(Callbacks)))
    finished_fit.extend(keeper, extended)
    callbacks = extended(backup)
    callbacks.on_train_begin()
    backup.resumed = saved.read_text() if (saved := Path(backup.path) / "ckpt-3").exists() else ""
    if not backup.restored:
        Path(backup.path).mkdir(parents=True, exist_ok=True)
        saved.write_text(keeper.start)
        if killed:
            return None
        backup.made += [types.SimpleNamespace(name=makes)] * bool(makes)
        if draws:
            random.random()
        callbacks._history.history, callbacks._history.epoch = {"loss": [0.5]}, [2]
    callbacks.on_train_end({"loss": 0.5})
    return callbacks._history


def names(path: Path) -> set[str]:
    """What lies there; a copy and a backup set aside without their names."""
    return {re.sub(r"-[0-9a-f]{10}$", "-*", each.name) for each in path.iterdir()}


def the_copy(path: Path) -> Path:
    (found,) = path.glob(COPY)
    return found


def test_the_next_start_finds_the_finished_fit(tmp_path: Path, fit: Callable[..., Any]) -> None:
    first = fit(1, StandIn(tmp_path / "chief"))
    assert names(tmp_path) == {COPY, "list"}
    assert names(the_copy(tmp_path)) == {"final.index", "finished.json"}
    again = StandIn(tmp_path / "chief")
    history = fit(2, again)
    assert again.restored == "state"
    assert (history.history, history.epoch) == (first.history, first.epoch) == ({"loss": [0.5]}, [2])
    assert names(tmp_path) == {COPY, "list"}, "it is found by the one after, too"


def test_a_variable_that_only_the_training_creates_keeps_no_end(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fit(1, StandIn(tmp_path / "chief"), makes="late")
    assert "repeats it, for only its training creates a variable: late\n" in capsys.readouterr().err
    again = StandIn(tmp_path / "chief")
    fit(2, again)
    assert again.restored == ""


def test_random_numbers_that_the_training_draws_are_named(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fit(1, StandIn(tmp_path / "chief"), draws=True)
    told = "tftraining: a failure after this fit does not restore the state of the random numbers of Python and NumPy\n"
    assert capsys.readouterr().err == told


def test_two_calls_that_cannot_be_told_apart_keep_no_end(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one process, or of two that a script starts one after the other."""
    for start in (1, 2):
        for _ in range(2):
            fit(start, backup := StandIn(tmp_path / "chief"))
            assert not backup.restored
    assert names(the_copy(tmp_path)) == {"finished.json"}, "which tells a later start that the call is not the only one"
    assert "for another call of fit cannot be told from it" in capsys.readouterr().err


def test_a_restored_fit_is_not_restored_into_the_next_call_that_looks_the_same(
    tmp_path: Path, fit: Callable[..., Any]
) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    fit(2, first := StandIn(tmp_path / "chief"))
    fit(2, second := StandIn(tmp_path / "chief"))
    assert first.restored and not second.restored


def test_an_edited_program_trains_and_a_line_says_so(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    fit(2, backup := StandIn(tmp_path / "chief"), version="2")
    assert not backup.restored
    said = "a fit here has finished before, but the program or its packages have changed since: this one trains"
    assert capsys.readouterr().err == f"tftraining: {said}\n"


def test_each_call_resumes_from_its_own_backup(tmp_path: Path, fit: Callable[..., Any]) -> None:
    """Folds in a loop on one directory, killed in the third."""
    for start, killed in ((1, True), (2, True), (3, False)):
        for call in ("one", "two"):
            fit(start, backup := StandIn(tmp_path / "chief"), call=call)
            assert bool(backup.restored) == (start > 1) and not backup.resumed
        fit(start, backup := StandIn(tmp_path / "chief"), call="three", killed=killed)
        assert backup.resumed == ("" if start == 1 else f"x {start - 1}")
    assert names(tmp_path) == {COPY, "list"}


def test_a_backup_set_aside_is_kept_while_the_other_call_trains(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"), call="two", killed=True)
    fit(2, backup := StandIn(tmp_path / "chief"), call="one", killed=True)
    assert not backup.resumed and names(tmp_path) == {"chief", "chief.aside-*", "list"}
    fit(3, backup := StandIn(tmp_path / "chief"), call="one")
    assert backup.resumed == "x 2"
    fit(3, backup := StandIn(tmp_path / "chief"), call="two")
    assert backup.resumed == "x 1"
    assert names(tmp_path) == {COPY, "list"}


@pytest.mark.parametrize("changed", [{"version": "2"}, {"uid": "b"}])
def test_a_backup_of_another_program_or_job_is_restored_as_keras_does(
    tmp_path: Path, fit: Callable[..., Any], changed: dict[str, str]
) -> None:
    fit(1, StandIn(tmp_path / "chief"), call="two", killed=True)
    fit(2, backup := StandIn(tmp_path / "chief"), call="one", **changed)
    assert backup.resumed == "x 1"


def test_within_one_start_a_kept_backup_is_restored_as_keras_does(tmp_path: Path, fit: Callable[..., Any]) -> None:
    """The second `fit` goes on from the first; a restart behind the first is the same training."""
    fit(1, StandIn(tmp_path / "chief", deletes=False), call="one")
    fit(1, backup := StandIn(tmp_path / "chief", deletes=False), call="two", killed=True)
    assert backup.resumed == "x 1"
    fit(2, StandIn(tmp_path / "chief", deletes=False), call="one")
    fit(2, backup := StandIn(tmp_path / "chief", deletes=False), call="two")
    assert backup.resumed == "x 1"


def test_a_call_without_identity_trains_from_the_backup_that_is_there(
    tmp_path: Path, fit: Callable[..., Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(1, StandIn(tmp_path / "chief"), call="one", killed=True)
    fit(2, backup := StandIn(tmp_path / "chief"), call="")
    assert backup.resumed == "x 1"
    said = "tftraining: a failure after this fit repeats it, for it cannot be told from others: the reason\n"
    assert capsys.readouterr().err == said
    assert names(tmp_path) == set()


def test_a_member_waits_for_a_backup_that_the_chief_has_moved(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"), call="two", killed=True)
    late = StandIn(tmp_path / "chief", [[1, 0, 7, 7, 5], 1])  # the chief's token is 5
    late.writes = False
    with pytest.raises(finished_fit.BackupNotSeenError, match="not every member sees"):
        fit(2, late)
    seen = StandIn(tmp_path / "chief", [[1, 0, 7, 7, backup_owner.token(str(tmp_path / "chief"))], 1])
    seen.writes = False
    fit(2, seen, killed=True)
    assert seen.answers == [] and seen.resumed == "x 1"


def test_another_job_trains_and_removes_the_copy(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    (tmp_path / "chief.finished-7").mkdir()  # its program ended while it was made
    other = StandIn(tmp_path / "chief")
    fit(2, other, uid="b")
    assert not other.restored
    assert names(tmp_path) == {COPY, "list"}
    assert finished_copy.read_mark(str(the_copy(tmp_path)), "b")


def test_the_backup_of_a_later_fit_stays_where_it_is(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief"))
    (tmp_path / "chief").mkdir()
    fit(2, StandIn(tmp_path / "chief"))
    assert names(tmp_path) == {"chief", COPY, "list"}


def test_a_backup_that_the_user_keeps_is_not_touched(tmp_path: Path, fit: Callable[..., Any]) -> None:
    for start in (1, 2):
        fit(start, StandIn(tmp_path / "chief", deletes=False))
        assert names(tmp_path) == {"chief", COPY, "list"}
    assert names(tmp_path / "chief") == {"ckpt-3", "tftraining.json"}


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
        asked = [0, 0, 0]
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
    (the_copy(tmp_path) / finished_copy.MARK).unlink()  # it died before that
    assert (
        "a member was lost; the next start resumes from the backup: RuntimeError: Socket closed"
        in capsys.readouterr().err
    )
    fit(2, backup := StandIn(tmp_path / "chief", [0, 0]))
    assert not backup.restored and backup.resumed == "x 1"


def test_a_copy_that_one_member_cannot_see_is_not_used(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief", []))
    fit(2, backup := StandIn(tmp_path / "chief", []))
    assert not backup.restored
    fit(3, backup := StandIn(tmp_path / "chief", [0, 1]))
    assert backup.restored


def test_members_that_do_not_write_follow_the_chief(tmp_path: Path, fit: Callable[..., Any]) -> None:
    fit(1, StandIn(tmp_path / "chief", []))
    name = the_copy(tmp_path).name.rpartition("-")[2]
    peer = StandIn(tmp_path / "chief", [[1, 1, int(name[:5], 16), int(name[5:], 16), 0], 1])  # the chief has found it
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
    for call in ("one", "two", "three"):
        fit(1, StandIn(tmp_path / "chief"), call=call)
    assert len(list(tmp_path.glob(COPY))) == 2
    assert not (tmp_path / "chief").exists(), "Keras would have deleted it"


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

"""The small pure parts: ledger, incidents, verdicts, watchdog, progress, settings, frames."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tftraining.launch import progress, success_file
from tftraining.launch.config.json_text import parse
from tftraining.launch.config.settings import SettingsError, read
from tftraining.launch.config.spec_updates import obeyed
from tftraining.launch.failure import incident, ledger, result
from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.ledger import Ledger
from tftraining.launch.failure.result import Verdict
from tftraining.launch.failure.same_failure import SameFailure
from tftraining.launch.gang.watchdog import Look, stalled
from tftraining.launch.launcher import program_digest, program_environment
from tftraining.launch.progress import Snapshot
from tftraining.launch.rendezvous import protocol
from tftraining.launch.rendezvous.protocol import WireError

COUNTS = st.integers(0, 50)
ROWS = st.one_of(st.just(SameFailure()), st.builds(SameFailure, st.sampled_from("ab"), st.integers(1, 9), COUNTS))
LEDGERS = st.builds(Ledger, COUNTS, COUNTS, COUNTS, st.just(0), COUNTS, COUNTS, ROWS)


@given(LEDGERS, LEDGERS)
def test_a_merge_forgets_nothing_and_does_not_ask_who_is_first(one: Ledger, other: Ledger) -> None:
    merged = ledger.merge(one, other)
    assert merged == ledger.merge(other, one)
    assert merged.failures >= max(one.failures, other.failures)
    assert ledger.merge(merged, one) == merged


@given(LEDGERS)
def test_a_ledger_survives_its_journey(one: Ledger) -> None:
    assert Ledger.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_what_progress_has_set_back_stays_so_whoever_remembers_more() -> None:
    old = Ledger(process_failures=4, without_progress=4, incidents=6)
    new = ledger.account(old, charged=False, progressed=True, refill=True)
    assert (ledger.merge(old, new), ledger.merge(new, old)) == (new, new)


def test_of_two_that_launchers_of_an_older_version_kept_the_one_with_more_restarts_is_the_later() -> None:
    before = Ledger(in_place=1, process_failures=1, without_progress=1)
    after = Ledger(in_place=2, process_failures=3, without_progress=0)
    assert (ledger.merge(before, after), ledger.merge(after, before)) == (after, after)


def test_the_waits_grow_to_a_minute() -> None:
    waits = [ledger.wait(Ledger(without_progress=number)) for number in (0, 1, 2, 3, 4, 7, 8, 9, 5000)]
    assert waits == [0, 0, 1, 2, 4, 32, 60, 60, 60]


def test_exits_are_described_for_people() -> None:
    assert incident.describe("worker-1", Exit(None, 9)) == "worker-1 was killed (SIGKILL)"
    told = incident.describe("worker-0", Exit(3, None, ("a", "b ", "")))
    assert told == "worker-0 failed with exit code 3: b"
    assert "tf_keras" in incident.describe("worker-0", Exit(1, None, ("ValueError: PerReplica",), "Keras3Fit"))
    assert [incident.exit_code(each) for each in (None, Exit(0, None), Exit(3, None), Exit(None, 9))] == [1, 1, 3, 137]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("NotFound", "the command was not found"),
        ("SyntaxError", "the program has a syntax error"),
        ("ImportError", "the program cannot import a module"),
    ],
)
def test_what_trying_again_cannot_mend_is_said(kind: str, words: str) -> None:
    assert words in incident.describe("worker-1", Exit(1, None, ("the last line",), kind))


@settings(max_examples=50)
@given(st.lists(st.text(max_size=2000), max_size=40), st.text(max_size=3000))
def test_the_last_lines_always_fit(lines: list[str], told: str) -> None:
    kept = incident.bounded(tuple(lines), 2000)
    assert len(json.dumps(kept)) <= 2000 or kept == []
    text = result.termination_message(
        Verdict("Failed", "Error", "m" * 5000, "worker-1", Exit(1, None, tuple(lines))), Ledger(), {"progress": told}
    )
    assert len(text.encode("utf-8", "surrogatepass")) <= result.MESSAGE_BYTES
    first = text.splitlines()[0]
    assert json.loads(first.removeprefix("tftraining/1 "))["exitCode"] == 1


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_where_there_is_no_room_no_line_is_kept(limit: int) -> None:
    assert incident.bounded(("a", ""), limit) == []


@pytest.mark.parametrize("character", ["m", '"', "ä", "\U0001f600", "\0", "\udcff"])
def test_the_message_is_cut_by_what_it_takes_as_json(character: str) -> None:
    ended = Exit(1, None, ("the last line",))
    told = {"progress": "p" * 1400}
    text = result.termination_message(Verdict("Failed", "Error", character * 5000, "w-1", ended), Ledger(), told)
    assert len(text.encode("utf-8", "surrogatepass")) <= result.MESSAGE_BYTES
    head, last, _ = text.split("\n")
    found = json.loads(head.removeprefix("tftraining/1 "))
    assert (last, found["progress"]) == ("the last line", told["progress"])
    size = len(json.dumps(found["message"]))
    assert result.WORDS_BYTES - incident.CHARACTER_BYTES < size <= result.WORDS_BYTES


@pytest.mark.parametrize(("limit", "kept"), [(13, 10), (12, 10), (11, 9), (2, 0)])
def test_a_text_is_cut_no_shorter_than_it_has_to_be(limit: int, kept: int) -> None:
    """Ten characters are twelve bytes of JSON."""
    assert incident.cut("m" * 10, limit) == "m" * kept


def test_a_success_is_read_only_by_the_job_that_left_it(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    assert success_file.read_success(directory, "a") is None
    success_file.write_success(directory, "a")
    success_file.write_success(directory, "a")
    found = success_file.read_success(directory, "a")
    assert found is not None
    assert found.verdict == "Succeeded"
    assert success_file.read_success(directory, "b") is None
    assert [path.name for path in directory.iterdir()] == [success_file.FILE]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"uid": "a"}', b'{"uid": "a", "verdict": "Failed"}'])
def test_nonsense_is_no_success(tmp_path: Path, content: bytes) -> None:
    (tmp_path / success_file.FILE).write_bytes(content)
    assert success_file.read_success(tmp_path, "a") is None


def test_a_link_is_no_success(tmp_path: Path) -> None:
    success_file.write_success(tmp_path / "elsewhere", "a")
    (tmp_path / success_file.FILE).symlink_to(tmp_path / "elsewhere" / success_file.FILE)
    assert success_file.read_success(tmp_path, "a") is None


def look(member: str, step: int, last: float, stuck: float = 0.0, reporter: bool = True) -> Look:
    return Look(member, reporter, 0.0, Snapshot(step=step, last_step_time=last, updated=1.0), stuck)


@pytest.mark.parametrize(
    ("looks", "blamed"),
    [
        ([look("a", 5, 95), look("b", 5, 95)], []),
        ([look("a", 5, 80), look("b", 5, 80)], ["a", "b"]),
        ([look("a", 5, 80), look("b", 4, 79)], ["b"]),
        ([look("a", 1, 80), look("b", 0, 79)], ["b"]),
        ([look("a", 5, 80), look("b", 5, 80, stuck=15.0)], ["b"]),
        ([look("a", 5, 95), look("b", 4, 80)], ["b"]),
        ([look("a", 0, 0, reporter=False), look("b", 0, 0, reporter=False)], []),
    ],
)
def test_who_stands_still(looks: list[Look], blamed: list[str]) -> None:
    assert stalled(looks, 10.0, 100.0) == blamed


def test_progress_travels_as_ages() -> None:
    there = Snapshot(epoch=2, step=7, first_step_time=10.0, last_step_time=19.0, updated=1e9, metrics={"loss": 0.5})
    frame = json.loads(json.dumps(progress.to_frame(there, 20.0)))
    here = progress.from_frame(frame, 1000.0)
    assert (here.first_step_time, here.last_step_time) == (990.0, 999.0)
    assert (here.epoch, here.step, here.metrics, here.epochs) == (2, 7, {"loss": 0.5}, None)


@pytest.mark.parametrize("at", [-1e30, 0.0, 1e30])
def test_any_clock_can_be_written(at: float) -> None:
    assert progress.rfc3339(at).endswith("Z")


def test_a_program_without_reports_trains_after_a_while() -> None:
    assert not progress.trains(Snapshot(), 0.0, 29.9)
    assert progress.trains(Snapshot(), 0.0, 30.0)
    assert not progress.trains(Snapshot(updated=1.0), 0.0, 31.0)
    assert not progress.trains(Snapshot(connecting=True), 0.0, 31.0)
    assert progress.trains(Snapshot(updated=1.0, first_step_time=2.0), 0.0, 3.0)


CONFIG = {"cluster": {"worker": ["a:1", "b:1"], "ps": ["c:1"]}, "task": {"type": "worker", "index": 1}}
LAUNCHER: dict[str, Any] = {
    "job": {"namespace": "n", "name": "j", "uid": "u"},
    "attempt": 2,
    "rendezvous": "[::1]:8471",
    "statusPort": 8472,
    "secretFile": "/key",
    "directory": None,
    "budgetReset": "Never",
    "stallTimeoutSeconds": None,
    "ledger": {"podFailures": 3},
}


def environment(config: object = CONFIG, **launcher: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps(config), "TFTRAINING_LAUNCHER": json.dumps({**LAUNCHER, **launcher})}


def test_settings_are_read_once_and_whole() -> None:
    settings = read(environment())
    assert (settings.gang.members, settings.gang.me) == (("worker-0", "worker-1", "ps-0"), "worker-1")
    assert (settings.gang.chief, settings.is_chief, settings.gang.trainers) == (
        "worker-0",
        False,
        ("worker-0", "worker-1"),
    )
    assert (settings.rendezvous, settings.host, settings.directory) == (("::1", 8471), "", None)
    assert (settings.policy.refill, settings.policy.stall_timeout, settings.ledger.pod_failures) == (False, None, 3)


@pytest.mark.parametrize(("told", "proven"), [({}, False), ({"proven": False}, False), ({"proven": True}, True)])
def test_an_older_operator_does_not_tell_of_steps(told: dict[str, object], proven: bool) -> None:
    assert read(environment(**told)).proven is proven


def test_orders_change_what_they_name_and_nothing_else() -> None:
    settings = read(environment(budgetReset="Never", successPolicy="AllWorkers"))
    workers = {"workers": len(settings.gang.trainers)}
    assert obeyed(settings, workers) == (settings.gang, settings.policy), "an older operator names fewer"
    _, policy = obeyed(settings, {**workers, "budgetReset": "OnProgress", "successPolicy": "Chief"})
    assert (policy.refill, policy.all_workers) == (True, False)


def test_an_evaluator_is_told_of_the_gang_but_not_in_it() -> None:
    settings = read(environment({**CONFIG, "task": {"type": "evaluator", "index": 0}}))
    assert (settings.in_gang, settings.gang.chief) == (False, "worker-0")


@pytest.mark.parametrize(
    "config",
    [
        {},
        [],
        {"cluster": {"ps": ["a"]}, "task": {"type": "ps", "index": 0}},
        {**CONFIG, "task": {"type": "worker", "index": 5}},
    ],
)
def test_a_wrong_tf_config_is_named(config: object) -> None:
    with pytest.raises(SettingsError, match="TF_CONFIG"):
        read(environment(config))


@pytest.mark.parametrize(
    "change", [{"rendezvous": "x"}, {"statusPort": 99999}, {"memberTimeoutSeconds": "soon"}, {"job": {}}]
)
def test_a_wrong_field_is_named(change: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="TFTRAINING_LAUNCHER"):
        read(environment(**change))


def test_the_program_does_not_see_the_launchers_settings() -> None:
    assert program_environment({"A": "1", "TFTRAINING_LAUNCHER": "{}"}, 1) == {"A": "1"}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (["python", "-u", "train.py", "--index", "0"], ["python", "-u", "train.py", "--index", "1"], True),
        (["python", "-m", "train", "0"], ["python", "-m", "train", "1"], True),
        (["python", "train.py"], ["python", "evaluate.py"], False),
        (["python", "-m", "train"], ["python", "-m", "evaluate"], False),
        (["train"], ["train", "--fast"], True),
    ],
)
def test_what_program_a_command_starts(one: list[str], other: list[str], same: bool) -> None:
    assert (program_digest(one) == program_digest(other)) == same


DEEP = "[" * 20_000


@pytest.mark.parametrize("text", [DEEP, DEEP + "]" * 20_000, '{"a":' * 20_000])
def test_json_of_any_depth_is_no_more_than_wrong(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(text)
    (tmp_path / success_file.FILE).write_text(text[: success_file.FILE_BYTES])
    assert success_file.read_success(tmp_path, "a") is None
    with pytest.raises(WireError, match="not JSON"):
        protocol._parse(text.encode())


def test_a_write_that_was_interrupted_does_not_keep_the_next_launcher_from_leaving_its_verdict(tmp_path: Path) -> None:
    (tmp_path / f"{success_file.FILE}.1").write_text("{")
    (tmp_path / f"{success_file.FILE}.{os.getpid()}").write_text("{")
    success_file.write_success(tmp_path, "a")
    assert success_file.read_success(tmp_path, "a") is not None
    assert [path.name for path in tmp_path.iterdir()] == [success_file.FILE]

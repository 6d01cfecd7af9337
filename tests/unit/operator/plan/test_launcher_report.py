"""What launchers say is read strictly: a pod is not trusted, and nonsense is ignored rather than half believed."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from tftraining.launch.failure.exit import Exit
from tftraining.launch.failure.restart_budget import Ledger
from tftraining.launch.failure.result import FAILED, Result, termination_message
from tftraining_operator.cluster.launcher_reports import MAX_ANSWER_BYTES
from tftraining_operator.model.launcher_report import parse_report, split_result

LAST = {"time": "2026-03-01T12:00:00.25Z", "member": "worker-1", "signal": 9, "reason": "Killed", "downSeconds": 1.1}


def status(**fields: Any) -> bytes:
    return json.dumps({"version": 1, "phase": "Training", **fields}).encode()


def test_a_whole_report() -> None:
    progress = {"epoch": 3, "epochs": 10, "step": 140, "stepsPerSecond": 12.3456, "metrics": {"loss": 0.5}}
    report = parse_report(
        status(round=3, ledger={"inPlace": 2}, lastRestart=LAST, progress=progress, missing=[], members={"x": 1})
    )
    assert report.ledger.in_place == 2
    assert report.last_restart is not None and report.last_restart.down_seconds == 1.1
    assert report.progress is not None
    shown = report.progress.progress()
    assert (shown.display, shown.steps_per_second, shown.metrics) == ("epoch 3/10", 12.35, {"loss": 0.5})


def test_who_lacks_gpus() -> None:
    assert parse_report(status()).no_gpu == (), "an older launcher says nothing of it"
    assert parse_report(status(noGpu=["worker-1", "evaluator-0"])).no_gpu == ("worker-1", "evaluator-0")
    for wrong in (5, "worker-1", ["worker"], ["worker-1; rm"], [None]):
        with pytest.raises(ValueError):
            parse_report(status(noGpu=wrong))


@pytest.mark.parametrize(
    ("progress", "display"),
    [({"epoch": 3}, "epoch 3"), ({"step": 70}, "step 70"), ({}, None), ({"epoch": 1, "epochs": 0}, "epoch 1")],
)
def test_progress_for_people(progress: dict[str, Any], display: str | None) -> None:
    report = parse_report(status(progress=progress))
    assert report.progress is not None and report.progress.progress().display == display


def test_metrics_that_are_no_numbers_cost_only_themselves() -> None:
    text = (
        b'{"phase": "Training", "progress": {"step": 1, "metrics": {"loss": NaN, "x": Infinity, "y": 1e999, "a": 1}}}'
    )
    report = parse_report(text)
    assert report.progress is not None and report.progress.progress().metrics == {"a": 1.0}


def test_there_are_not_more_metrics_than_the_status_takes() -> None:
    report = parse_report(status(progress={"metrics": {f"metric {number}": number for number in range(200)}}))
    assert report.progress is not None and len(report.progress.progress().metrics) == 64


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"ok",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 50_000,
        b"[" * 100_000,
        status(message="x" * 300_000)[:-1],
        status(message="x" * 300_000, phase="Dancing"),
        b'{"phase": "Training", "round": ' + b"9" * 5000 + b"}",
        status(phase="Dancing"),
        status(version=2),
        status(round=-1),
        status(round=2**60),
        status(round="3"),
        status(ledger={"inPlace": 10**7}),
        status(ledger=[]),
        status(ledger={"sameFailure": {"key": "../x", "count": 1, "since": 1}}),
        status(ledger={"sameFailure": {"key": "a", "count": -1, "since": 1}}),
        status(ledger={"sameFailure": {"key": "a", "count": 1, "since": 10**20}}),
        status(ledger={"sameFailure": {"key": "a", "count": 1}}),
        status(failure={"member": "worker-1", "exception": 5}),
        status(missing=["../../etc"]),
        status(missing="worker-1"),
        status(lastRestart={**LAST, "member": "worker-1; rm"}),
        status(lastRestart={**LAST, "time": "2026-03-01T12:00:00"}),
        status(lastRestart={**LAST, "time": 5}),
        status(lastRestart={**LAST, "signal": 900}),
        status(lastRestart={**LAST, "downSeconds": -1}),
        status(lastRestart={**LAST, "downSeconds": 1e300}),
        status(progress={"step": 1.5}),
        status(progress={"metrics": {"loss": "low"}}),
    ],
    ids=lambda text: text[:60].decode(errors="replace"),
)
def test_nonsense_is_no_report(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_report(text)


def test_words_are_bounded() -> None:
    report = parse_report(
        status(
            message="a\nb " * 10_000,
            reason="no reason at all",
            failure={
                "member": "worker-1",
                "reason": "x" * 500,
                "exception": "z\n" * 1000,
                "logTail": "y" * 100_000 + "the end",
            },
        )
    )
    assert len(report.message) == 1024 and "\n" not in report.message
    assert report.reason == ""
    assert report.failure is not None and report.failure.reason == ""
    assert report.failure.exception == "z " * 150
    assert report.failure.log_tail is not None and len(report.failure.log_tail) == 4096
    assert report.failure.log_tail.endswith("the end")


def a_gang(size: int) -> dict[str, Any]:
    """What the chief tells of each member, as long as it gets."""
    one = {"state": "restarting", "round": 1000, "mode": "multi-worker", "pid": 4194304, "step": 10**9}
    return {f"worker-{number}": {**one, "silentSeconds": 10000.1} for number in range(size)}


def test_the_largest_gang_can_say_how_it_goes() -> None:
    finished = [f"worker-{number}" for number in range(9_999)]
    text = status(members=a_gang(10_000), finished=finished, progress={"metrics": {"loss": 0.5}})
    assert len(text) < MAX_ANSWER_BYTES
    report = parse_report(text)
    assert len(report.finished) == 9_999
    assert report.progress is not None and report.progress.metrics == {"loss": 0.5}


def test_what_is_kept_of_a_long_answer_is_little() -> None:
    many = {f"metric {number}": number for number in range(5_000)}
    report = parse_report(status(progress={"metrics": many}, finished=["ps-1"] * 20_000))
    assert report.progress is not None and len(report.progress.metrics) == 64
    assert len(report.finished) == 10_000


def test_the_longest_that_a_gang_can_say_is_read() -> None:
    names = [f"worker-{number}" for number in range(10_000)]
    members = {name: {"state": "Training", "address": "x" * 80} for name in names}
    report = parse_report(status(missing=names, finished=names, noGpu=names, members=members))
    assert (len(report.missing), len(report.finished), len(report.no_gpu)) == (16, 10_000, 10_000)


@pytest.mark.parametrize(
    "said",
    [
        {"progress": {"metrics": {f"metric {number}": number for number in range(100_000)}}},
        {"finished": ["ps-1"] * 300_000},
        {"missing": ["ps-1"] * 40_000, "noGpu": ["ps-1"] * 40_000},
    ],
)
def test_what_would_hold_up_everybody_else_is_not_read(said: dict[str, object]) -> None:
    """The event loop reads the reports of all jobs: one of 4 MiB of names took a fifth of a second."""
    with pytest.raises(ValueError, match="its lists and metrics have"):
        parse_report(status(**said))


@pytest.mark.parametrize("unit", [b"[[]]", b'{"":0}'])
def test_a_long_answer_builds_nothing_that_nobody_asks_for(unit: bytes) -> None:
    """It would take half a second and 130 MB of the operator; this is how it would feel with every hostile job."""
    text = status(x=[]).replace(b"[]", b"[" + b",".join([unit] * (MAX_ANSWER_BYTES // 8)) + b"]")
    tracemalloc.start()
    try:
        assert parse_report(text).phase == "Training"
        assert tracemalloc.get_traced_memory()[1] < 5 * len(text)
    finally:
        tracemalloc.stop()


def test_a_verdict_as_the_launcher_writes_it() -> None:
    ended = Exit(3, None, ("loss 0.5", "ValueError: no"), "")
    verdict = Result(FAILED, "MaxRestartsExceeded", "worker-1 failed", "worker-1", ended)
    told = {"progress": {"epoch": 3, "epochs": 10}, "lastRestart": None}
    found, lines = split_result(termination_message(verdict, Ledger(in_place=2, process_failures=1), told))
    assert found is not None
    assert found.progress is not None and found.progress.progress().display == "epoch 3/10"
    assert (found.verdict, found.reason, found.member, found.exit_code) == (
        "Failed", "MaxRestartsExceeded", "worker-1", 3,
    )  # fmt: skip
    assert (found.ledger.in_place, found.ledger.process_failures) == (2, 1)
    assert lines == "loss 0.5\nValueError: no\n"


@pytest.mark.parametrize("message", ["", "epoch 3\nKilled", "tftraining/2 {}\n", "x tftraining/1 {}"])
def test_a_message_without_a_verdict_is_left_alone(message: str) -> None:
    assert split_result(message) == (None, message)


@pytest.mark.parametrize("line", ["", "{", "[]", '{"verdict": "Perhaps"}', '{"verdict": "Failed", "exitCode": "x"}'])
def test_a_verdict_that_is_none_is_not_shown_as_a_log_line(line: str) -> None:
    assert split_result(f"tftraining/1 {line}\nlast") == (None, "last")


def test_what_is_read_can_be_written() -> None:
    report = parse_report(
        status(progress={"step": 2**53, "metrics": {"a": 1e300}, "updatedTime": "9999-12-31T00:00:00Z"})
    )
    assert report.progress is not None
    assert msgspec.json.encode(report.progress.progress())


def test_half_a_character_is_replaced_before_anybody_writes_it_on() -> None:
    half, whole = chr(0xD800), chr(0x1F600)
    words = f"a {half} b {whole}"
    report = parse_report(
        status(message=words, failure={"logTail": words}, progress={"metrics": {words: 1}}, reason=half)
    )
    found, _ = split_result("tftraining/1 " + json.dumps({"verdict": "Failed", "message": words}))
    assert found is not None and report.failure is not None and report.progress is not None
    texts = [found.message, report.message, report.failure.log_tail, *report.progress.progress().metrics]
    assert (texts, report.reason) == ([f"a ? b {whole}"] * 4, "")

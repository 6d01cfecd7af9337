"""What is shown: plain lines for files, the same in colour above a display for terminals."""

import io
import sys
from typing import Any

import pytest
from rich.console import Console

from tftraining_client.local.display import fraction
from tftraining_client.local.screen import LiveScreen, PlainScreen, make_screen
from tftraining_client.local.timeline import Timeline

NAMES = ("worker-0", "evaluator-0")
STATUS = {
    "phase": "Training",
    "job": {"name": "digits"},
    "members": {"worker-0": {"state": "running", "step": 140}, "worker-1": {"state": "ready", "step": None}},
    "missing": ["worker-1"],
    "progress": {"epoch": 3, "epochs": 10, "step": 140, "stepsPerEpoch": 70},
    "lastRestart": {"time": "now", "downSeconds": 1.2},
}


def timeline() -> Timeline:
    seen = Timeline()
    seen.record_status(STATUS, 5.0)
    return seen


def test_plain() -> None:
    stream = io.StringIO()
    screen = PlainScreen(NAMES, stream)
    screen.output("worker-0", ["one [bold]", "\033[31mtwo"])
    screen.output("evaluator-0", [""])
    screen.note("three\nfour")
    screen.show(timeline(), 5.0)
    screen.show(timeline(), 6.0)
    screen.close()
    assert stream.getvalue().splitlines()[:5] == [
        "worker-0    | one [bold]",
        "worker-0    | \033[31mtwo",
        "evaluator-0 | ",
        "tftj        | three",
        "tftj        | four",
    ]
    assert stream.getvalue().splitlines()[5] == "tftj        | epoch 3/10, step 140/700"


def shown(**options: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100, **options)  # type: ignore[arg-type]
    screen = LiveScreen(NAMES, console)
    screen.output("worker-0", ["one [bold]", "\033[31mtwo\033[0m"])
    screen.note("three")
    screen.show(timeline(), 5.0)
    screen.close()
    return stream.getvalue()


def test_on_a_terminal() -> None:
    text = shown(color_system="standard")
    assert "\033[36mworker-0    | \033[0mone [bold]" in text
    assert "\033[31mtwo" in text
    for words in (
        "digits",
        "Training",
        "restarts: 1, 1.2 s lost",
        "epoch 3/10, step 140/700",
        "worker-0 running step 140",
    ):
        assert words in text
    assert "waiting for worker-1" in text


def test_without_colours() -> None:
    text = shown(color_system="standard", no_color=True)
    assert "worker-0    | " in text
    assert "\033[36m" not in text
    assert "\033[31m" not in text


@pytest.mark.parametrize(
    ("progress", "part"),
    [
        ({}, 0.0),
        ({"step": 7}, 0.0),
        ({"epoch": 3, "epochs": 10}, 0.2),
        ({"epoch": 10, "epochs": 10, "step": 700, "stepsPerEpoch": 70}, 1.0),
        ({"epoch": 3, "epochs": 10, "step": 140, "stepsPerEpoch": 70}, 0.2),
        ({"epoch": 3, "epochs": 2, "step": 900, "stepsPerEpoch": 70}, 1.0),
    ],
)
def test_the_bar_knows_the_end_or_stays_empty(progress: dict[str, Any], part: float) -> None:
    assert fraction(progress) == part


def test_what_is_no_terminal_gets_plain_lines() -> None:
    assert isinstance(make_screen(NAMES), PlainScreen)


def test_letters_that_the_output_does_not_know_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    make_screen(["worker-0"]).output("worker-0", ["█ 100 %"])
    assert raw.getvalue() == b"worker-0 | \\u2588 100 %\n"

"""The options that all programs share, and how a program ends."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tftraining import options
from tftraining.data import DataError
from tftraining.options import Defaults, UsageError, check_packages, make_directory, make_parser, run_program

DEFAULTS = Defaults(3, 16, 0.5, batch="for each worker", optimizer="Adam")


def test_every_program_has_the_same_options() -> None:
    parsed = make_parser("program", "First line.\n\nRest.", DEFAULTS).parse_args(["--steps-per-epoch", "7"])
    assert (parsed.epochs, parsed.batch_size, parsed.learning_rate, parsed.steps_per_epoch) == (3, 16, 0.5, 7)
    assert (parsed.data, parsed.precision, parsed.jit, parsed.seed) == ("digits", "float32", False, 1)


def test_the_help_says_what_and_the_defaults() -> None:
    text = make_parser("program", "First line.\n\nRest.", DEFAULTS).format_help()
    assert "First line." in text
    assert "Rest." not in text
    assert "of Adam (default 0.5)" in text
    assert "as many as the data give" in text


@pytest.mark.parametrize(
    "wrong",
    [
        ["--epochs", "0"],
        ["--batch-size", "-1"],
        ["--data", "cats"],
        ["--precision", "8"],
        *(["--learning-rate", rate] for rate in ("-1", "0", "nan", "inf", "fast")),
        ["--directory", "gs://bucket/x"],
    ],
)
def test_wrong_options_end_the_program(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        make_parser("program", "One line.", DEFAULTS).parse_args(wrong)
    assert end.value.code == 2


def test_a_package_that_an_option_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    given = argparse.Namespace(plot="curves.png", logdir=None)
    check_packages(given)
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="--plot needs the package matplotlib"):
        check_packages(given)


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    make_directory(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(UsageError, match="cannot make the directory /dev/null/x"):
        make_directory("/dev/null/x")


@pytest.mark.parametrize("error", [UsageError("no GPUs"), DataError("no file x")])
def test_what_cannot_be_done_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace) -> None:
        raise error

    given = argparse.Namespace(plot=None, logdir=None)
    assert run_program("program", given, run) == 2
    assert capsys.readouterr().err == f"program: {error}\n"
    assert run_program("program", given, lambda options: None) == 0

"""The options that all programs share, and how a program ends."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tftraining.lib import options
from tftraining.lib.data import DataError
from tftraining.lib.options import (
    MARK,
    Defaults,
    UsageError,
    add_devices,
    check_packages,
    make_directory,
    make_parser,
    run_program,
)

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
    assert "one pass over the data" in text


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


def test_devices_are_chosen_by_their_numbers() -> None:
    parser = argparse.ArgumentParser()
    add_devices(parser.add_argument_group("this program"))
    assert parser.parse_args([]).devices is None
    assert parser.parse_args(["--devices", "0,2"]).devices == [0, 2]
    for wrong in ("", "0,0", "one", "-1", "0;2"):
        with pytest.raises(SystemExit):
            parser.parse_args([f"--devices={wrong}"])


def test_a_span_of_steps() -> None:
    parser = make_parser("program", "One line.", DEFAULTS)
    assert parser.parse_args(["--profile-steps", "10:20"]).profile_steps == (10, 20)
    for wrong in ("10", "20:10", "10:10", "a:b", "-1:5"):
        with pytest.raises(SystemExit):
            parser.parse_args([f"--profile-steps={wrong}"])
    with pytest.raises(UsageError, match="--profile-steps needs --logdir"):
        check_packages(parser.parse_args(["--profile-steps", "10:20"]))


def test_a_package_that_an_option_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    options_given = argparse.Namespace(plot="curves.png", logdir=None, profile_steps=None)
    check_packages(options_given)
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="--plot needs the package matplotlib"):
        check_packages(options_given)


def given(directory: str | Path, **values: object) -> argparse.Namespace:
    return argparse.Namespace(directory=str(directory), **values)


def test_a_directory_that_cannot_be_is_named(tmp_path: Path) -> None:
    make_directory("program", given(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(UsageError, match="cannot create the directory /dev/null/x"):
        make_directory("program", given("/dev/null/x"))


def test_a_directory_with_the_work_of_another_program_is_refused(tmp_path: Path) -> None:
    make_directory("first", given(tmp_path, keras="3", hidden=(7, 5)), "keras", "hidden")
    make_directory("first", given(tmp_path, keras="3", hidden=(7, 5), epochs=9), "keras", "hidden")
    with pytest.raises(UsageError, match=r" holds the work of first: choose another --directory"):
        make_directory("second", given(tmp_path))
    with pytest.raises(UsageError, match=r" holds the work of first with --keras 3 --hidden 7 5: choose another"):
        make_directory("first", given(tmp_path, keras="legacy", hidden=(7, 6)), "keras", "hidden")


def test_the_directory_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("{}")
    make_directory("first", given(tmp_path))
    (tmp_path / MARK).write_text("{damaged")
    make_directory("second", given(tmp_path))
    with pytest.raises(UsageError, match="the work of second"):
        make_directory("first", given(tmp_path))


def test_each_program_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFTRAINING_DIR", raising=False)
    assert make_parser("first", "One line.", DEFAULTS).parse_args([]).directory == "training-output/first"
    monkeypatch.setenv("TFTRAINING_DIR", "/training/job")
    assert make_parser("first", "One line.", DEFAULTS).parse_args([]).directory == "/training/job"


@pytest.mark.parametrize("error", [UsageError("no GPUs"), DataError("no file x")])
def test_what_cannot_be_done_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def run(options: argparse.Namespace) -> None:
        raise error

    assert run_program("program", argparse.Namespace(plot=None, logdir=None, profile_steps=None), run) == 2
    assert capsys.readouterr().err == f"program: {error}\n"
    assert (
        run_program("program", argparse.Namespace(plot=None, logdir=None, profile_steps=None), lambda options: None)
        == 0
    )

"""The environment of the program, and the digest of its command."""

from __future__ import annotations

import pytest

from tftraining.launch.launcher import program_digest, program_environment


def test_the_program_does_not_see_the_launchers_settings() -> None:
    assert program_environment({"A": "1", "TFTRAINING_LAUNCHER": "{}"}, 2, "Own") == {"A": "1"}


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
def test_the_digest_of_a_command_ignores_its_arguments(one: list[str], other: list[str], same: bool) -> None:
    assert (program_digest(one) == program_digest(other)) == same

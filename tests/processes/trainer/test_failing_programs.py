"""The messages of docs/troubleshooting.md are those of real programs, with both Kerases."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.repository import REPOSITORY
from tests.support.trainer.failing_programs import CAUSES, HEAD

FIRST, OTHERS = CAUSES[:2], CAUSES[2:]  # the first are the most frequent ones
TROUBLESHOOTING = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SECTION = TROUBLESHOOTING[TROUBLESHOOTING.index(HEAD) :]


@pytest.mark.parametrize("causes", [FIRST, pytest.param(OTHERS, marks=pytest.mark.slow_fault)], ids=len)
def test_the_page_has_the_messages_of_real_programs(causes: list[str]) -> None:
    command = [sys.executable, "-m", "tests.support.trainer.failing_programs", *causes]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout.splitlines()
    assert len(told) == len(causes)
    assert [row for row in told if row not in SECTION.splitlines()] == []


def test_the_page_has_no_other_rows() -> None:
    rows = [line.split(" | ")[0][2:] for line in SECTION.splitlines() if line.startswith("| ")]
    assert [each for each in rows if each != "cause"] == CAUSES

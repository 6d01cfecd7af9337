"""docs/assumptions.md: each assumption names a test that there is, or says that none shows it."""

import re

from tests.support.repository import REPOSITORY

PAGE = REPOSITORY / "docs" / "assumptions.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[list[str]]:
    """The cells of each assumption."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith("| assumption")]


def test_each_assumption_has_a_consequence_and_a_test_or_none() -> None:
    assert len(rows()) > 15
    for assumption, consequence, shown in rows():
        assert assumption and consequence
        assert TEST.fullmatch(shown) or shown.startswith("not tested"), assumption


def test_the_tests_exist() -> None:
    named = TEST.findall(PAGE.read_text())
    assert len(named) > 10
    for path, name in named:
        text = (REPOSITORY / path).read_text()
        assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{path} has no {name}"

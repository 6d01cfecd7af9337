"""docs/architecture.md: each line of the assumptions names a test that there is, or says that none shows it."""

import re

from tests.support.repository import REPOSITORY

PAGE = REPOSITORY / "docs" / "architecture.md"
_, _, SECTION = PAGE.read_text(encoding="utf-8").partition("\n## Assumptions: what safety rests on\n")
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[list[str]]:
    """The cells of each line."""
    lines = [line for line in SECTION.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith("| if | then |")]


def test_each_line_has_a_consequence_and_a_test_or_none() -> None:
    assert len(rows()) > 15
    for condition, consequence, shown in rows():
        assert condition and consequence
        assert TEST.fullmatch(shown) or shown.startswith("not tested"), condition


def test_the_tests_exist() -> None:
    named = TEST.findall(SECTION)
    assert len(named) > 10
    for path, name in named:
        text = (REPOSITORY / path).read_text()
        assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), f"{path} has no {name}"

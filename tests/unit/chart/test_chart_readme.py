"""The table of values in the chart's README is that of values.yaml, and has every value."""

import pytest
import yaml

from testbed.chart_readme import CHART, table, updated, values
from testbed.shell import LabError

README = (CHART / "README.md").read_text(encoding="utf-8")
SOURCE = (CHART / "values.yaml").read_text(encoding="utf-8")


def test_the_readme_is_current() -> None:
    assert updated(README, SOURCE) == README, "run: make chart-readme"


def leaves(tree: object) -> bool:
    """Whether anything but empty objects is left."""
    return any(map(leaves, tree.values())) if isinstance(tree, dict) else True


def test_the_table_has_every_value_with_its_default() -> None:
    found = yaml.safe_load(SOURCE)
    for value in values(SOURCE):
        *parents, name = value.path.split(".")
        place = found
        for parent in parents:
            place = place[parent]
        assert place.pop(name) == value.default
    assert not leaves(found)


def test_a_value_without_a_comment_is_named() -> None:
    with pytest.raises(LabError, match=r"no comment above a\.b"):
        table("# Of a.\na:\n  b: 1\n")

"""The table of values in the chart's README, from values.yaml: each value with its default and the comment above it.

    python -m testbed.chart_readme

A value is a line `name: …` that no other line is indented below. LabError names a value without a comment.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from testbed.shell import LabError, say

CHART = Path(__file__).parents[1] / "charts" / "tftraining-operator"
BEGIN, END = "<!-- values: made by `make chart-readme` -->\n", "<!-- end of values -->\n"
LINE = re.compile(r"(?P<indent> *)(?P<name>\w+):(?: (?P<value>.*))?")


class Value(NamedTuple):
    """One value of the chart."""

    path: str
    default: object
    description: str


def values(text: str) -> Iterator[Value]:
    """The values of a values.yaml, in their order."""
    parents: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        if found is None:
            stripped = line.strip()
            comment = [*comment, stripped.removeprefix("#").strip()] if stripped.startswith("#") else []
            continue
        parents = [*parents[: len(found["indent"]) // 2], found["name"]]
        if found["value"] is not None:
            path = ".".join(parents)
            if not comment:
                raise LabError(f"values.yaml has no comment above {path}")
            yield Value(path, yaml.safe_load(found["value"]), " ".join(comment))
        comment = []


def table(text: str) -> str:
    """The table in Markdown."""
    rows = [f"| `{each.path}` | `{json.dumps(each.default)}` | {each.description} |\n" for each in values(text)]
    return "| value | default | meaning |\n|---|---|---|\n" + "".join(rows)


def updated(readme: str, text: str) -> str:
    """The README with the table of these values between its two marks."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise LabError(f"README.md of the chart lacks the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{table(text)}\n{END}{after}"


def main() -> int:
    """Write the README; 1 after one line with the error."""
    readme, source = CHART / "README.md", CHART / "values.yaml"
    try:
        text = updated(readme.read_text(encoding="utf-8"), source.read_text(encoding="utf-8"))
    except LabError as error:
        say(f"error: {error}")
        return 1
    readme.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

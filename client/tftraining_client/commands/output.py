"""The output of the commands: formats for programs, tables and hints for people."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

from tftraining_api.model.names import API_VERSION, GROUP, KIND
from tftraining_client.visible import escaped_json, visible, visible_line

PHASES = {"Running": "green", "Succeeded": "green", "Failed": "red", "Restarting": "yellow", "Suspended": "magenta"}
GAP = 3
NARROWEST_TEXT = 12
ELLIPSIS = "…"


@dataclass(frozen=True)
class Column:
    """A column of a table. On a terminal that is too narrow the columns go in the order of `rank`, the highest first;
    one of rank 0 stays. A text is cut at the end of the line instead."""

    title: str
    rank: int = 0
    text: bool = False


Cell = tuple[str, str]


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> list[list[Cell]]:
    """The lines of a table, each a list of texts with their styles; `width` None is that of a pipe: unlimited."""
    rows = [[(visible_line(text), style) for text, style in row] for row in rows]
    shown = list(range(len(columns)))
    widths = [max([len(column.title), *(len(row[place][0]) for row in rows)]) for place, column in enumerate(columns)]
    while width is not None and _least(columns, widths, shown) > width and any(columns[each].rank for each in shown):
        shown.remove(max(shown, key=lambda each: columns[each].rank))
    if width is not None:
        _cut(columns, widths, shown, width)
    head = [(column.title, "bold") for column in columns]
    return [_line(row, widths, shown) for row in (head, *rows)]


def _least(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int]) -> int:
    needed = [min(widths[each], NARROWEST_TEXT) if columns[each].text else widths[each] for each in shown]
    return sum(needed) + GAP * (len(shown) - 1)


def _cut(columns: Sequence[Column], widths: list[int], shown: Sequence[int], width: int) -> None:
    """Narrow the last text, otherwise the first column, until the line fits."""
    over = sum(widths[each] for each in shown) + GAP * (len(shown) - 1) - width
    if over > 0:
        texts = [each for each in shown if columns[each].text]
        place = texts[-1] if texts else shown[0]
        widths[place] = max(NARROWEST_TEXT, widths[place] - over)


def _line(row: Sequence[Cell], widths: Sequence[int], shown: Sequence[int]) -> list[Cell]:
    cells = []
    for each in shown:
        text, style = row[each]
        text = text if len(text) <= widths[each] else text[: widths[each] - 1] + ELLIPSIS
        cells.append((text if each == shown[-1] else text.ljust(widths[each] + GAP), style))
    return cells


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], wide: bool = False) -> None:
    """Print a table: in a pipe and `wide` as wide as it is, otherwise cut on a terminal, where it is coloured."""
    if not is_terminal():
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in table_lines(columns, rows, None))
        print(text)
        return
    from rich.console import Console  # noqa: PLC0415  only on a terminal
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    lines = [Text.assemble(*line) for line in table_lines(columns, rows, None if wide else console.width)]
    console.print(Text("\n").join(lines), soft_wrap=True)


def say(text: str) -> None:
    """Print text about the objects of a cluster, whose control characters are shown."""
    print(visible(text), flush=True)


def print_json(document: Any) -> None:
    """Print JSON that is valid and safe on a terminal."""
    print(escaped_json(json.dumps(document, indent=2, ensure_ascii=False)))


def print_raw(document: Mapping[str, Any], output: str) -> None:
    """Print an object as JSON or YAML."""
    if output == "json":
        print_json(document)
    else:
        print(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True), end="")


def print_object(raw: Mapping[str, Any], output: str) -> None:
    """Print a job as JSON or YAML, or its name."""
    if output == "name":
        say(resource_name(raw["metadata"]["name"]))
    else:
        print_raw(complete(raw), output)


def resource_name(name: str) -> str:
    """The name as kubectl takes it: `tftrainingjob.tftraining.dev/digits`."""
    return f"{KIND.lower()}.{GROUP}/{name}"


def as_list(raws: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A list of jobs as one object."""
    return {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": [complete(raw) for raw in raws]}


def complete(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A job with its kind, which the items of a list lack, and without managedFields, as kubectl shows it."""
    metadata = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    return {"apiVersion": API_VERSION, "kind": KIND, **raw, "metadata": metadata}


def is_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def is_coloured() -> bool:
    """Whether the output is coloured: on a terminal, unless NO_COLOR (https://no-color.org) is set."""
    return is_terminal() and not os.environ.get("NO_COLOR")


def note(text: str) -> None:
    """Print a message beside the output, on standard error."""
    print(f"tftj: {visible(text)}", file=sys.stderr, flush=True)


_scope = ""


def set_scope(options: str) -> None:
    """Let the next commands have the options of the cluster that this command was given."""
    global _scope  # noqa: PLW0603  a process runs one command
    _scope = options


def hint(*commands: str) -> None:
    """Print the next useful commands of the cluster, on a terminal only."""
    hint_lines(*(f"tftj {command}{_scope}" for command in commands))


def hint_lines(*lines: str) -> None:
    """Print the next useful lines for the shell, on a terminal only."""
    if is_terminal():
        print(f"next: {visible('; '.join(lines))}", file=sys.stderr)


def age(since: datetime, now: datetime | None = None) -> str:
    """The time since then in one unit: 45s, 12m, 5h, 3d."""
    seconds = max(0, int(((now or datetime.now(UTC)) - since).total_seconds()))
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"

"""The public names of a checkout: fields, columns, reasons, conditions, metrics, variables, chart values, options.

    python -m tests.support.public_names [CHECKOUT] > tests/unit/docs/public_names.txt

Everything is read from files of the checkout, none is imported, so that two commits can be compared. Metrics, reasons
and conditions are read from the pages docs/status.md and docs/reference-metrics.md, which tests hold to the code.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

PACKAGES = ("api", "operator", "trainer", "client")
VARIABLE = re.compile(r"TFTRAINING_[A-Z0-9]+(?:_[A-Z0-9]+)*")
KEY = re.compile(r'f"\{GROUP\}/([a-z-]+)"')
OPTION = re.compile(r'add(?:_argument)?\(\s*"(-{0,2}[a-z-]+)"')
TYPER_OPTION = re.compile(r'typer\.Option\(\s*"(--[a-z-]+)')
COMMAND = re.compile(r'@(?:app\.)?_?command\(\s*"([a-z]+)"')
TABLES = {
    "reason": "reason",
    "condition": "condition",
    "metric of the operator": "metric",
    "metric of a launcher": "metric",
}


def public_names(checkout: Path) -> list[str]:
    """One line a name, sorted: its kind, the name, and its type, default or values."""
    return sorted({*_custom_resource(checkout), *_page(checkout), *_sources(checkout), *_chart_values(checkout)})


def _custom_resource(checkout: Path) -> Iterator[str]:
    definition = yaml.safe_load((checkout / "crds" / "tftrainingjobs.yaml").read_text(encoding="utf-8"))
    names = definition["spec"]["names"]
    yield f"resource {names['plural']}.{definition['spec']['group']} {names['kind']} {names.get('shortNames')}"
    for version in definition["spec"]["versions"]:
        for column in version["additionalPrinterColumns"]:
            yield f"column {column['name']} {column['type']} {column['jsonPath']}"
        schema = version["schema"]["openAPIV3Schema"]["properties"]
        for root in ("spec", "status"):
            yield from _fields(f"{version['name']}.{root}", schema[root])


def _fields(path: str, schema: dict[str, Any]) -> Iterator[str]:
    shown = {key: schema[key] for key in ("default", "enum") if key in schema}
    yield f"field {path} {schema.get('type', 'any')} {json.dumps(shown)}"
    for name, child in schema.get("properties", {}).items():
        yield from _fields(f"{path}.{name}", child)
    for mark, key in (("[]", "items"), (".*", "additionalProperties")):
        if isinstance(schema.get(key), dict):
            yield from _fields(path + mark, schema[key])


def _page(checkout: Path) -> Iterator[str]:
    pages = (checkout / "docs" / name for name in ("status.md", "reference-metrics.md"))
    page = "\n".join(path.read_text(encoding="utf-8") for path in pages if path.exists())  # a page may be a later one
    for heading, kind in TABLES.items():
        _, _, rest = page.partition(f"\n| {heading} |")
        for row in rest.split("\n\n")[0].splitlines()[2:]:
            cells = row.strip("|").split("|")
            labels = " ".join(sorted(re.findall(r"`([^`]+)`", cells[2]))) if kind == "metric" else ""
            for name in re.findall(r"`([^`]+)`", cells[0]):
                yield f"{kind} {name} {cells[1].strip()} {labels}".strip() if kind == "metric" else f"{kind} {name}"


def _sources(checkout: Path) -> Iterator[str]:
    for path in (path for package in PACKAGES for path in (checkout / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        yield from (f"variable {name}" for name in VARIABLE.findall(text))
        yield from (f"label or annotation {name}" for name in KEY.findall(text))
        if path.is_relative_to(checkout / "client"):
            yield from (f"option of tftj {name}" for name in OPTION.findall(text) + TYPER_OPTION.findall(text))
            yield from (f"command of tftj {name}" for name in COMMAND.findall(text))


def _chart_values(checkout: Path) -> Iterator[str]:
    text = (checkout / "charts" / "tftraining-operator" / "values.yaml").read_text(encoding="utf-8")
    yield from _values("", yaml.safe_load(text))


def _values(path: str, values: Any) -> Iterator[str]:
    if isinstance(values, dict) and values:
        for name, value in values.items():
            yield from _values(f"{path}.{name}" if path else name, value)
    else:
        yield f"chart value {path} {json.dumps(values)}"


if __name__ == "__main__":
    print(*public_names(Path(sys.argv[1] if len(sys.argv) > 1 else ".")), sep="\n")

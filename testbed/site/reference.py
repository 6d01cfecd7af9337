"""The reference pages that are made from the code: the fields of the resource, and the commands of `tftj`.

    python -m testbed.site.reference

The third part of the reference, metrics and reasons, is docs/status.md: a test compares that page with the code.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from tftraining_client.commands.app import app

CHECKOUT = Path(__file__).parents[2]
DEFINITION = CHECKOUT / "crds" / "tftrainingjobs.yaml"
RESOURCE, COMMANDS = (CHECKOUT / "docs" / f"reference-{name}.md" for name in ("resource", "commands"))
MADE = "<!-- Made by `make reference`. -->\n\n"
LIMITS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "format")
Schema = dict[str, Any]


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """Each field below the schema with its path. Fields of Kubernetes itself are left out."""
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, child
        if name not in ("template", "volume"):
            yield from fields(child, here)
            yield from fields(child.get("items", {}), f"{here}[]")


def row(path: str, schema: Schema) -> str:
    """The row of one field."""
    kind = schema.get("type", "integer or string" if schema.get("x-kubernetes-int-or-string") else "any")
    kind += f" of {schema['items'].get('type', 'any')}s" if kind == "array" else ""
    default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
    values = [f"`{each}`" for each in schema.get("enum", ()) if each is not None]
    limits = [f"{name} {schema[name]}" for name in LIMITS if name in schema and name != "pattern"]
    limits += [f"pattern `{schema['pattern']}`"] if "pattern" in schema else []
    allowed = ", ".join([*values, *limits]).replace("|", "\\|")
    meaning = " ".join(schema.get("description", "").split()).replace("|", "\\|").replace("<", "&lt;")
    return f"| `{path}` | {kind} | {default} | {allowed} | {meaning} |\n"


def rules(schema: Schema, path: str) -> Iterator[str]:
    """The messages of the validation rules below the schema, once each."""
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"| `{path}{rule.get('fieldPath', '')}` | {' '.join(rule['message'].split())} |\n"
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}" if path else name)
        yield from rules(child.get("items", {}), f"{path}.{name}[]")


def resource() -> str:
    """The page on the fields of the resource."""
    definition = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    head = "| field | type | default | allowed | meaning |\n|---|---|---|---|---|\n"
    parts = [
        f"# TFTrainingJob\n\n{MADE}`{definition['spec']['group']}/{version['name']}`. ",
        "`kubectl explain tftrainingjob.spec --recursive` prints the same from a cluster.\n",
    ]
    for name in ("spec", "status"):
        rows = [row(path, schema) for path, schema in fields(root["properties"][name], name)]
        parts.append(f"\n## {name}\n\n{head}{''.join(rows)}")
    refusals = "".join(dict.fromkeys(rules(root, "")))
    parts.append("\n## Validation rules\n\nThe API server and `tftj` refuse a job with these messages.\n\n")
    parts.append(f"| field | message |\n|---|---|\n{refusals}")
    return "".join(parts)


def commands() -> str:
    """The page on the commands of `tftj`."""
    names = sorted(str(each.name) for each in app.registered_commands if not each.hidden)
    parts = [f"# Commands of tftj\n\n{MADE}[What each does](tftj.md), and [`tftj run`](local.md).\n"]
    parts += [f"\n## tftj {name}\n\n```text\n{_help(name)}\n```\n" for name in names]
    return "".join(parts)


def _help(name: str) -> str:
    result = CliRunner().invoke(app, [name, "--help"], prog_name="tftj", terminal_width=100, env={"NO_COLOR": "1"})
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def main() -> int:
    """Write the pages."""
    RESOURCE.write_text(resource(), encoding="utf-8")
    COMMANDS.write_text(commands(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

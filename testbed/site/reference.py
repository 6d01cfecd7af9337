"""The reference pages that are made from the code: the fields of the resource, the commands of `tftj`, the metrics.

    python -m testbed.site.reference

The reasons are in docs/status.md: a test compares that page with the code.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from testbed.shell import LabError
from testbed.site import patches
from tftraining.launch.http.metrics import HELP, LABELS
from tftraining_api.model.status import LastRestart, Restarts, Status
from tftraining_client.commands.app import app
from tftraining_operator.cluster.metrics import Counted, Metrics

CHECKOUT = Path(__file__).parents[2]
DEFINITION = CHECKOUT / "crds" / "tftrainingjobs.yaml"
RESOURCE, COMMANDS, METRICS = (
    CHECKOUT / "docs" / f"reference-{name}.md" for name in ("resource", "commands", "metrics")
)
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
    parts = [
        f"# Commands of tftj\n\n{MADE}[What each does](tftj.md), and [`tftj run`](tftj.md#a-job-on-your-own-machine).\n"
    ]
    parts += [f"\n## tftj {name}\n\n```text\n{_help(name)}\n```\n" for name in names]
    return "".join(parts)


def _help(name: str) -> str:
    result = CliRunner().invoke(app, [name, "--help"], prog_name="tftj", terminal_width=100, env={"NO_COLOR": "1"})
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def metrics() -> str:
    """The page on the metrics of the operator and of the launchers."""
    of_operator = "".join(_metric(*each) for each in operator_metrics(_exercised()))
    of_launchers = "".join(_metric(name, "gauge", LABELS, meaning) for name, meaning in HELP.items())
    return (
        f"# Metrics\n\n{MADE}[Alerts, a dashboard, and how Prometheus reaches the metrics]"
        "(operations.md#prometheus-and-grafana).\n\n"
        "## Of the operator\n\n`/metrics` on port 8080. Counters and histograms also have a gauge `…_created`.\n\n"
        f"| metric of the operator | type | labels | meaning |\n|---|---|---|---|\n{of_operator}\n"
        "## Of the launchers\n\n`/metrics` on port 8472 of each training pod. The chief's launcher describes the gang, "
        "the other launchers their own program.\n\n"
        f"| metric of a launcher | type | labels | meaning |\n|---|---|---|---|\n{of_launchers}"
    )


def _metric(name: str, kind: str, labels: tuple[str, ...], meaning: str) -> str:
    named = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {kind} | {named}{' ' * bool(named)}| {meaning} |\n"


def operator_metrics(registry: CollectorRegistry) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and meaning of each metric, sorted by name; LabError for one without any sample."""
    for family in sorted(registry.collect(), key=lambda family: family.name):
        if not family.samples:
            raise LabError(f"{family.name} has no sample here, so its labels are unknown: observe one in _exercised")
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        yield f"{family.name}{'_total' * (family.type == 'counter')}", family.type, tuple(labels), family.documentation


def _exercised() -> CollectorRegistry:
    """The operator's registry with a sample of each metric: one without samples does not tell its labels."""
    made = Metrics(list, Counter(GET=1))
    now = datetime.now(UTC)
    last = LastRestart(time=now, reason="Error", resumed_from="Memory", lost_steps=1)
    made.observe(Status(), Status(restarts=Restarts(recreated=1), last_restart=last), Counted.since(now), now)
    made.internals.failed("NoAnswer")
    made.internals.refused("POST", 403)
    made.internals.dropped("QueueFull")
    made.internals.answered("GET", 200, 0.1)
    made.internals.watch_ages = lambda: {"pods": 1.0}
    made.internals.refused_watches = lambda: ["pods"]
    return made.registry


def main() -> int:
    """Write the pages."""
    RESOURCE.write_text(resource(), encoding="utf-8")
    COMMANDS.write_text(commands(), encoding="utf-8")
    METRICS.write_text(metrics(), encoding="utf-8")
    patches.PAGE.write_text(patches.page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

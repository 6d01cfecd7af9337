"""The alerts, the dashboard and the PodMonitors: Prometheus' own parser reads each expression, and each metric, label
and value in them exists (docs/reference-metrics.md, which tests/unit/docs/test_site.py holds to the code).

promtool evaluates the alerts of the rendered chart on the series of alerts_test.yaml, which have only metrics, labels
and values that exist, too.
"""

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from testbed import binaries
from testbed.shell import LabError, run
from tests.support.control_plane.chart import CHART, Manifest, of_kind, render
from tests.support.repository import REPOSITORY
from tftraining_api.model.names import CONTAINER, LABEL_ROLE, STATUS_PORT
from tftraining_operator.cluster.metrics import KNOWN_REASONS, PHASES, Metrics
from tftraining_operator.runtime import read_settings

ALERTS = CHART / "files" / "alerts.yaml"
DASHBOARD: dict[str, Any] = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
RULES = [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
OF_SCRAPES = {"job", "namespace", "pod", "instance", "container", "endpoint", "le"}  # of Prometheus itself
VALUES = {"phase": {*PHASES}, "charged": {"true", "false"}, "mode": {"InPlace", "Recreate"}}
SERIES = Path(__file__).with_name("alerts_test.yaml")
ALL_ON = {
    "metrics": {
        name: {"enabled": True, "labels": {"release": "prometheus"}}
        for name in ("podMonitor", "prometheusRule", "dashboard")
    }
}


class Metric(NamedTuple):
    """A row of docs/reference-metrics.md."""

    kind: str
    labels: set[str]


def existing_metrics() -> dict[str, Metric]:
    """Each name that a scrape has, with the three series of a histogram."""
    page = (REPOSITORY / "docs" / "reference-metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tftraining_\w+)` \| (\w+) \|([^|]*)\|", page, re.MULTILINE)
    found = {name: Metric(kind, {*re.findall(r"`(\w+)`", labels)}) for name, kind, labels in rows}
    histograms = {name: metric for name, metric in found.items() if metric.kind == "histogram"}
    series = {f"{name}_{part}": metric for name, metric in histograms.items() for part in ("bucket", "sum", "count")}
    return {name: metric for name, metric in found.items() if name not in histograms} | series


def queries() -> Iterator[str]:
    """Each expression of the alerts, of the dashboard, its variables with values, and of the pages."""
    yield from (rule["expr"] for rule in RULES)
    yield from (target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ()))
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((.*), (\w+)\)", r"sum by (\2) (\1)", variable["query"]["query"])
    for page in (REPOSITORY / "docs").glob("*.md"):
        yield from re.findall(r"`([^`\n/]*\btftraining_\w+[^`\n/]* [<>=]+ [^`\n]*)`", page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def selectors() -> dict[str, dict[str, Any]]:
    """What Prometheus' parser finds in each expression."""
    texts = [re.sub(r"\$(\w+)", r"\1", text) for text in queries()]
    program = binaries.ensure("promql") / "promql"
    answers = run([program, "selectors"], stdin="".join(json.dumps(text) + "\n" for text in texts))
    return dict(zip(texts, map(json.loads, answers.splitlines()), strict=True))


@pytest.fixture(scope="module")
def monitored() -> list[Manifest]:
    return render(ALL_ON)


def test_prometheus_accepts_the_rules() -> None:
    assert run([binaries.ensure("promql") / "promql", "rules", ALERTS]) == ""


def test_every_metric_label_and_value_exists(selectors: dict[str, dict[str, Any]]) -> None:
    existing, wrong = existing_metrics(), []
    for text, found in selectors.items():
        assert found["metrics"], text
        names = [metric["name"] for metric in found["metrics"]]
        labels = {label for name in names if name in existing for label in existing[name].labels} | OF_SCRAPES
        wrong += [(text, name) for name in names if name not in existing]
        wrong += [(text, label) for label in found["groups"] if label not in labels]
        for metric in found["metrics"]:
            for label, value in metric["matchers"].items():
                known = label in labels and value in VALUES.get(label, {value})
                wrong += [] if known else [(text, f"{label}={value}")]
    assert wrong == []
    assert len(selectors) > 20


def test_counters_are_read_by_their_increase_and_gauges_are_not() -> None:
    counters = "|".join(name for name, metric in existing_metrics().items() if metric.kind != "gauge")
    for text in queries():
        read = re.findall(rf"\b(?:{counters})\b", text)
        by_increase = re.findall(rf"\b(?:rate|increase)\((?:{counters})\b", text)
        assert len(read) == len(by_increase), text
        assert len(re.findall(r"\b(?:rate|increase)\(", text)) == len(by_increase), text


def test_the_alerts_are_explained() -> None:
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(TFTraining\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert told == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]
    assert all({"summary", "description"} == rule["annotations"].keys() for rule in RULES)


def test_all_of_it_is_off_by_default() -> None:
    default = render()
    assert {each["kind"] for each in default} & {"PodMonitor", "PrometheusRule", "ServiceMonitor", "ConfigMap"} == set()
    assert "TFTRAINING_METRICS_FROM" not in json.dumps(default)


def test_the_rules_and_the_dashboard_arrive_unchanged(monitored: list[Manifest]) -> None:
    (rule,), (dashboard,) = of_kind(monitored, "PrometheusRule"), of_kind(monitored, "ConfigMap")
    assert [each for group in rule["spec"]["groups"] for each in group["rules"]] == RULES
    assert json.loads(dashboard["data"]["tftraining.json"]) == DASHBOARD
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


# --- the alerts on series, by promtool


def promtool(folder: Path, groups: list[dict[str, Any]]) -> str:
    """What promtool says about the rules, alone and on the series of alerts_test.yaml; LabError if it finds a fault."""
    rules, series = folder / "rules.yaml", folder / SERIES.name
    rules.write_text(json.dumps({"groups": groups}), encoding="utf-8")
    series.write_text(SERIES.read_text(encoding="utf-8"), encoding="utf-8")
    program = binaries.ensure("promtool") / "promtool"
    return run([program, "check", "rules", "--lint=all", "--lint-fatal", rules]) + run(
        [program, "test", "rules", "--diff", series]
    )


@pytest.fixture
def groups(monitored: list[Manifest]) -> list[dict[str, Any]]:
    """The groups of the rendered PrometheusRule, in a copy."""
    (rule,) = of_kind(monitored, "PrometheusRule")
    found: list[dict[str, Any]] = copy.deepcopy(rule["spec"]["groups"])
    return found


@pytest.mark.slow_fault
def test_each_alert_fires_on_its_series_and_on_no_others(groups: list[dict[str, Any]], tmp_path: Path) -> None:
    told = promtool(tmp_path, groups)
    assert f"SUCCESS: {len(RULES)} rules found" in told and "FAILED" not in told


@pytest.mark.slow_fault
@pytest.mark.parametrize("expression", ["vector(0) > 1", "vector(1)"], ids=["never fires", "always fires"])
@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_promtool_finds_an_alert_that(
    alert: str, expression: str, groups: list[dict[str, Any]], tmp_path: Path
) -> None:
    for rule in (rule for group in groups for rule in group["rules"] if rule["alert"] == alert):
        rule["expr"] = expression
    with pytest.raises(LabError, match=f'expr: "ALERTS{{alertname=.*{alert}'):
        promtool(tmp_path, groups)


def test_the_series_of_the_alerts_exist() -> None:
    existing, wrong = existing_metrics(), []
    samples = [each for family in Metrics(list, Counter()).registry.collect() for each in family.samples]
    bounds = {
        name: {each.labels["le"] for each in samples if each.name == name and "le" in each.labels} for name in existing
    }
    cases = yaml.safe_load(SERIES.read_text(encoding="utf-8"))["tests"]
    texts = [each["series"] for case in cases for each in case["input_series"]]
    for text in texts:
        name, labels = text.rstrip("}").split("{")
        known = VALUES | {"reason": KNOWN_REASONS, "le": bounds.get(name, set())}
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            exists = label in existing[name].labels | OF_SCRAPES and value in known.get(label, {value})
            wrong += [] if exists else [f"{text}: {label}"]
    assert wrong == []
    assert len(texts) > 20


def relabelled(endpoint: Manifest, source: dict[str, str]) -> str | None:
    """The address that Prometheus scrapes; None if the target is dropped."""
    address = None
    for rule in endpoint["relabelings"]:
        found = re.fullmatch(rule["regex"], ";".join(source[label] for label in rule["sourceLabels"]))
        if rule.get("action") == "keep" and not found:
            return None
        if rule.get("action") != "keep" and found:
            address = found.expand(rule["replacement"].replace("$1", r"\1"))
    return address


@pytest.mark.parametrize(("ip", "address"), [("10.0.0.7", "10.0.0.7:8472"), ("fd00::7", "[fd00::7]:8472")])
def test_the_pod_monitor_scrapes_the_launchers(monitored: list[Manifest], ip: str, address: str) -> None:
    operator, launchers = of_kind(monitored, "PodMonitor")
    (deployment,) = of_kind(monitored, "Deployment")
    assert operator["spec"]["selector"] == deployment["spec"]["selector"]
    assert launchers["spec"]["namespaceSelector"] == {"any": True}
    assert launchers["spec"]["selector"] == {"matchExpressions": [{"key": LABEL_ROLE, "operator": "Exists"}]}
    (endpoint,) = launchers["spec"]["podMetricsEndpoints"]
    source = {"__meta_kubernetes_pod_container_name": CONTAINER, "__meta_kubernetes_pod_ip": ip}
    assert relabelled(endpoint, source) == address == f"{address.rpartition(':')[0]}:{STATUS_PORT}"
    assert relabelled(endpoint, source | {"__meta_kubernetes_pod_container_name": "cleanup"}) is None


def test_the_operator_is_scraped_once_and_only_the_watched_namespaces_are() -> None:
    values = {"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}}
    (launchers,) = of_kind(render(values | {"watchNamespaces": ["red", "blue"]}), "PodMonitor")
    assert launchers["spec"]["namespaceSelector"] == {"matchNames": ["red", "blue"]}


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").glob("*.md")), ids=lambda page: page.name)
def test_the_chart_takes_the_values_of_the_pages(page: Path) -> None:
    blocks = re.findall(r"^```yaml\n# values of the chart\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert all(render(yaml.safe_load(block)) for block in blocks)
    assert blocks or page.name != "operations.md"


def test_the_operator_reads_who_scrapes_the_launchers() -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    (deployment,) = of_kind(render({"networkPolicy": {"metricsFrom": [peer]}}), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    selector = read_settings(environment).operator_selector
    assert selector is not None and selector.metrics_from == (peer,)

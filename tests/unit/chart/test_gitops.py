"""docs/integrations.md: the health check of Argo CD on jobs in every phase, by the Lua interpreter that it uses; the
paths of the k9s views."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import binaries
from testbed.shell import run
from tests.support.crd import definition
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.states import CURRENT, FAILED, IN_PROGRESS, STATES, TERMINATING

HEALTH = yaml.safe_load((REPOSITORY / "examples" / "argocd" / "health.yaml").read_text(encoding="utf-8"))["data"]
VIEWS = yaml.safe_load((REPOSITORY / "examples" / "k9s" / "views.yaml").read_text(encoding="utf-8"))["views"]
# kstatus, of which a test asks the library itself, knows no suspension.
HEALTHS = {CURRENT: {"Healthy", "Suspended"}, IN_PROGRESS: {"Progressing"}, FAILED: {"Degraded"}}
UNREADABLE = {
    "metadata": {"generation": 1},
    "status": {"phase": "Running", "conditions": [{"type": "Unreadable", "status": "True", "message": "why"}]},
}


def lua(value: Any) -> str:
    """The value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {lua(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return "nil" if value is None else json.dumps(value, ensure_ascii=False)


def healths(jobs: list[dict[str, Any]], folder: Path) -> list[tuple[str, str]]:
    """Status and message that the health check gives for each job."""
    (check,) = HEALTH.values()
    script = f"local function check(obj)\n{check}\nend\n"
    script += "".join(f"do local h = check({lua(job)}); print(h.status); print(h.message) end\n" for job in jobs)
    path = folder / "health.lua"
    path.write_text(script, encoding="utf-8")
    lines = run([binaries.ensure("glua") / "glua", path]).splitlines()
    return list(zip(lines[::2], lines[1::2], strict=True))


def test_the_health_check_is_that_of_the_resource() -> None:
    names = definition()["spec"]
    assert list(HEALTH) == [f"resource.customizations.health.{names['group']}_{names['names']['kind']}"]


def test_every_phase_is_as_healthy_as_flux_and_helm_find_it(tmp_path: Path) -> None:
    states = {state.__name__: (state().api.job, status) for state, (_, status) in STATES.items()}
    states = {name: (json.loads(json.dumps(job)), status) for name, (job, status) in states.items()}
    alive = {name: job for name, (job, status) in states.items() if status != TERMINATING}
    found = dict(zip(alive, healths([*alive.values()], tmp_path), strict=True))
    assert {name: health for name, (health, _) in found.items() if health not in HEALTHS[states[name][1]]} == {}
    assert {health for health, _ in found.values()} == {"Healthy", "Suspended", "Progressing", "Degraded"}
    for name, (health, message) in found.items():
        status = alive[name]["status"]
        assert message == (status.get("message") or status["phase"]).replace("\n", " ") or health == "Progressing"


@pytest.mark.parametrize(
    ("job", "health"),
    [
        ({"metadata": {"generation": 1}}, ("Progressing", "the operator has not seen the job yet")),
        (UNREADABLE, ("Degraded", "why")),
        ({"metadata": {"generation": 1}, "status": {"phase": "New", "message": "m"}}, ("Unknown", "m")),
    ],
)
def test_other_jobs(job: dict[str, Any], health: tuple[str, str], tmp_path: Path) -> None:
    assert healths([job], tmp_path) == [health]


def test_the_columns_of_k9s_are_fields_of_the_resource() -> None:
    spec = definition()["spec"]
    (version,) = spec["versions"]
    ((name, view),) = VIEWS.items()
    assert name == f"{spec['group']}/{version['name']}/{spec['names']['plural']}"
    paths = [found[1] for column in view["columns"] if (found := re.search(r":\.([\w.]+)", column))]
    assert len(paths) > 10
    for path in paths:
        schema = version["schema"]["openAPIV3Schema"]
        for part in path.split("."):
            assert part in schema["properties"], path
            schema = schema["properties"][part]


def objects_of_flux() -> dict[str, dict[str, Any]]:
    """The objects of docs/integrations.md by kind."""
    found = [
        block.text
        for block in blocks(REPOSITORY / "docs" / "integrations.md", "Argo CD, Flux and k9s")
        if block.language == "yaml"
    ]
    return {each["kind"]: each for text in found for each in yaml.safe_load_all(text)}


def test_the_objects_for_flux_belong_together_and_their_values_are_the_charts() -> None:
    objects = objects_of_flux()
    release, source = objects["HelmRelease"], objects["OCIRepository"]
    assert release["spec"]["chartRef"] == {"kind": "OCIRepository", "name": source["metadata"]["name"]}
    assert (
        release["metadata"]["namespace"] == source["metadata"]["namespace"] == objects["Namespace"]["metadata"]["name"]
    )
    chart = REPOSITORY / "charts" / "tftraining-operator"
    assert source["spec"]["url"].endswith(f"/{chart.name}")
    values = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    assert release["spec"]["values"] and release["spec"]["values"].keys() <= values.keys()
    assert objects["Kustomization"]["spec"]["wait"] is True

"""docs/integrations.md: the jobs in the recipes are valid, and their conditions hold at the end of a job, not before.

The conditions are evaluated by the libraries that Argo Workflows and Katib use (testbed/go/conditions). The engines
themselves do not run.
"""

import json
import re
import shlex
import sys
from types import ModuleType
from typing import Any

import pytest
import yaml

import tftraining_client
from testbed import binaries
from testbed.shell import run
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.documented_jobs import running
from tests.support.simulated_cluster.states import STATES
from tftraining_client.validation import validate
from tftraining_client.validation.crd import custom_resource, fields

BLOCKS = blocks(REPOSITORY / "docs" / "integrations.md", "Argo Workflows, Kubeflow Pipelines, Katib")
WORKFLOW, EXPERIMENT = (yaml.safe_load(block.text) for block in BLOCKS if block.language == "yaml")
(COMPONENT,) = (block.text for block in BLOCKS if block.language == "python")
RESOURCE = WORKFLOW["spec"]["templates"][0]["resource"]
TRIAL = EXPERIMENT["spec"]["trialTemplate"]
ENDS = {"Succeeded", "Failed"}

Job = dict[str, Any]


def named(job: Job) -> Job:
    """With the name that the API server or Katib gives it."""
    return {**job, "metadata": {**job.get("metadata", {}), "name": "made"}}


def in_workflow() -> Job:
    text = RESOURCE["manifest"].replace("{{inputs.parameters.epochs}}", "10")
    assert "{{" not in text
    return named(yaml.safe_load(text))


def in_trial() -> Job:
    text = json.dumps(TRIAL["trialSpec"])
    for parameter in TRIAL["trialParameters"]:
        text = text.replace(f"${{trialParameters.{parameter['name']}}}", "0.01")
    assert "${" not in text
    return named(json.loads(text))


def of_component(monkeypatch: pytest.MonkeyPatch) -> tuple[Job, float]:
    """The job that the component submits, and what it returns, with a client that only writes it down."""
    sent: list[Job] = []

    class Point:
        value = 0.97

    class Written:
        def __enter__(self) -> "Written":
            return self

        def __exit__(self, *error: object) -> None: ...

        def submit(self, job: Job) -> None:
            sent.append(job)

        def wait(self, name: str) -> None:
            assert name == sent[0]["metadata"]["name"]

        def history(self, name: str) -> Any:
            assert name == sent[0]["metadata"]["name"]
            return type("History", (), {"metrics": {"accuracy": [Point()]}})

    kfp = ModuleType("kfp")
    kfp.dsl = type("dsl", (), {"component": staticmethod(lambda **options: lambda function: function)})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kfp", kfp)
    monkeypatch.setattr(tftraining_client, "Client", Written, raising=False)
    names: dict[str, Any] = {}
    exec(compile(COMPONENT, "component", "exec"), names)
    result = names["train"]("run-1", "training", 0.01)
    return sent[0], result


# --- the jobs


def test_the_jobs_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted, result = of_component(monkeypatch)
    for job in (in_workflow(), in_trial(), submitted):
        assert validate(job)["spec"]["replicaSpecs"]["worker"]["replicas"] == 2
    assert result == 0.97


def test_the_example_program_has_the_options_of_the_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    library = REPOSITORY / "trainer" / "tftraining"
    sources = [library / "examples" / "multi_worker_mnist.py", library / "lib" / "options.py"]
    known = set(re.findall(r'"(--[a-z-]+)"', "".join(path.read_text(encoding="utf-8") for path in sources)))
    for job in (in_trial(), of_component(monkeypatch)[0]):
        (container,) = job["spec"]["template"]["spec"]["containers"]
        given = {word.partition("=")[0] for word in container["command"] if word.startswith("--")}
        assert {"--learning-rate", "--directory"} <= given <= known


# --- the conditions


def seen() -> list[Job]:
    """A job in each state, and one that the operator has not seen."""
    jobs = [json.loads(json.dumps(state().api.job)) for state in STATES]
    assert {job["status"]["phase"] for job in jobs} >= {"Starting", "Running", "Restarting", "Suspended", *ENDS}
    return [*jobs, {"metadata": {}}, {"metadata": {}, "status": {"phase": "Pending"}}]


def phase(job: Job) -> str | None:
    found: str | None = job.get("status", {}).get("phase")
    return found


@pytest.mark.parametrize(("engine", "conditions"), [("argo", RESOURCE), ("katib", TRIAL)])
def test_a_condition_holds_at_the_end_only(engine: str, conditions: Job) -> None:
    jobs = seen()
    for end in ("Succeeded", "Failed"):
        condition = conditions["successCondition" if end == "Succeeded" else "failureCondition"]
        asked = [{"engine": engine, "condition": condition, "object": job} for job in jobs]
        answers = run([binaries.ensure("conditions") / "conditions"], stdin="\n".join(map(json.dumps, asked)))
        holds = [json.loads(answer) for answer in answers.splitlines()]
        assert [phase(job) for job, answer in zip(jobs, holds, strict=True) if answer] == [
            phase(job) for job in jobs if phase(job) == end
        ]


def test_the_outputs_of_the_workflow_are_fields() -> None:
    given = [each["valueFrom"]["jsonPath"] for each in WORKFLOW["spec"]["templates"][0]["outputs"]["parameters"]]
    paths = [re.fullmatch(r"\{\.(.*)\}", path)[1] for path in given]  # type: ignore[index]
    assert paths and set(paths) <= {"metadata.name", *fields(custom_resource().schema)}


# --- Katib's collector


def primary_pod() -> dict[str, Any]:
    pods = running(in_trial()).api.pods.values()
    wanted = TRIAL["primaryPodLabels"].items()
    (pod,) = [each for each in pods if wanted <= each["metadata"]["labels"].items()]
    return dict(pod)


def test_the_labels_select_the_pod_of_the_chief() -> None:
    container = next(
        each for each in primary_pod()["spec"]["containers"] if each["name"] == TRIAL["primaryContainerName"]
    )
    # Katib joins the words by spaces for a shell.
    assert shlex.split(" ".join(container["command"]).replace("$(TFTRAINING_DIR)", "dir")) == [
        word.replace("$(TFTRAINING_DIR)", "dir") for word in container["command"]
    ]


def test_the_filter_reads_the_line_of_a_real_run() -> None:
    (metrics_format,) = EXPERIMENT["spec"]["metricsCollectorSpec"]["source"]["filter"]["metricsFormat"]
    recorded = (REPOSITORY / "docs" / "pictures" / "demo.svg").read_text(encoding="utf-8")
    line = re.search(r"epoch 1/10 accuracy [^<]*?\)", recorded)
    assert line and line[0] in (REPOSITORY / "docs" / "integrations.md").read_text(encoding="utf-8")
    objective = EXPERIMENT["spec"]["objective"]
    found = dict(re.findall(metrics_format, line[0]))
    assert found.keys() == {objective["objectiveMetricName"], *objective["additionalMetricNames"]}
    assert all(0 < float(value) < 10 for value in found.values())

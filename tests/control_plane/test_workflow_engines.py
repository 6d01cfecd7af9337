"""docs/integrations.md by the code of the engines: Argo Workflows' linter, Katib's validation and substitution, and
the compiler and the executor of Kubeflow Pipelines, whose component submits a job to a real API server.

Their controllers do not run. tests/unit/docs/test_workflows.py has the jobs and the conditions.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import binaries
from testbed.shell import LabError, run
from tests.control_plane.test_history import history
from tests.control_plane.test_operator_in_place import launcher, now
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import ChiefLauncher
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.page_commands import blocks
from tests.support.repository import REPOSITORY
from tftraining_client.validation import validate

__all__ = ["launcher"]
pytestmark = pytest.mark.slow_fault
BLOCKS = blocks(REPOSITORY / "docs" / "integrations.md", "Argo Workflows, Kubeflow Pipelines, Katib")
WORKFLOW, EXPERIMENT = (block.text for block in BLOCKS if block.language == "yaml")
(COMPONENT,) = (block.text for block in BLOCKS if block.language == "python")
UV = Path(sys.executable).with_name("uv")
PIPELINE = """
@dsl.pipeline
def once(claim: str):
    train(name=f"train-{dsl.PIPELINE_JOB_ID_PLACEHOLDER}", claim=claim, learning_rate=0.01)

if __name__ == "__main__":
    from kfp import compiler
    compiler.Compiler().compile(once, "pipeline.yaml")
"""


# --- Argo Workflows


def lint(folder: Path, text: str) -> str:
    (folder / "workflow.yaml").write_text(text)
    return run([binaries.ensure("argo-lint") / "argo-lint", folder / "workflow.yaml"])


def test_argo_accepts_the_workflow(tmp_path: Path) -> None:
    assert "no linting errors found" in lint(tmp_path, WORKFLOW)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("successCondition:", "sucessCondition:"),
        ("{{inputs.parameters.epochs}}", "{{inputs.parameters.epoch}}"),
        ("entrypoint: train", "entrypoint: trian"),
    ],
)
def test_argo_refuses_a_misspelt_workflow(tmp_path: Path, right: str, wrong: str) -> None:
    with pytest.raises(LabError):
        lint(tmp_path, WORKFLOW.replace(right, wrong))


# --- Katib


def trial(text: str) -> dict[str, Any]:
    """The job that Katib makes of the experiment for a learning rate."""
    made: dict[str, Any] = json.loads(run([binaries.ensure("katib") / "katib", "learning_rate=0.01"], stdin=text))
    return made


def test_katib_accepts_the_experiment_and_makes_a_job_of_it() -> None:
    job = validate(trial(EXPERIMENT))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert "--learning-rate=0.01" in container["command"]
    assert job["metadata"]["name"] == "digits-trial"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("primaryContainerName:", "primaryContainer:"),
        ("reference: learning_rate", "reference: learningrate"),
        ("${trialParameters.learningRate}", "${trialParameters.rate}"),
    ],
)
def test_katib_refuses_a_misspelt_experiment(right: str, wrong: str) -> None:
    with pytest.raises(LabError):
        trial(EXPERIMENT.replace(right, wrong))


# --- Kubeflow Pipelines


@pytest.fixture(scope="session")
def kfp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with kfp, whose packages are not those of this project."""
    folder = tmp_path_factory.mktemp("kfp")
    lock = REPOSITORY / "requirements" / "kfp.txt"
    environment = {**os.environ, "VIRTUAL_ENV": str(folder)}
    run([UV, "venv", "-q", "--clear", "--python", sys.executable, folder])
    run([UV, "pip", "install", "-q", "--require-hashes", "-r", lock], env=environment)
    yield folder


@pytest.fixture(scope="session")
def compiled(kfp: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A pipeline of the component, as kfp's compiler writes it."""
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "pipeline.py").write_text(COMPONENT + PIPELINE)
    run([kfp / "bin" / "python", "pipeline.py"], cwd=folder)
    found: dict[str, Any] = yaml.safe_load((folder / "pipeline.yaml").read_text())
    return found


def test_the_component_compiles_in_a_pipeline(compiled: dict[str, Any]) -> None:
    component = compiled["components"]["comp-train"]
    types = {name: each["parameterType"] for name, each in component["inputDefinitions"]["parameters"].items()}
    assert types == {"name": "STRING", "claim": "STRING", "learning_rate": "NUMBER_DOUBLE", "workers": "NUMBER_INTEGER"}
    assert component["outputDefinitions"]["parameters"]["Output"]["parameterType"] == "NUMBER_DOUBLE"
    (executor,) = compiled["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == "REGISTRY/tftraining-client:0.1.0"


@pytest.fixture
def step(
    kfp: Path, compiled: dict[str, Any], control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> Iterator[subprocess.Popen[str]]:
    """The component under kfp's executor, in an environment like that of its image: kfp alone beside the client."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "kfp").symlink_to(next(kfp.glob("lib/python3*/site-packages/kfp")))
    (executor,) = compiled["deploymentSpec"]["executors"].values()
    (tmp_path / "component.py").write_text(executor["container"]["command"][-1])  # what its shell writes into a file
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(control_plane.kubeconfig.read_text().replace("namespace: default", f"namespace: {namespace}"))
    given = {"name": "run-1", "claim": "training", "learning_rate": 0.01}
    outputs = {"parameters": {"Output": {"outputFile": f"{tmp_path}/result"}}, "outputFile": f"{tmp_path}/outputs"}
    asked = json.dumps({"inputs": {"parameterValues": given}, "outputs": outputs})
    command = [sys.executable, "-m", "kfp.dsl.executor_main", "--component_module_path", f"{tmp_path}/component.py"]
    process = subprocess.Popen(
        [*command, "--function_to_execute", "train", "--executor_input", asked],
        env={**os.environ, "PYTHONPATH": str(packages), "_KFP_RUNTIME": "true", "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    print(process.communicate()[0])


def test_the_component_waits_for_its_job_and_returns_the_metric(
    step: subprocess.Popen[str],
    control_plane: ControlPlane,
    operator: OperatorProcess,
    namespace: str,
    launcher: ChiefLauncher,
    tmp_path: Path,
) -> None:
    job = TrainingJob(control_plane, namespace, "run-1")
    pods = job.wait_for_pods(attempt=1)
    job.place_pod("run-1-worker-0", launcher.ip)
    for name in pods:
        job.run_pod(name)
    told = {"epoch": 3, "epochs": 10, "step": 999, "metrics": {"accuracy": 0.5}, "updatedTime": now()}
    launcher.say(progress=told, history=history(range(1, 1000), 0, 0.5))
    wait_until(lambda: job.status().get("history"), "the history")
    time.sleep(0.5)
    assert step.poll() is None, "the component waits for the end"
    for name in pods:
        job.succeed_pod(name)
    output, _ = step.communicate(timeout=60)
    assert step.returncode == 0, output
    assert json.loads((tmp_path / "outputs").read_text())["parameterValues"]["Output"] == pytest.approx(999 / 1e5)

"""The commands of `tftj` on the pages, run as they are written, against a real API server with the jobs of the pages.

There is no operator and no kubelet: the jobs are in a state that the test writes. ELSEWHERE are the commands that other
tests run. What a page only mentions (`tftj restart`) runs if it is complete. A command that follows a job which goes on
is ended by SIGINT. The exit codes are those of docs/tftj.md.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import yaml

from testbed import binaries
from tests.control_plane.test_client import TFJOB_CRD, accepted, definition
from tests.control_plane.test_tftj_verbs import Spoken, code_of, create_job
from tests.support.client.cluster_objects import HISTORY
from tests.support.client.tfjobs import tfjob
from tests.support.client.verbs import OF_A_JOB
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import install_crd
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.manifests import minimal
from tests.support.repository import REPOSITORY
from tests.unit.docs.test_commands import PLACEHOLDERS, all_commands, is_tftj, problem
from tftraining.launch.history import FILE

COPIES = (
    "tftj cp SOURCE TARGET",
    "tftj cp SOURCE JOB:PATH",
    "tftj cp ./mnist digits:../mnist",
    "tftj cp digits:models/final.keras .",
    "tftj ls JOB:PATH",
    "tftj ls digits:models",
)
ON_KUBELETS = ("tftj logs JOB", "tftj logs JOB -f", "tftj tensorboard JOB")
# The commands that do not run here, each with the test that runs it, and what is different there.
ELSEWHERE = {
    # Local trainings.
    ".venv/bin/tftj run examples/own-program.yaml --env EPOCHS=10 --kill worker-1@epoch=3": (
        "tests/processes/machine/test_quickstart.py"
    ),
    "tftj run examples/multi-worker-digits.yaml --kill worker-1@epoch=3": (
        "tests/processes/client/test_digits.py, with fewer epochs"
    ),
    "tftj run examples/lessons/multi-worker-fit.yaml": "tests/processes/client/test_lessons.py, with a kill",
    "tftj run examples/lessons/multi-worker-fit.yaml --kill worker-1@epoch=3": (
        "tests/processes/client/test_lessons.py, with a kill by the test"
    ),
    "tftj run examples/lessons/transfer-learning.yaml": "tests/processes/trainer/test_lessons.py",
    "tftj run examples/lessons/transfer-learning.yaml --env STAGE=fine-tune": (
        "tests/processes/trainer/test_lessons.py"
    ),
    "tftj run examples/mirrored-custom-loop.yaml": "tests/processes/client/test_examples.py, with a kill",
    "tftj run examples/data-service/job.yaml": (
        "tests/processes/trainer/test_data_service.py, the program without tftj"
    ),
    "tftj run job.yaml --set spec.minReplicas=1 --kill pod/worker-1@epoch=2": (
        "tests/processes/client/test_scaled_rate.py"
    ),
    "tftj run FILE": "tests/processes/client/test_run.py",
    "tftj run FILE --code DIR": "tests/processes/client/test_code.py",
    # With kubelets.
    **dict.fromkeys(ON_KUBELETS, "tests/cluster/test_page_commands.py"),
    **dict.fromkeys(COPIES, "tests/cluster/test_files.py, with other files"),
    "tftj doctor": "tests/quickstarts/test_quickstarts.py",
}
JOB, ENDED, SUBMITTED = "digits", "trained", "mine"
COMMIT = "0123456789abcdef" * 2 + "01234567"
CHANGES = ("suspend", "resume", "restart", "scale", "delete")


@cache
def of_tftj() -> list[tuple[str, ...]]:
    """The words of each complete command, what changes the job last."""
    complete = [each for each in all_commands() if is_tftj(each) and problem(replace(each, whole=True)) is None]
    found = dict.fromkeys(each.words for each in complete)
    return sorted(found, key=lambda words: CHANGES.index(words[1]) if words[1] in CHANGES else -1)


def here_only() -> list[tuple[str, ...]]:
    return [words for words in of_tftj() if " ".join(words) not in ELSEWHERE]


def arguments(words: tuple[str, ...]) -> list[str]:
    """The arguments of `tftj`, with values in place of the placeholders of the pages."""
    verb = words[2] if words[0] == "kubectl" else words[1]
    job = ENDED if verb == "wait" else JOB
    values = {**PLACEHOLDERS, "JOB": job, "JOB...": job, "FILE": "tfjob.yaml" if verb == "convert" else "job.yaml"}
    found = [values.get(word, word.replace("STATE", "succeeded")) for word in words[words.index(verb) :]]
    return [re.sub(r"@(SHA|SUBSTITUTED)$", f"@{COMMIT}", word) for word in found]


def namespace_of(words: list[str]) -> str:
    return words[words.index("-n") + 1] if "-n" in words else "default"


def jobs() -> set[tuple[str, str]]:
    """Namespace and name of each job that the commands name."""
    all_words = [arguments(words) for words in here_only()]
    named = {(namespace_of(each), each[1]) for each in all_words if each[0] in OF_A_JOB and len(each) > 1}
    return {(namespace, name) for namespace, name in named if "/" not in name and not name.startswith("-")}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with what the commands name: manifests, a program, the history of a run of `tftj run`."""
    job = minimal(SUBMITTED)
    job["spec"]["storage"] = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}  # for --fresh
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    (tmp_path / "tfjob.yaml").write_text(yaml.safe_dump(tfjob("workers")))
    code_of(tmp_path)
    run = tmp_path / "training" / JOB
    run.mkdir(parents=True)
    (run / FILE).write_text(json.dumps(HISTORY))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def plane(here: Path) -> Iterator[ControlPlane]:
    """Give an API server with the jobs of the pages, a TFJob, and what a metrics server serves."""
    with ControlPlane() as plane:
        install_crd(plane)
        for namespace, name in sorted(jobs()):
            create_job(plane, namespace, name)
            metrics = dict.fromkeys(("loss", "val_loss"), HISTORY["metrics"]["loss"])
            TrainingJob(plane, namespace, name).patch({"status": {"history": {"metrics": metrics}}}, "/status")
        TrainingJob(plane, "default", ENDED).patch({"status": {"phase": "Succeeded"}}, "/status")
        served = definition("metrics.k8s.io", "v1beta1", {"kind": "PodMetrics", "plural": "pods", "singular": "pod"})
        for each in (TFJOB_CRD, served):
            plane.kubectl("apply", "--filename=-", stdin=json.dumps(each))
        for path in ("metrics.k8s.io/v1beta1/pods", "kubeflow.org/v1/tfjobs"):
            wait_until(partial(accepted, plane, f"/apis/{path}"), f"the API server serves {path}")
        create_tfjobs(plane)
        create_pods(plane)
        yield plane


def create_pods(plane: ControlPlane) -> None:
    """The two pods of the job that trains, and what they use."""
    plane.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    for name in (f"{JOB}-worker-0", f"{JOB}-worker-1"):
        labels = {"job-name": JOB, "role": "worker", "index": name[-1], "attempt": "1"}
        metadata = {"name": name, "labels": {f"tftraining.dev/{key}": value for key, value in labels.items()}}
        spec = {"containers": [{"name": "tensorflow", "image": "none"}]}
        plane.request("POST", "/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})
        TrainingJob(plane, "default", JOB).run_pod(name)
        used = {"name": "tensorflow", "usage": {"cpu": "750m", "memory": "512Mi"}}
        metrics = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "containers": [used]}
        path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
        plane.request("POST", path, {**metrics, "metadata": metadata})


def create_tfjobs(plane: ControlPlane) -> None:
    """The TFJobs that the commands name."""
    for each in (arguments(words) for words in here_only()):
        if "--from-cluster" in each:
            namespace, name = namespace_of(each), each[each.index("--from-cluster") + 1]
            plane.create_namespace(namespace)
            path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs"
            plane.request("POST", path, {**tfjob("workers"), "metadata": {"name": name}})


class Typist:
    """Runs each command, and tells what it says against it."""

    def __init__(self, plane: ControlPlane, spoken: Spoken) -> None:
        self._plane = plane
        self._spoken = spoken
        self._submitted = TrainingJob(plane, "default", SUBMITTED)

    def problem(self, words: tuple[str, ...]) -> str | None:
        """What is wrong with the command: its exit code, a traceback; None if it does what the page says."""
        given = arguments(words)
        if words[0] == "kubectl":
            return self._as_plugin(given)
        if given[0] == "submit":
            return self._submit(given)
        if given[0] == "dashboard" or (given[0] == "status" and "--watch" in given):
            return self._follow(given, 130)
        return told(0, *self._spoken(*given))

    def _submit(self, given: list[str]) -> str | None:
        if "--watch" in given:
            return self._follow(given, 0, "Succeeded") or self._follow(given, 1, "Failed")
        found = told(0, *self._spoken(*given))
        if self._submitted.is_gone() != ("--dry-run" in given):
            return found or "the job is there" if "--dry-run" in given else "there is no job"
        self._delete()
        return found

    def _delete(self) -> None:
        if not self._submitted.is_gone():
            self._submitted.delete()

    def _follow(self, given: list[str], code: int, phase: str = "") -> str | None:
        """Run a command that goes on; after its first line the submitted job gets the phase, or Ctrl-C is pressed."""
        with subprocess.Popen(
            [sys.executable, "-m", "tftraining_client", *given],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                first = process.stdout.readline()
                if phase and first:
                    self._submitted.patch({"status": {"phase": phase}}, "/status")
                elif first:
                    process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
            finally:
                process.kill()
        self._delete()
        return told(code, process.returncode, first + out, err)

    def _as_plugin(self, given: list[str]) -> str | None:
        kubectl = binaries.ensure("kubectl") / "kubectl"
        done = subprocess.run(
            [kubectl, "tftj", *given], env=self._environment(), capture_output=True, text=True, check=False
        )
        return told(0, done.returncode, done.stdout, done.stderr)

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self._plane.kubeconfig)}


def told(wanted: int, code: int, out: str, err: str) -> str | None:
    """What a command has said, if it was not the end that the page promises."""
    return None if code == wanted and "Traceback" not in out + err else f"exit code {code}: {out}{err}"


def test_each_exception_is_a_command_of_a_page_and_a_test() -> None:
    commands = {" ".join(words): words for words in of_tftj()}
    assert {*ELSEWHERE} - {*commands} == set()
    assert [each for each in ELSEWHERE.values() if not (REPOSITORY / each.split(",")[0]).is_file()] == []
    trainings = {words for words, each in commands.items() if "run" in each[:2]}
    assert trainings - {*ELSEWHERE} == set(), "name the test that runs it, or write one in tests/processes"


def test_tftj_carries_out_the_commands_of_the_pages(
    plane: ControlPlane, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = here_only()
    assert len(commands) > 25
    typist = Typist(plane, Spoken(plane.kubeconfig, capsys, monkeypatch))
    assert {" ".join(words): said for words in commands if (said := typist.problem(words))} == {}
    assert typist.problem(("tftj", "status", "digts")) and typist.problem(("tftj", "wait", "digits", "--timeout", "1s"))
    assert {each.name for each in here.glob("digits.*")} == {"digits.html", "digits.png"}
    assert TrainingJob(plane, "default", JOB).is_gone(), "the last command deletes it"

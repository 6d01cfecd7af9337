"""`tftj submit --replace` on a real API server: the program is edited, and the job submitted again."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane.test_client import Terminal, client, tftj
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.manifests import minimal
from tests.support.control_plane.operator_process import OperatorProcess
from tftraining_client import Client, UserError

__all__ = ["client"]  # a fixture
NAME = "tftrainingjob.tftraining.dev/job"


# Where the operator of an earlier test runs, the jobs have pods, and each replacement waits for their end.
pytestmark = pytest.mark.usefixtures("garbage_collection")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Give a writer of the file of a job with its program in a ConfigMap."""

    def written(program: str, name: str = "job", **spec: Any) -> str:
        job = minimal(name)
        job["spec"] |= {"storage": {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}, **spec}
        job["spec"]["template"]["spec"]["volumes"] = [{"name": "program", "configMap": {"name": "program"}}]
        code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, "data": {"a.py": program}}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump_all([code, job]))
        return str(path)

    return written


def program(plane: ControlPlane, namespace: str) -> Any:
    return plane.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/program")["data"]["a.py"]


def directory(job: TrainingJob) -> str | None:
    found: str | None = job.raw()["spec"]["storage"].get("directory")
    return found


def test_an_edited_program_takes_the_place_of_the_job_once_its_pods_are_gone(
    operator: OperatorProcess,
    control_plane: ControlPlane,
    namespace: str,
    write: Callable[..., str],
) -> None:
    job = TrainingJob(control_plane, namespace)

    def submit(file: str, *more: str) -> tuple[int, str, str]:
        done = tftj(control_plane.kubeconfig, "submit", "-f", file, "-n", namespace, "--replace", *more)
        return done.returncode, done.stdout, done.stderr

    assert submit(write("1")) == (0, f"{NAME} created\n", ""), "there is none yet"
    job.wait_for_pods(attempt=1)
    first = job.raw()["metadata"]["uid"]
    code, _, told = submit(write("2"))
    assert code == 2 and re.fullmatch(r"tftj: job job has not ended \(\w+\): --yes replaces it\n", told), told
    code, _, told = submit(write("2", replicaSpecs={"worker": {"replicas": -1}}), "--yes")
    assert code == 2 and "spec.replicaSpecs.worker.replicas" in told
    assert submit(write("2"), "--dry-run")[:2] == (0, f"{NAME} replaced (dry run)\n")
    assert (job.raw()["metadata"]["uid"], program(control_plane, namespace)) == (first, "1"), "nothing is changed"

    pod, merge = f"/api/v1/namespaces/{namespace}/pods/job-worker-1", "application/merge-patch+json"
    control_plane.request("PATCH", pod, {"metadata": {"finalizers": ["tests.example/kept"]}}, merge)
    with ThreadPoolExecutor() as threads:
        replacing = threads.submit(submit, write("2"), "--yes", "-o", "json")
        wait_until(lambda: "deletionTimestamp" in control_plane.request("GET", pod)["metadata"], "the pod is deleted")
        assert program(control_plane, namespace) == "1", "as long as a pod of the first job is there"
        gone = control_plane.request("PATCH", pod, {"metadata": {"finalizers": []}}, merge)
        code, printed, told = replacing.result()
    assert code == 0 and told == "tftj: job job is deleted; the new one is created when its pods have ended\n", told
    created = json.loads(printed)["metadata"]
    assert int(created["resourceVersion"]) > int(gone["metadata"]["resourceVersion"]) and created["uid"] != first
    assert program(control_plane, namespace) == "2" and directory(job) is None
    job.wait_for_pods(attempt=1)


def test_a_fresh_job_has_a_directory_of_its_own_which_the_next_one_keeps(
    control_plane: ControlPlane, client: Client, namespace: str, write: Callable[..., str]
) -> None:
    job = TrainingJob(control_plane, namespace)

    def submit(*more: str) -> str:
        done = tftj(control_plane.kubeconfig, "submit", "-f", write("1"), "-n", namespace, "--replace", "--yes", *more)
        assert done.returncode == 0, done.stderr
        return done.stderr

    submit()
    told, fresh = submit("--fresh"), directory(job)
    assert fresh and re.fullmatch(r"job-\d{8}-\d{6}", fresh)
    assert f"tftj: the job begins anew in the directory {fresh} of its storage\n" in told
    assert f"goes on in the directory {fresh} of its storage" in submit() and directory(job) == fresh
    client.submit({**minimal("job"), "spec": job.raw()["spec"]}, replaces=client.get("job"))
    assert directory(job) == fresh
    with pytest.raises(UserError, match="the manifest is of another job than job in "):
        client.submit(minimal("other"), replaces=client.get("job"))


def test_a_replacement_leaves_the_program_of_another_job_and_asks_at_a_terminal(
    control_plane: ControlPlane, namespace: str, write: Callable[..., str]
) -> None:
    admin, words = control_plane.kubeconfig, ("-n", namespace, "--replace")
    for name in ("job", "reader"):
        assert tftj(admin, "submit", "-f", write("1", name), *words).returncode == 0
    job = TrainingJob(control_plane, namespace)
    uid = job.raw()["metadata"]["uid"]
    refused = tftj(admin, "submit", "-f", write("2"), *words, "--yes")
    assert refused.stderr == "tftj: ConfigMap program has other content, and job reader reads it: choose another name\n"
    for answer, code, told in (("n\n", 2, "nothing is changed: job job stays"), ("", 130, "")):
        with Terminal(admin, 200, "submit", "-f", write("1"), *words) as terminal:
            terminal.read_until("replace it? [y/N] ")
            terminal.type(answer) if answer else terminal.interrupt()
            assert terminal.read_to_the_end() == code and told in terminal.text
    assert (job.raw()["metadata"]["uid"], program(control_plane, namespace)) == (uid, "1")
    with Terminal(admin, 200, "submit", "-f", write("1"), *words) as terminal:
        terminal.read_until("replace it? [y/N] ")
        terminal.type("y\n")
        assert terminal.read_to_the_end() == 0 and f"{NAME} replaced" in terminal.text
    assert job.raw()["metadata"]["uid"] != uid

"""A program without an image (spec.code) on a real API server: the objects of `tftj submit --code`, and its pods."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.shell import LabError
from tests.control_plane.test_client import client, service_account, tftj
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.manifests import Manifest, minimal, template
from tests.support.control_plane.operator_process import OperatorProcess
from tftraining_client import Client, UserError, WaitTimeout, distributed
from tftraining_client.code import pack
from tftraining_client.function import Handle

__all__ = ["client"]  # a fixture
DIRECTORY = "/opt/tftraining-code"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A directory with a program."""
    directory = tmp_path / "program"
    directory.mkdir()
    (directory / "train.py").write_text("print('trained')\n")
    return directory


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The file of a job that runs the program."""
    path = tmp_path / "job.yaml"
    job = minimal("job")
    job["spec"]["template"] = template(command=["python", "train.py"])
    path.write_text(yaml.safe_dump(job))
    return path


def config_maps(plane: ControlPlane, namespace: str) -> dict[str, Manifest]:
    items = plane.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    return {each["metadata"]["name"]: each for each in items if each["metadata"]["name"] != "kube-root-ca.crt"}


def assert_pod_unpacks(pod: Manifest, name: str, digest: str) -> None:
    spec = pod["spec"]
    (init,) = spec["initContainers"]
    assert f"--digest={digest}" in init["command"] and init["command"][4:6] == ["--code", DIRECTORY]
    (container,) = spec["containers"]
    assert container["workingDir"] == DIRECTORY and container["command"][-2:] == ["python", "train.py"]
    sources = [each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each]
    assert sources == [name]
    settings = json.loads(next(each["value"] for each in container["env"] if each["name"] == "TFTRAINING_LAUNCHER"))
    assert settings["code"] == DIRECTORY
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_submitted_code_belongs_to_the_job_and_is_the_same_for_a_later_pod(
    operator: OperatorProcess, control_plane: ControlPlane, namespace: str, program: Path, manifest: Path
) -> None:
    digest = pack(program).digest
    words = ["submit", "-f", str(manifest), "--code", str(program), "-n", namespace]
    sent = tftj(control_plane.kubeconfig, *words)
    assert (sent.returncode, sent.stdout) == (0, "tftrainingjob.tftraining.dev/job created\n"), sent.stderr
    job = TrainingJob(control_plane, namespace)
    ((name, archive),) = config_maps(control_plane, namespace).items()
    (owner,) = archive["metadata"]["ownerReferences"]
    assert owner["uid"] == job.raw()["metadata"]["uid"] and archive["immutable"] is True
    assert digest[7:19] in name

    (program / "train.py").write_text("print('something else')\n")
    pods = job.wait_for_pods(attempt=1)
    for pod in pods.values():
        assert_pod_unpacks(pod, name, digest)
    wait_until(lambda: job.status().get("code") == {"digest": digest}, "the digest stands in the status")
    control_plane.kubectl("scale", "tftrainingjob/job", "--replicas=3", "--namespace", namespace)
    assert_pod_unpacks(wait_until(lambda: job.pods().get("job-worker-2", {}), "a third worker"), name, digest)

    job.patch_pod(
        "job-worker-0", init_container_failed(f"the archive has the digest sha256:…, not {digest}"), "/status"
    )
    reached = wait_until(lambda: job.status().get("lastRestart", {}), "a failed init container restarts the pod")
    assert reached["reason"] == "InitContainerFailed"
    wait_until(lambda: "the archive has the digest" in str(job.events()), "the event")


def init_container_failed(message: str) -> dict[str, Any]:
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": message}}
    entry = {"image": "i", "imageID": "", "restartCount": 0, "ready": False}
    init = {"name": "tftraining-launcher", "state": state, **entry}
    main = {"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}, **entry}
    return {"status": {"phase": "Failed", "initContainerStatuses": [init], "containerStatuses": [main]}}


def test_the_printed_objects_can_be_applied_by_kubectl(
    operator: OperatorProcess, control_plane: ControlPlane, namespace: str, program: Path, manifest: Path
) -> None:
    words = ["submit", "-f", str(manifest), "--code", str(program), "-n", namespace, "--dry-run", "-o", "yaml"]
    small = tftj(control_plane.kubeconfig, *words)
    (program / ".env").write_text("TOKEN=x")
    told = tftj(control_plane.kubeconfig, *words)
    assert told.stdout == small.stdout and "look like credentials: .env;" in told.stderr
    listed = re.sub(r"[\d.]+ KiB", "N KiB", small.stderr)
    assert (small.returncode, listed) == (
        0,
        "tftj: the code: 1 file, N KiB as an archive\ntftj:   train.py (17 bytes)\n",
    )
    assert [each["kind"] for each in yaml.safe_load_all(small.stdout)] == ["ConfigMap", "TFTrainingJob"]
    (program / "noise.bin").write_bytes(os.urandom(179 << 10))
    largest = tftj(control_plane.kubeconfig, *words)
    assert "server-side" not in largest.stderr
    (program / "noise.bin").write_bytes(os.urandom(196 << 10))
    large = tftj(control_plane.kubeconfig, *words)
    assert "kubectl apply --server-side -f FILE" in large.stderr
    assert config_maps(control_plane, namespace) == {}, "a dry run creates nothing"

    apply = ["apply", "--validate=strict", "--namespace", namespace, "--filename=-"]
    control_plane.kubectl(*apply, "--dry-run=server", stdin=small.stdout)
    control_plane.kubectl(*apply, "--dry-run=server", stdin=largest.stdout)
    with pytest.raises(LabError, match=r"metadata\.annotations: Too long"):
        control_plane.kubectl(*apply, stdin=large.stdout)
    control_plane.kubectl(*apply, "--server-side", stdin=large.stdout)
    ((name, _),) = config_maps(control_plane, namespace).items()
    job = TrainingJob(control_plane, namespace)
    for pod in job.wait_for_pods(attempt=1).values():
        assert_pod_unpacks(pod, name, pack(program).digest)


@pytest.fixture
def large(program: Path, manifest: Path) -> Iterator[list[str]]:
    """The arguments that submit a program which no ConfigMap can hold, for a job with storage."""
    (program / "noise.bin").write_bytes(os.urandom(1 << 20))
    job = yaml.safe_load(manifest.read_text())
    job["spec"]["storage"] = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}}
    manifest.write_text(yaml.safe_dump(job))
    yield ["submit", "-f", str(manifest), "--code", str(program)]


@contextmanager
def uploading(plane: ControlPlane, namespace: str, words: list[str]) -> "Iterator[subprocess.Popen[str]]":
    """The command, while its pod waits: no kubelet starts it."""
    command = [sys.executable, "-m", "tftraining_client", *words, "-n", namespace]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def files_pods(plane: ControlPlane, namespace: str) -> list[Manifest]:
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fname%3Dfiles"
    found: list[Manifest] = plane.request("GET", path)["items"]
    return found


def name_of(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])


def set_status(plane: ControlPlane, pod: Manifest, status: Manifest) -> None:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
    plane.request("PATCH", path, {"status": status}, "application/merge-patch+json")


def test_an_upload_that_is_interrupted_leaves_nothing(
    client: Client, control_plane: ControlPlane, namespace: str, large: list[str]
) -> None:
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    control_plane.request("PATCH", f"/api/v1/namespaces/{namespace}", restricted, "application/merge-patch+json")
    with uploading(control_plane, namespace, large) as command:
        wait_until(lambda: files_pods(control_plane, namespace), "the pod of the upload")
        assert command.stderr is not None
        assert "MiB as an archive; --dry-run lists them" in command.stderr.readline()
        assert command.stderr.readline() == "tftj: the code (1.0 MiB) is copied into the storage of the job\n"
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=60)
        assert (command.returncode, "Traceback" in told) == (130, False), told
    assert files_pods(control_plane, namespace) == [] and client.list() == []


def test_a_large_program_without_storage_or_rights_and_as_a_dry_run(
    client: Client, control_plane: ControlPlane, namespace: str, large: list[str], manifest: Path, tmp_path: Path
) -> None:
    program = large[-1]
    checked = tftj(control_plane.kubeconfig, *large, "-n", namespace, "--dry-run", "-o", "yaml")
    (job,) = yaml.safe_load_all(checked.stdout)
    path = job["spec"]["code"]["storage"]["path"]
    assert path == f"job/.tftraining-code/job.{job['spec']['code']['digest'][7:]}.tar.gz"
    assert checked.stderr.endswith(
        f"tftj: without --dry-run the code (1.0 MiB) is uploaded first, to {path} in the PersistentVolumeClaim "
        "training; kubectl alone does not upload it\n"
    )
    rights = [{"apiGroups": ["tftraining.dev"], "resources": ["tftrainingjobs"], "verbs": ["create"]}]
    rights.append({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]})
    person = service_account(control_plane, namespace, rights, tmp_path)
    told = f"no permission: system:serviceaccount:{namespace}:person may not create pods in namespace {namespace}; "
    with Client(kubeconfig=str(person)) as limited, pytest.raises(UserError) as refused:
        limited.submit(manifest, code=program)
    assert str(refused.value) == f"{told}the cluster role edit contains the right"
    plain = yaml.safe_load(manifest.read_text())
    del plain["spec"]["storage"]
    manifest.write_text(yaml.safe_dump(plain))
    with pytest.raises(
        UserError, match=r"a larger one goes into a volume .* \(spec\.storage\), which the job does not"
    ):
        client.submit(manifest, code=program)
    assert files_pods(control_plane, namespace) == [] and client.list() == []


def test_what_cannot_be_submitted_leaves_nothing_behind(
    client: Client, control_plane: ControlPlane, namespace: str, program: Path, manifest: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(manifest.read_text().replace("replicas: 2", "replicas: 0"))
    assert wrong.read_text() != manifest.read_text()
    url = "https://git.example.com/a.git"
    with pytest.raises(UserError, match=r"spec\.replicaSpecs\.worker\.replicas"):
        client.submit(wrong, code=program)
    with pytest.raises(UserError, match="a job has one program: use --code or --git"):
        client.submit(manifest, code=program, git=f"{url}@{'0' * 40}")
    with pytest.raises(UserError, match="main: its end is not the full SHA of a commit"):
        client.submit(manifest, git=f"{url}@main")
    refused = tftj(control_plane.kubeconfig, "submit", "-f", str(manifest), "--code", str(tmp_path / "nowhere"))
    assert (refused.returncode, refused.stderr) == (2, f"tftj: {tmp_path}/nowhere: no such directory\n")
    assert config_maps(control_plane, namespace) == {} and client.list() == []


@pytest.mark.usefixtures("garbage_collection")
def test_the_same_code_again_does_not_depend_on_the_config_map_of_a_deleted_job(
    client: Client, control_plane: ControlPlane, namespace: str, program: Path, manifest: Path
) -> None:
    """Garbage collection, without which the pods of the session's operator would stay, may remove the first job's
    ConfigMap at any moment."""
    first = client.submit(manifest, code=program)
    with pytest.raises(UserError, match="already exists"):
        client.submit(manifest, code=program)
    ((name, _),) = config_maps(control_plane, namespace).items()
    client.delete(first.name, wait=True)
    second = client.submit(manifest, code=program)
    chosen = second.raw["spec"]["code"]["configMap"]["name"]
    assert chosen == name or chosen.startswith(f"{name}-")
    (owner,) = config_maps(control_plane, namespace)[chosen]["metadata"]["ownerReferences"]
    assert owner["uid"] == second.uid != first.uid


def train(epochs: int) -> None:
    """Never runs: there is no node."""


def test_a_function_is_submitted_from_a_program_with_an_event_loop(
    operator: OperatorProcess, control_plane: ControlPlane, namespace: str
) -> None:
    key = {"secretKeyRef": {"name": "hf", "key": "token"}}

    async def notebook() -> Handle:
        options = {"namespace": namespace, "kubeconfig": str(control_plane.kubeconfig), "name": "job"}
        asked = {"resources": {"cpu": 1}, "env": {"HF_TOKEN": key}, "packages": ["rich"]}
        return distributed(workers=2, **options, **asked)(train)(3)

    handle = asyncio.run(notebook())
    job = TrainingJob(control_plane, namespace)
    pod = job.wait_for_pods(attempt=1)["job-worker-1"]
    container = pod["spec"]["containers"][0]
    assert container["command"][-2:] == ["python", "run_function.py"]
    assert container["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert {"name": "HF_TOKEN", "valueFrom": key} in container["env"]
    ((_, archive),) = config_maps(control_plane, namespace).items()
    assert archive["metadata"]["ownerReferences"][0]["uid"] == job.raw()["metadata"]["uid"]
    with pytest.raises(WaitTimeout):
        handle.wait(timeout=0.2)
    handle.delete()
    wait_until(job.is_gone, "the job is gone")

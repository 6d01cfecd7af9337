"""The pod of `tftj cp` and `tftj ls` on a real API server: where it runs, and what is told of one that cannot."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.test_client import tftj
from tests.control_plane.test_code import files_pods, name_of, set_status, uploading
from tests.control_plane.test_tftj_verbs import create_job
from tests.support.client.verbs import JOB
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import wait_until

RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
RUNNING = {"phase": "Running"}


def create_claim(plane: ControlPlane, namespace: str, mode: str) -> None:
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "training"}, "spec": spec}
    plane.request("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)


def create_user(plane: ControlPlane, namespace: str) -> None:
    """A running pod with the claim, on a node."""
    container = {"name": "tensorflow", "image": "none", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    spec = {
        "nodeName": "node-7",
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "training"}}],
    }
    made = plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "user"}, "spec": spec})
    set_status(plane, made, RUNNING)


@pytest.fixture
def job(control_plane: ControlPlane, namespace: str) -> str:
    create_job(control_plane, namespace)
    return namespace


def test_the_pod_goes_to_the_node_of_its_claim_and_with_its_command(
    control_plane: ControlPlane, job: str, tmp_path: Path
) -> None:
    create_claim(control_plane, job, "ReadWriteOnce")
    create_user(control_plane, job)
    control_plane.request("PATCH", f"/api/v1/namespaces/{job}", RESTRICTED, "application/merge-patch+json")
    with uploading(control_plane, job, ["cp", f"{JOB}:models/final.keras", str(tmp_path)]) as command:
        (pod,) = wait_until(lambda: files_pods(control_plane, job), "the pod of the copy")
        (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]}
        assert not pod["spec"]["automountServiceAccountToken"] and "ownerReferences" not in pod["metadata"]
        full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes available"}
        set_status(control_plane, pod, {"phase": "Pending", "conditions": [full]})
        assert command.stderr is not None
        while (told := command.stderr.readline()) != "tftj: the pod of the copy waits: 0/1 nodes available\n":
            assert told == "tftj: the pod of the copy waits: it starts\n"
        event = {
            "metadata": {"generateName": "mount-"},
            "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": job},
            "type": "Warning",
            "reason": "FailedAttachVolume",
            "message": "Multi-Attach error for volume pvc-1",
        }
        control_plane.request("POST", f"/api/v1/namespaces/{job}/events", event)
        assert command.stderr.readline() == "tftj: the pod of the copy waits: Multi-Attach error for volume pvc-1\n"
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=60)
        assert (command.returncode, "Traceback" in told) == (130, False), told
    assert files_pods(control_plane, job) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("phase", "state", "told"),
    [
        (
            "Failed",
            {"terminated": {"exitCode": 127, "reason": "StartError", "message": "python3: not found"}},
            "has ended: exit code 127: python3: not found; the image needs Python 3.9 or later; what has arrived is "
            "kept, and the same command goes on",
        ),
        (
            "Pending",
            {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i": not found'}},
            'cannot start: ImagePullBackOff: Back-off pulling image "i": not found',
        ),
    ],
)
def test_a_pod_that_ends_or_cannot_start_and_one_that_was_left(
    control_plane: ControlPlane, job: str, phase: str, state: dict[str, Any], told: str
) -> None:
    with uploading(control_plane, job, ["ls", JOB]) as command:
        (left,) = wait_until(lambda: files_pods(control_plane, job), "the pod of the list")
        command.kill()
    set_status(control_plane, left, {"phase": "Failed", "reason": "DeadlineExceeded"})
    container = {"name": "files", "state": state, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    with uploading(control_plane, job, ["ls", JOB]) as command:
        (pod,) = wait_until(
            lambda: [each for each in files_pods(control_plane, job) if name_of(each) != name_of(left)],
            "another pod in place of the one that was left",
        )
        set_status(control_plane, pod, {"phase": phase, "containerStatuses": [container]})
        _, said = command.communicate(timeout=60)
    assert (command.returncode, said.splitlines()[-1]) == (2, f"tftj: the pod of the copy {told}")
    assert files_pods(control_plane, job) == []


def test_what_cannot_be_copied_is_one_line(control_plane: ControlPlane, job: str, tmp_path: Path) -> None:
    def says(*words: str) -> str:
        done = tftj(control_plane.kubeconfig, *words, "-n", job)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done
        return done.stderr

    create_claim(control_plane, job, "ReadWriteOncePod")
    create_user(control_plane, job)
    assert "the claim training is ReadWriteOncePod, and pod user has it" in says("ls", JOB)
    assert "one side of a copy is JOB:PATH" in says("cp", str(tmp_path), "b")
    assert "none cannot be copied: no such file" in says("cp", str(tmp_path / "none"), f"{JOB}:")
    assert "team/digits' is not the name of a job" in says("ls", f"team/{JOB}:a")
    limits = {"limits": [{"type": "Container", "min": {"memory": "1Gi"}}]}
    path = f"/api/v1/namespaces/{job}"
    control_plane.request("DELETE", f"{path}/pods/user?gracePeriodSeconds=0")
    control_plane.request("POST", f"{path}/limitranges", {"metadata": {"name": "large"}, "spec": limits})
    assert "minimum memory usage per Container is 1Gi" in says("ls", JOB)
    assert files_pods(control_plane, job) == []

"""Gangs whose TF_CONFIG is too long for a manifest, or for any process, on a real API server."""

import json

import pytest

from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.manifests import template
from tftraining.launch.config.settings import with_tf_config
from tftraining.launch.in_user_process.tf_config import size

PYTHON = template(command=["python", "train.py"])
BASH = template(command=["bash", "train.sh"])
WORKERS = 5000


def would_have(job: TrainingJob) -> int:
    """The bytes of the longest TF_CONFIG of a gang of WORKERS."""
    workers = [f"job-worker-{index}.job.{job.namespace}.svc:2222" for index in range(WORKERS)]
    return size(json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": WORKERS - 1}}))


@pytest.mark.parametrize(
    ("mode", "pod", "said"),
    [
        ("InPlace", BASH, "the command (bash train.sh) is not python"),
        ("Recreate", PYTHON, "there is no launcher with spec.restartPolicy.mode: Recreate"),
    ],
)
def test_a_tf_config_that_no_process_can_be_told_fails_the_job(
    new_job: NewJob, mode: str, pod: object, said: str
) -> None:
    changes = {"spec__restartPolicy__mode": mode, "spec__replicaSpecs__worker__replicas": WORKERS}
    job = new_job(spec__template=pod, **changes)
    message = job.wait_for("Failed", reason="InvalidSpec")["message"]
    assert f"TF_CONFIG of worker-{WORKERS - 1} would have {would_have(job)} bytes, more than the 131072" in message
    assert said in message
    assert not job.pods() and not job.objects("services")
    wait_until(lambda: ("Warning", "Failed", message) in job.events(), "the event")


def test_a_long_tf_config_is_left_to_the_launcher(new_job: NewJob) -> None:
    in_place = {"spec__restartPolicy__mode": "InPlace", "spec__replicaSpecs__worker__replicas": 500}
    job = new_job(spec__template=PYTHON, **in_place)
    pods = job.wait_for_pods(attempt=1, count=500)
    for index in (0, 499):
        env = {each["name"]: each["value"] for each in pods[f"job-worker-{index}"]["spec"]["containers"][0]["env"]}
        assert "TF_CONFIG" not in env
        config = json.loads(with_tf_config(env)["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": index}
        assert config["cluster"]["worker"] == [f"job-worker-{at}.job.{job.namespace}.svc:2222" for at in range(500)]


def test_a_gang_that_outgrows_its_command_is_left_alone_until_it_is_smaller_again(new_job: NewJob) -> None:
    job = new_job(spec__template=BASH, spec__restartPolicy__mode="InPlace")
    before = {name: pod["metadata"]["uid"] for name, pod in job.run().items()}
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": WORKERS}}}})
    wait_until(lambda: job.condition("Unreadable").get("status") == "True", "the condition")
    assert f"would have {would_have(job)} bytes" in job.condition("Unreadable")["message"]
    assert job.status()["phase"] == "Running"
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == before
    job.patch({"spec": {"replicaSpecs": {"worker": {"replicas": 2}}}})
    wait_until(lambda: not job.condition("Unreadable"), "the condition goes")
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == before

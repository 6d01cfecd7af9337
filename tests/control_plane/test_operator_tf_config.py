"""Gangs whose TF_CONFIG is too long for a manifest, on a real API server."""

import json

from tests.support.control_plane.jobs import NewJob
from tests.support.control_plane.manifests import template
from tftraining.launch.config.settings import with_tf_config

PYTHON = template(command=["python", "train.py"])


def test_a_long_tf_config_is_left_to_the_launcher(new_job: NewJob) -> None:
    in_place = {"spec__restartPolicy__mode": "InPlace", "spec__replicaSpecs__worker__replicas": 500}
    job = new_job(spec__template=PYTHON, **in_place)
    pods = job.wait_for_pods(attempt=1, count=500, seconds=60)
    for index in (0, 499):
        env = {each["name"]: each["value"] for each in pods[f"job-worker-{index}"]["spec"]["containers"][0]["env"]}
        assert "TF_CONFIG" not in env
        config = json.loads(with_tf_config(env)["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": index}
        assert config["cluster"]["worker"] == [f"job-worker-{at}.job.{job.namespace}.svc:2222" for at in range(500)]

"""A job whose storage is a bucket (spec.storage.uri), in pods that have no volume.

TensorFlow's own client of Google Cloud Storage, with a token of workload identity, talks to an emulator on this
machine.
"""

from pathlib import Path

import pytest
import yaml

from testbed import binaries
from testbed.cluster import Cluster
from testbed.pod_network import routes_to_pods
from tests.support.cluster.training import Manifest, Training, condition
from tests.support.repository import REPOSITORY
from tests.support.trainer.bucket import BUCKET, METADATA, NAMES, emulated_bucket, objects

LESSON = REPOSITORY / "examples" / "lessons" / "multi-worker-fit.yaml"
ACCOUNT = "trainer"
TOKEN = "token-of-the-account"
TRUST = "/trust"


@pytest.mark.slow_fault
def test_a_job_with_a_bucket_resumes_after_a_kill_and_a_lost_pod_and_is_cleaned(
    cluster: Cluster, operator: object, namespace: str, tmp_path: Path
) -> None:
    if cluster.nodes is None:
        pytest.skip("the pods of a given cluster do not reach this machine")
    server = binaries.ensure("fake-gcs-server") / "fake-gcs-server"
    address = cluster.nodes.gateway()
    with routes_to_pods(cluster.kube), emulated_bucket(server, tmp_path, address, TOKEN):
        manifest = job(cluster.images[1], namespace, address)
        cluster.kube.apply(*identity(namespace, (tmp_path / "ca.crt").read_text()), manifest)
        training = Training(cluster.kube, namespace, manifest["metadata"]["name"])

        training.wait_for_line("worker-0", "^Epoch 3/10", 240)
        training.kill_program("worker-1")
        training.wait_for("restarted", lambda now: now.get("restarts", {}).get("inPlace") == 1, 60)
        training.wait_for_line("worker-0", "^Epoch 6/10", 180)
        training.delete("worker-1")
        status = training.wait_for_phase("Succeeded", 300)
        assert status["lastRestart"]["resumedFromEpoch"] >= 5, status
        assert status["restarts"]["counted"] == 1, status
        requests = (tmp_path / "requests").read_text()
        assert "token given" in requests and "refused" not in requests, requests

        training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 180)
        left = objects(f"team/{training.name}/", tmp_path, address, TOKEN)
        assert ".tftraining-verdict.json" in left and "model.keras" in left, left
        assert not [each for each in left if "workertemp" in each], left


def identity(namespace: str, authority: str) -> list[Manifest]:
    """The account of the pods, and the authority that they trust."""
    where = {"namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, **where}}
    trust = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trust", **where}}
    return [account, {**trust, "data": {"ca.crt": authority}}]


def job(image: str, namespace: str, address: str) -> Manifest:
    """The lesson with a bucket in place of its volume; its pods take the test's address for those of Google."""
    manifest: Manifest = yaml.safe_load(LESSON.read_text())
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["storage"] = {"uri": f"gs://{BUCKET}/team", "saveDirs": [".", "backup"]}
    pod = manifest["spec"]["template"]["spec"]
    pod |= {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": True,
        "hostAliases": [{"ip": address, "hostnames": [*NAMES, METADATA]}],
        "volumes": [{"name": "trust", "configMap": {"name": "trust"}}],
    }
    pod["containers"][0] |= {
        "image": image,
        "env": [{"name": "CURL_CA_BUNDLE", "value": f"{TRUST}/ca.crt"}],
        "volumeMounts": [{"name": "trust", "mountPath": TRUST, "readOnly": True}],
    }
    return manifest

"""A job whose storage is a bucket (spec.storage.uri), in pods that have no volume.

TensorFlow's own client of Google Cloud Storage, with a token of workload identity, talks to an emulator on this
machine.
"""

from pathlib import Path

import pytest

from testbed import binaries
from testbed.cluster import Cluster
from tests.support.cluster.bucket import EmulatedBucket, emulated_bucket
from tests.support.cluster.training import Manifest, Training, condition, example
from tests.support.trainer.bucket import BUCKET

ACCOUNT = "trainer"
TRUST = "/trust"


@pytest.mark.slow_fault
def test_a_job_with_a_bucket_resumes_after_a_kill_and_a_lost_pod_and_is_cleaned(
    cluster: Cluster, operator: object, namespace: str, tmp_path: Path
) -> None:
    if cluster.nodes is None:
        pytest.skip("the pods of a given cluster do not reach this machine")
    server = binaries.ensure("fake-gcs-server") / "fake-gcs-server"
    with emulated_bucket(server, cluster.nodes.gateway(), tmp_path) as bucket:
        manifest = job(cluster.images[1], namespace, bucket)
        cluster.kube.apply(*identity(namespace, bucket), manifest)
        training = Training(cluster.kube, namespace, manifest["metadata"]["name"])

        training.wait_for_line("worker-0", "^epoch 3/10 ", 240)
        training.kill_program("worker-1")
        training.wait_for("restarted", lambda now: now.get("restarts", {}).get("inPlace") == 1, 60)
        training.wait_for_line("worker-0", "^epoch 6/10 ", 180)
        training.delete("worker-1")
        status = training.wait_for_phase("Succeeded", 300)
        assert status["lastRestart"]["resumedFromEpoch"] >= 5, status
        assert status["restarts"]["counted"] == 1, status
        assert (bucket.tokens > 0, bucket.refused) == (True, 0)

        training.wait_for("cleaned up", lambda now: condition(now, "Cleaned") == "True", 180)
        left = bucket.objects(f"team/{training.name}/")
        assert ".tftraining-verdict.json" in left and "model.keras" in left, left
        assert not [each for each in left if "workertemp" in each], left


def identity(namespace: str, bucket: EmulatedBucket) -> list[Manifest]:
    """The account of the pods, and the authority that they trust."""
    where = {"namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, **where}}
    trust = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trust", **where}}
    return [account, {**trust, "data": {"ca.crt": bucket.authority}}]


def job(image: str, namespace: str, bucket: EmulatedBucket) -> Manifest:
    """The example with a bucket in place of its volume; its pods take the test's addresses for those of Google."""
    manifest = example(
        image, "--steps-per-epoch=40", storage={"uri": f"gs://{BUCKET}/team", "saveDirs": [".", "backup"]}
    )
    manifest["metadata"]["namespace"] = namespace
    pod = manifest["spec"]["template"]["spec"]
    pod |= {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": True,
        "hostAliases": [{"ip": bucket.address, "hostnames": bucket.host_names}],
        "volumes": [{"name": "trust", "configMap": {"name": "trust"}}],
    }
    pod["containers"][0] |= {
        "env": [{"name": "CURL_CA_BUNDLE", "value": f"{TRUST}/ca.crt"}],
        "volumeMounts": [{"name": "trust", "mountPath": TRUST, "readOnly": True}],
    }
    return manifest

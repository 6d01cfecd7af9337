"""`tftj restart` and `tftj tensorboard` beside real kubelets, on a training with backups in memory."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testbed.cluster import Cluster
from testbed.shell import LabError
from tests.cluster.test_memory_backups import START_SECONDS, training
from tests.support.cluster.training import Manifest, Training

__all__ = ["training"]
BOARDS = "app.kubernetes.io/name=tensorboard"
# Nothing may connect to TensorBoard's pod; a port-forward comes from its node.
DENY: Manifest = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny"},
    "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "tensorboard"}}, "policyTypes": ["Ingress"]},
}


@contextmanager
def tftj(training: Training, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command about the job, with pipes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tftraining_client", *words, "--namespace", training.namespace],
        env={**os.environ, "KUBECONFIG": str(training.kube.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def boards(training: Training) -> list[Manifest]:
    """TensorBoard's pods."""
    found: list[Manifest] = training.kube.get("pods", "--namespace", training.namespace, "--selector", BOARDS)["items"]
    return found


@pytest.mark.slow_fault
@pytest.mark.parametrize("training", [20_000], indirect=True, ids=["long"])
def test_a_restart_loses_no_step_and_tensorboard_reads_the_storage(cluster: Cluster, training: Training) -> None:
    uids = training.uids()
    with tftj(training, "restart", training.name) as process:
        assert process.communicate(timeout=60) == (f"tftrainingjob.tftraining.dev/{training.name} restarted\n", "")

    trained: list[int] = []

    def trains(now: Manifest) -> bool:
        last = now.get("lastRestart", {})
        if not last or now.get("phase") == "Restarting":
            trained.append(now.get("progress", {}).get("step", 0))
        return bool(now.get("phase") == "Running" and last.get("resumedFromStep") is not None)

    status = training.wait_for("training in new pods", trains, START_SECONDS)
    last = status["lastRestart"]
    assert (last["reason"], status["restarts"]["counted"]) == ("RestartRequested", 0), status
    assert not set(uids.values()) & set(training.uids().values()), "the pods are new"
    # With new launchers only, nobody counts the lost steps: every step that the old ones have reported is kept.
    assert last["resumedFromStep"] >= max(trained) > 0, (last, trained)

    cluster.kube.kubectl("apply", "--namespace", training.namespace, "--filename=-", stdin=json.dumps(DENY))
    with tftj(training, "tensorboard", training.name, "--port", "0") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.communicate()
        with urllib.request.urlopen(f"{url}data/environment", timeout=60) as answer:
            assert json.load(answer)["data_location"] == f"/training/{training.name}"
        (pod,) = boards(training)
        assert [each["uid"] for each in pod["metadata"]["ownerReferences"]] == [training.job()["metadata"]["uid"]]
        with pytest.raises(LabError, match="Read-only file system"):
            where = ("--namespace", training.namespace, pod["metadata"]["name"])
            training.kube.kubectl("exec", *where, "--", "touch", f"/training/{training.name}/written")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
        assert process.returncode == 130 and "Traceback" not in told, told
    assert all(each["metadata"].get("deletionTimestamp") for each in boards(training))
    assert training.status()["phase"] == "Running"

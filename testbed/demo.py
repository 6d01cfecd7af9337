"""The demo: a real cluster, a real training of two workers, one of which is killed during the training and resumes.

    make demo-cluster

It tells what it does while it does it, and leaves nothing running, unless the cluster was up before. It fails, with one
line, when anything that it tells of does not happen.
"""

import json
import shutil
import sys
import time

from testbed import cluster as lab
from testbed import release
from testbed.cluster import Cluster
from testbed.shell import LabError
from tests.support.cluster.training import EXAMPLE, Training, example, local_storage
from tests.support.repository import REPOSITORY

NAMESPACE = "demo"
VICTIM = "worker-1"
EPOCHS = 10
_began = time.monotonic()


def tell(text: str) -> None:
    """Print one step of the story, with the seconds since its beginning."""
    print(f"[{time.monotonic() - _began:5.1f} s] {text}", flush=True)


def prepare(cluster: Cluster) -> Training:
    """A namespace with storage that both nodes see; returns the handle of the job to come."""
    volume, claim = local_storage(NAMESPACE)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    if cluster.shared is not None:
        (cluster.shared / volume["metadata"]["name"]).mkdir(mode=0o755, exist_ok=True)
    cluster.kube.apply(volume, claim)
    return Training(cluster.kube, NAMESPACE, "digits")


def follow(job: Training, until: str, seconds: float) -> None:
    """Show each new line of worker 0's log until one begins with `until`."""
    shown, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = job.log("worker-0").splitlines()
        for line in lines[shown:]:
            if line.startswith(("epoch ", "resumed ", "loaded ", "saved ", "result: ")):
                tell(f"    worker-0 | {line}")
            shown += 1
            if line.startswith(until):
                return
        time.sleep(0.3)
    raise LabError(f"worker-0 did not print {until!r} within {seconds:.0f} s: {job.status()}")


def columns(job: Training) -> None:
    """Show the job as `kubectl get` does."""
    table = job.kube.kubectl("get", "tftrainingjob", job.name, "--namespace", NAMESPACE)
    for line in table.splitlines():
        tell(f"    {line}")


def disturb(job: Training) -> None:
    """Kill the victim's program in the third epoch, and wait until the gang trains again."""
    follow(job, f"epoch 2/{EPOCHS} ", 240)
    columns(job)
    tell(f"SIGKILL for the program of {VICTIM}, in the middle of epoch 3")
    job.kill_program(VICTIM)
    status = job.wait_for("the restart", lambda now: "downSeconds" in now.get("lastRestart", {}), 120)
    tell(f"the operator: {status['message']}")


def conclude(job: Training) -> None:
    """Follow the training to its end, and show the result and the cleanup."""
    job.wait_for_line("worker-0", "^resumed from epoch", 120)
    follow(job, "result: ", 300)
    status = job.wait_for_phase("Succeeded", 60)
    tell(f"Succeeded: {status['message']}; restarts counted: {status['restarts']['counted']}")
    status = job.wait_for("the cleanup", lambda now: (now.get("cleanup") or {}).get("removed") is not None, 120)
    tell(f"cleanup: {status['cleanup']['message']}")
    columns(job)


def story(cluster: Cluster) -> None:
    """The whole demo on a cluster that is up."""
    tell("installing the operator: helm install charts/tftraining-operator")
    release.install(cluster.kube, cluster.images[0])
    job = prepare(cluster)
    tell(f"kubectl apply -f {EXAMPLE.relative_to(REPOSITORY)}  (its image: {cluster.images[1]})")
    manifest = example(cluster.images[1])
    manifest["metadata"]["namespace"] = NAMESPACE
    cluster.kube.apply(manifest)
    disturb(job)
    conclude(job)
    if cluster.shared is not None:
        folder = cluster.shared / f"{NAMESPACE}-training"
        result = json.loads((folder / "digits" / "result.json").read_text())
        left = sorted(each.name for each in folder.rglob("workertemp_*"))
        tell(f"accuracy {result['accuracy']:.3f}, resumed from epoch {result['resumed_from']}")
        tell(f"temporary save directories left behind: {', '.join(left) or 'none'}")


def tidy(cluster: Cluster) -> None:
    """Remove the objects of the demo from a cluster that stays up."""
    cluster.kube.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    cluster.kube.kubectl("delete", "persistentvolume", f"{NAMESPACE}-training", "--ignore-not-found")
    release.tidy(cluster.kube)
    if cluster.shared is not None:
        shutil.rmtree(cluster.shared / f"{NAMESPACE}-training", ignore_errors=True)


def main() -> int:
    """The exit code: 0 if every step of the demo succeeded."""
    was_up = lab.is_up()
    try:
        tell("starting the cluster (the first time this builds Kubernetes and the images: about 15 minutes)")
        cluster = lab.up()
        try:
            story(cluster)
        finally:
            tell("tidying up")
            tidy(cluster) if was_up else lab.down()
    except LabError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    tell("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`kubectl scale` through the scale subresource, with launchers and without, and what else reads it."""

import json
from datetime import UTC, datetime
from typing import Any

from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.jobs import JOBS, wait_until
from tests.support.kwok.jobs import NewJob, SimulatedJob

RESUMED = {"member": "worker-0", "reason": "Resized", "downSeconds": 1.1, "resumedFromEpoch": 2, "lostSteps": 30}


def scale(job: SimulatedJob, workers: int) -> None:
    job.plane.kubectl("scale", "tftj/job", f"--replicas={workers}", "--namespace", job.namespace)


def indices(job: SimulatedJob) -> list[int]:
    """The indices of the workers that have pods."""
    return sorted(int(pod["metadata"]["labels"]["tftraining.dev/index"]) for pod in job.pods().values())


def tf_config(pod: dict[str, Any]) -> dict[str, Any]:
    """What the pod's program is told."""
    (text,) = (each["value"] for each in pod["spec"]["containers"][0]["env"] if each["name"] == "TF_CONFIG")
    told: dict[str, Any] = json.loads(text)
    return told


def test_three_one_two_without_launchers(new_job: NewJob) -> None:
    job = new_job(spec__replicaSpecs__worker__replicas=3)
    job.train(3)
    for attempt, workers in ((2, 1), (3, 2)):
        scale(job, workers)
        job.train(workers, attempt)
        assert indices(job) == list(range(workers))
        assert {len(tf_config(pod)["cluster"]["worker"]) for pod in job.pods().values()} == {workers}
        seen = job.plane.request("GET", f"{JOBS.format(job.namespace)}/job/scale")
        assert (seen["spec"], seen["status"]["replicas"]) == ({"replicas": workers}, workers)
        assert job.status()["lastRestart"]["reason"] == "Resized"
    status = job.status()
    assert status["restarts"] == {"counted": 0, "recreated": 2}
    assert status["replicas"]["worker"]["highest"] == 2
    job.finish()


def ordered(job: SimulatedJob) -> int:
    """How many workers the chief's launcher has been told to train with."""
    told: dict[str, Any] = json.loads(job.pods()["job-worker-0"]["metadata"]["annotations"]["tftraining.dev/orders"])
    return int(told["workers"])


def resize(job: SimulatedJob, launcher: ChiefLauncher, workers: int, restarts: int) -> None:
    """Scale the job while its launchers are listened to; they carry out the order, as their restart of that number."""
    before = len(job.pods())
    scale(job, workers)
    wait_until(lambda: ordered(job) == workers, "the order")
    wait_until(lambda: len(job.pods()) == max(before, workers), "nobody goes before the others know")
    size = {"size": workers, "full": workers}
    last = {"time": datetime.now(UTC).isoformat(), **RESUMED}
    launcher.say(round=restarts + 1, gang=size, ledger={"inPlace": restarts}, lastRestart=last)
    wait_until(lambda: job.status()["restarts"].get("inPlace") == restarts, "the restart is told")
    job.train(workers)
    assert indices(job) == list(range(workers))


def test_three_one_two_in_the_running_pods(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy__mode="InPlace", spec__replicaSpecs__worker__replicas=3)
    chief = job.train(3)["job-worker-0"]
    with chief_launcher(chief["status"]["podIP"], job.raw()["metadata"]["uid"]) as launcher:
        launcher.say(gang={"size": 3, "full": 3})
        resize(job, launcher, 1, restarts=1)
        resize(job, launcher, 2, restarts=2)
        status = job.status()
        assert status["restarts"]["counted"] == 0 and "disruptions" not in status["restarts"]
        assert (status["attempt"], job.uids()["job-worker-0"]) == (1, chief["metadata"]["uid"])
        assert status["lastRestart"]["reason"] == "Resized"
    job.finish()

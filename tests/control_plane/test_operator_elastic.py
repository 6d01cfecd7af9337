"""Jobs with launchers whose spec changes while they run, on a real API server: the scale subresource, limits."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed.shell import LabError
from tests.control_plane.test_operator_in_place import IN_PLACE, now, train, uids
from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.jobs import JOBS, NewJob, TrainingJob, wait_until

RESUMED = {"downSeconds": 1.1, "resumedFromEpoch": 2, "resumedFromStep": 140, "lostSteps": 30}


@pytest.fixture
def launcher() -> Iterator[ChiefLauncher]:
    """Give the launcher in the chief's pod."""
    with chief_launcher() as launcher:
        yield launcher


def orders(job: TrainingJob, pod: str = "job-worker-0") -> dict[str, Any]:
    """Return what the launcher in the pod is told."""
    told: dict[str, Any] = json.loads(job.pods()[pod]["metadata"]["annotations"]["tftraining.dev/orders"])
    return told


def scale(job: TrainingJob, workers: int) -> None:
    job.plane.kubectl("scale", "tftj/job", f"--replicas={workers}", "--namespace", job.namespace)


def test_scaling_keeps_the_pods_of_those_who_stay(new_job: NewJob, launcher: ChiefLauncher) -> None:
    launcher.say(gang={"size": 2, "full": 2})
    job = new_job(**IN_PLACE)
    train(job, launcher)
    old = uids(job)
    scale(job, 3)
    wait_until(lambda: "job-worker-2" in job.pods(), "the new pod")
    wait_until(lambda: orders(job)["workers"] == 3, "the order")
    launcher.say(gang={"size": 2, "full": 3})
    job.wait_for("Running", ready="2/3", reason="FewerWorkers")
    job.run_pod("job-worker-2")
    last = {"time": now(), "member": "worker-2", "reason": "Resized", **RESUMED}
    launcher.say(round=2, gang={"size": 3, "full": 3}, ledger={"inPlace": 1}, lastRestart=last)
    words = "the number of workers changed; resumed from epoch 2 after 1.1 s"
    status = job.wait_for("Running", ready="3/3", message=words)
    assert status["attempt"] == 1 and status["restarts"].items() >= {"counted": 0, "inPlace": 1}.items()
    assert uids(job).items() >= old.items()
    wait_until(lambda: ("Normal", "Resized", "changing the number of workers from 2 to 3") in job.events(), "the event")

    scale(job, 1)
    wait_until(lambda: orders(job)["workers"] == 1, "the second order")
    assert len(job.pods()) == 3, "those who go are waited for"
    launcher.say(
        round=3, gang={"size": 1, "full": 1}, ledger={"inPlace": 2}, lastRestart={**last, "time": now()},
    )  # fmt: skip
    wait_until(lambda: set(job.pods()) == {"job-worker-0"}, "the highest indices go")
    status = job.wait_for("Running", ready="1/1")
    assert status["replicas"]["worker"]["highest"] == 2
    assert uids(job)["job-worker-0"] == old["job-worker-0"]
    scaled = job.plane.request("GET", f"{JOBS.format(job.namespace)}/job/scale")
    assert (scaled["spec"]["replicas"], scaled["status"]["replicas"]) == (1, 1)


def test_a_lost_worker_is_replaced_while_the_others_train(new_job: NewJob, launcher: ChiefLauncher) -> None:
    launcher.say(gang={"size": 2, "full": 2})
    job = new_job(**IN_PLACE, spec__minReplicas=1)
    train(job, launcher)
    last = {"time": now(), "member": "worker-1", "reason": "MemberLost", **RESUMED}
    launcher.say(round=2, gang={"size": 1, "full": 2}, ledger={"inPlace": 1, "withoutProgress": 1}, lastRestart=last)
    job.remove_pod("job-worker-1")
    words = "training with 1 of 2 workers; waiting for worker-1 to start"
    status = job.wait_for("Running", ready="1/2", message=words)
    assert status["restarts"].items() >= {"counted": 0, "disruptions": 1, "inPlace": 1}.items()
    job.run_pod("job-worker-1")
    last = {"time": now(), "member": "worker-1", "reason": "Grown", **RESUMED}
    launcher.say(round=3, gang={"size": 2, "full": 2}, ledger={"inPlace": 2, "withoutProgress": 1}, lastRestart=last)
    job.wait_for("Running", ready="2/2", message="worker-1 is back; resumed from epoch 2 after 1.1 s")


def test_a_limit_that_changes_is_told_to_the_running_launcher_once(new_job: NewJob, launcher: ChiefLauncher) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    old = uids(job)
    change = {"restartPolicy": {"maxRestarts": 2}, "runPolicy": {"stallTimeoutSeconds": 90, "startDeadlineSeconds": 99}}
    job.patch({"spec": change})
    wait_until(lambda: orders(job)["maxRestarts"] == 2, "the order")
    assert orders(job).items() >= {"stallTimeoutSeconds": 90, "startDeadlineSeconds": 99, "workers": 2}.items()
    version = job.pods()["job-worker-0"]["metadata"]["resourceVersion"]
    job.patch({"spec": {"runPolicy": {"ttlSecondsAfterFinished": 99}}})
    wait_until(lambda: job.status().get("observedGeneration") == 3, "another pass")
    assert job.pods()["job-worker-0"]["metadata"]["resourceVersion"] == version
    assert uids(job) == old


def test_scaling_below_the_least_is_refused_with_the_reason(new_job: NewJob) -> None:
    job = new_job(**IN_PLACE, spec__minReplicas=2)
    with pytest.raises(LabError, match=r"minReplicas.*must not exceed spec.replicaSpecs.worker.replicas"):
        scale(job, 1)

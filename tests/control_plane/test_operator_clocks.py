"""The wall clock of the operator's machine is wrong, or jumps: the API server's time counts, and no job is hurt."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.campaign import clocks
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.jobs import TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.needed import need_or_skip

HOUR = 3600


@pytest.fixture
def folder(operator: OperatorProcess, tmp_path: Path) -> Path:
    """Give a folder with the clock of an operator of this test's own, which is not started yet."""
    need_or_skip("gcc")
    (tmp_path / "clock.so").write_bytes(clocks.build())
    (tmp_path / "clock").write_bytes(bytes(8))
    operator.kill()
    return tmp_path


def with_clock(plane: ControlPlane, folder: Path) -> OperatorProcess:
    preload = {"LD_PRELOAD": str(folder / "clock.so"), "TESTS_CLOCK": str(folder / "clock")}
    return OperatorProcess(operator_kubeconfig(plane), folder, **preload)


def age(time: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds()


@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["an hour ahead", "an hour back"])
def test_a_clock_that_jumps_while_a_gang_restarts_ends_no_job(
    control_plane: ControlPlane, namespace: str, folder: Path, node: Node, seconds: int
) -> None:
    job = TrainingJob(control_plane, namespace)
    with with_clock(control_plane, folder) as operator:
        limits = {"startDeadlineSeconds": 900, "activeDeadlineSeconds": 1800, "nodeLostSeconds": 600}
        job.create({"spec.restartPolicy.mode": "Recreate", "spec.runPolicy": limits})
        job.run()
        clocks.move(folder, "clock", seconds)
        job.fail_pod("job-worker-1")
        job.wait_for_pods(attempt=2)
        status = job.wait_for("Restarting", attempt=2)
        assert -1 < age(status["lastRestart"]["time"]) < HOUR / 2
        job.bind_pod("job-worker-0")
        job.bind_pod("job-worker-1", node.name)
        job.run(attempt=2)
        before = {name: each["metadata"]["uid"] for name, each in job.pods().items()}
        node.tell("Unknown")
        status = job.wait_for("Running", reason="NodeNotReady")
        due = status["message"].rpartition(" at ")[2]
        assert -660 < age(due) < 0, "ten minutes from then, whatever the operator's clock says"
        clocks.move(folder, "clock", 0)
        node.tell("True")
        job.wait_for("Running", reason="Training")
        assert {name: each["metadata"]["uid"] for name, each in job.pods().items()} == before
        assert all(abs(age(each)) < HOUR / 2 for each in event_times(control_plane, namespace))
        assert "Traceback" not in operator.log_text()


def event_times(plane: ControlPlane, namespace: str) -> list[str]:
    events = plane.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return [each["eventTime"] for each in events if each.get("eventTime")]


def test_an_operator_whose_clock_is_ahead_creates_no_pod_more_often(
    control_plane: ControlPlane, namespace: str, folder: Path
) -> None:
    """30 s ahead, each new pod seemed to be older than the restart that it was created for: 61 pods in a minute."""
    clocks.move(folder, "clock", 30)
    job = TrainingJob(control_plane, namespace)
    with with_clock(control_plane, folder):
        job.create({"spec.restartPolicy.mode": "InPlace"})
        job.run()
        for lost in range(1, 5):
            wait_until(lambda: "job-worker-1" in job.pods(), "worker-1 is there")
            job.bind_pod("job-worker-1")
            job.delete_pod("job-worker-1")
            wait_until(partial(has_counted, job, lost), f"loss {lost} counts")
            job.remove_pod("job-worker-1")
        assert job.status()["restarts"]["withoutProgress"] >= 3, "the back-off grows"


def has_counted(job: TrainingJob, losses: int) -> bool:
    return bool(job.status()["restarts"].get("disruptions", 0) == losses)

"""The operator is killed in the middle of each phase, and somebody else was there first: the job ends the same.

The operator's only memory is the API server: what it had half done when it died must be finished, and only once.
"""

from pathlib import Path

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.jobs import UNTOUCHED, NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess


def uids(job: TrainingJob) -> set[str]:
    """The UIDs of all pods of the job."""
    return {pod["metadata"]["uid"] for pod in job.pods().values()}


def test_killed_while_starting_and_while_running(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job()
    before = {name: pod["metadata"]["uid"] for name, pod in job.wait_for_pods(attempt=1).items()}
    operator.kill()
    job.run_pod("job-worker-0")
    operator.start()
    job.wait_for("Starting", ready="1/2")
    job.run_pod("job-worker-1")
    job.wait_for("Running")
    operator.kill()
    operator.start()
    job.run_pod("job-worker-0")
    assert {name: pod["metadata"]["uid"] for name, pod in job.pods().items()} == before
    assert job.status()["attempt"] == 1 and job.status()["restarts"] == {"counted": 0}


def test_killed_between_the_decision_and_its_deeds(new_job: NewJob, operator: OperatorProcess) -> None:
    """The status says attempt 2 and one charge, and then it died: the old pods are still there."""
    job = new_job()
    old = uids(job) if job.run() else set()
    wait_until(lambda: job.status()["replicas"]["worker"].get("ready") == 2, "the counts are written")
    operator.kill()
    decided = {"phase": "Restarting", "attempt": 2, "restarts": {"counted": 1, "recreated": 1, "budgetUsed": 1}}
    job.patch({"status": {**decided, "replicas": {"worker": {"active": 0, "ready": 0}}}}, "/status")
    operator.start()
    job.run(attempt=2)
    assert old.isdisjoint(uids(job))
    assert job.status()["restarts"] == {"counted": 1, "recreated": 1, "budgetUsed": 1}


def test_two_operators_at_once_do_no_harm(
    control_plane: ControlPlane, new_job: NewJob, operator: OperatorProcess, tmp_path: Path
) -> None:
    """As in a rolling update of an impatient administrator: every write is fenced, every event is told once."""
    with OperatorProcess(operator_kubeconfig(control_plane), tmp_path) as other:
        job = new_job()
        job.run()
        job.fail_pod("job-worker-1", 9)
        job.run(attempt=2)
        job.succeed_pod("job-worker-0")
        status = job.wait_for("Succeeded")
        wait_until(lambda: not job.objects("services"), "the Service gone")
        assert "Traceback" not in other.log_text()
    assert status["attempt"] == 2
    assert status["restarts"]["counted"] == status["restarts"]["recreated"] == 1
    wait_until(lambda: len(job.events()) == 5, "five events")
    # The order of two events that the two operators publish within the same moment is not known.
    assert sorted(event[1] for event in job.events()) == ["Error", "Started", "Succeeded", "Training", "Training"]


def test_a_killed_operator_never_makes_a_pod_twice(new_job: NewJob, operator: OperatorProcess) -> None:
    """Killed at moments that nothing chooses, while 40 pods are being made."""
    job = new_job(spec__replicaSpecs__worker__replicas=40)
    for _ in range(3):
        wait_until(lambda: job.status() != UNTOUCHED, "the first step is taken")
        operator.kill()
        operator.start()
    pods = job.wait_for_pods(attempt=1, count=40)
    assert len(pods) == 40
    status = job.wait_for("Starting", attempt=1)
    assert status["restarts"] == {"counted": 0}


def test_a_foreign_service_of_that_name_is_named_and_left_alone(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    control_plane.request("POST", services, {"metadata": {"name": "job"}, "spec": {"ports": [{"port": 80}]}})
    job = TrainingJob(control_plane, namespace)
    job.create()
    status = job.wait_for("Starting", reason="CreationRefused")
    assert "service/job: already exists and does not belong to this job" in status["message"]
    assert job.pods() == {}
    events = wait_until(lambda: [e for e in job.events() if e[1] == "CreationRefused"], "the event")
    assert len(events) == 1 and events[0][0] == "Warning"
    control_plane.request("DELETE", f"{services}/job")
    job.run()
    assert job.objects("services")["job"]["spec"]["clusterIP"] == "None"

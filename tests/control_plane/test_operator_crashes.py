"""The operator is killed in the middle of each phase, and somebody else was there first: the job ends the same.

The operator's only memory is the API server: what it had half done when it died must be finished, and only once.
"""

from pathlib import Path

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.installation import operator_kubeconfig
from tests.support.control_plane.jobs import UNTOUCHED, NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess

CLAIM = {"volume": {"persistentVolumeClaim": {"claimName": "data"}}}


def uids(job: TrainingJob) -> set[str]:
    """The UIDs of all pods of the job."""
    return {pod["metadata"]["uid"] for pod in job.pods().values()}


def test_a_job_made_while_the_operator_was_away(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    operator.kill()
    job = TrainingJob(control_plane, namespace)
    job.create()
    operator.start()
    job.run()


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


def test_pods_that_no_status_knows_are_adopted(new_job: NewJob, operator: OperatorProcess) -> None:
    """As if it had died between the creation of the pods and any status: the status is wiped, the pods are there."""
    job = new_job()
    job.run()
    job.fail_pod("job-worker-0")
    job.run(attempt=2)
    before = uids(job)
    operator.kill()
    raw = job.raw()
    job.plane.request("PUT", f"{raw_path(job)}/status", {**raw, "status": {}})
    operator.start()
    status = job.wait_for("Running", ready="2/2")
    assert status["attempt"] == 2, "pods of a running training are worth more than a lost status"
    assert uids(job) == before


def raw_path(job: TrainingJob) -> str:
    """The path of the job on the API server."""
    return f"/apis/tftraining.dev/v1/namespaces/{job.namespace}/tftrainingjobs/{job.name}"


def test_a_failure_while_the_operator_was_away_is_charged_once(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job()
    job.run()
    operator.kill()
    job.fail_pod("job-worker-1", 1, "boom")
    operator.start()
    job.wait_for("Restarting", attempt=2)
    operator.kill()
    operator.start()
    job.run(attempt=2)
    status = job.status()
    assert status["restarts"]["counted"] == status["restarts"]["recreated"] == 1
    assert status["failure"]["logTail"] == "boom"


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


def test_killed_during_the_back_off_it_waits_for_the_rest(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job()
    for attempt in (1, 2, 3):
        job.run(attempt)
        job.fail_pod("job-worker-0")
        job.wait_for("Restarting", attempt=attempt + 1)
    operator.kill()
    assert job.pods(attempt=4) == {}
    operator.start()
    job.run(attempt=4)
    assert job.status()["restarts"]["counted"] == 3


def test_killed_after_the_end_it_still_cleans_up(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job(spec__storage=CLAIM)
    job.run()
    operator.kill()
    job.succeed_pod("job-worker-0")
    operator.start()
    job.wait_for("Succeeded")
    wait_until(lambda: "job-cleanup" in job.pods(), "the cleanup pod")
    cleanup = job.pods()["job-cleanup"]["metadata"]["uid"]
    operator.kill()
    operator.start()
    assert job.pods()["job-cleanup"]["metadata"]["uid"] == cleanup
    operator.kill()
    job.succeed_pod("job-cleanup", '{"removed": 2, "failed": []}')
    operator.start()
    status = job.wait_for("Succeeded", cleanup={"removed": 2, "message": "removed 2 temporary save directories"})
    assert status["attempt"] == 1
    wait_until(lambda: set(job.pods()) == {"job-worker-0"}, "the cleanup pod gone")
    operator.kill()
    operator.start()
    wait_until(lambda: operator.metric('tftraining_jobs{phase="Succeeded"}') >= 1, "the job is known again")
    assert set(job.pods()) == {"job-worker-0"} and job.status() == status


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


def test_a_foreign_pod_of_that_name_is_named_and_left_alone(
    control_plane: ControlPlane, namespace: str, operator: OperatorProcess
) -> None:
    pod = {"metadata": {"name": "job-worker-1"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    job = TrainingJob(control_plane, namespace)
    job.create()
    status = job.wait_for("Starting", reason="CreationRefused")
    assert "pod/job-worker-1: already exists and does not belong to this job" in status["message"]
    job.remove_pod("job-worker-1")
    job.run()


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

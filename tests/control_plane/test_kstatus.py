"""What kstatus, the library by which Helm, Flux and others wait, makes of jobs in every phase: the library itself says.

The pure planner gives the states, as in tests/unit; a real API server and the operator give some of them again.
"""

import json
from collections.abc import Callable

import pytest
import yaml

from testbed import binaries
from testbed.shell import run
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import UNTOUCHED, NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.states import CURRENT, FAILED, IN_PROGRESS, STATES, TERMINATING
from tftraining_api.model.spec import Manifest

Judge = Callable[..., list[dict[str, str]]]
CLAIM = {"volume": {"persistentVolumeClaim": {"claimName": "data"}}}


@pytest.fixture(scope="session")
def judge(control_plane: ControlPlane) -> Judge:
    """Give a function that asks the library about jobs, all at once."""
    program = binaries.ensure("kstatus") / "kstatus"

    def ask(*jobs: Manifest) -> list[dict[str, str]]:
        answers = run([program], stdin="".join(json.dumps(each) + "\n" for each in jobs), timeout=60)
        return [json.loads(line) for line in answers.splitlines()]

    return ask


def as_seen(cluster: SimulatedCluster) -> Manifest:
    """The job as a client reads it."""
    seen: Manifest = json.loads(json.dumps(cluster.api.job))
    return {"apiVersion": "tftraining.dev/v1", "kind": "TFTrainingJob", **seen}


def untouched() -> Manifest:
    """A job that no operator has looked at, as the API server shows it."""
    definition = yaml.safe_load((REPOSITORY / "crds" / "tftrainingjobs.yaml").read_text(encoding="utf-8"))
    (version,) = definition["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    return as_seen(SimulatedCluster(a_job())) | {"status": status}


def test_every_phase_is_what_it_has_to_be(judge: Judge) -> None:
    jobs = {"untouched": untouched()} | {state.__name__: as_seen(state()) for state in STATES}
    expected = {"untouched": IN_PROGRESS} | {state.__name__: status for state, (_, status) in STATES.items()}
    answers = dict(zip(jobs, judge(*jobs.values()), strict=True))
    assert {name: answer["status"] for name, answer in answers.items()} == expected
    for name, job in jobs.items():
        if expected[name] == FAILED or (expected[name] == IN_PROGRESS and name != "untouched"):
            told = (answers[name]["reason"], answers[name]["message"])
            assert told == (job["status"]["reason"], job["status"]["message"]), "and why"


def status_of(judge: Judge, job: TrainingJob) -> str:
    """What the library says of the job as it is now."""
    return judge(job.raw())[0]["status"]


def test_a_job_from_its_creation_to_its_end(new_job: NewJob, judge: Judge, operator: OperatorProcess) -> None:
    job = new_job(spec__storage=CLAIM)
    assert status_of(judge, job) == IN_PROGRESS
    job.run()
    assert status_of(judge, job) == CURRENT
    job.fail_pod("job-worker-1")
    job.wait_for("Restarting")
    assert status_of(judge, job) == IN_PROGRESS
    job.run(attempt=2)
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.wait_for("Suspended")
    assert status_of(judge, job) == CURRENT
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.run(attempt=3)
    job.succeed_pod("job-worker-0")
    job.wait_for("Succeeded")
    assert status_of(judge, job) == CURRENT
    job.plane.kubectl("wait", "--for=condition=Succeeded", "tftj/job", "--namespace", job.namespace, "--timeout=60s")
    job.patch({"spec": {"runPolicy": {"ttlSecondsAfterFinished": 3600}}})
    wait_until(lambda: status_of(judge, job) == CURRENT, "the change of a finished job is observed")


def test_a_job_that_has_failed(new_job: NewJob, judge: Judge) -> None:
    job = new_job(spec__restartPolicy={"maxRestarts": 0})
    job.run()
    job.fail_pod("job-worker-1", 3)
    status = job.wait_for("Failed")
    assert judge(job.raw()) == [
        {"status": FAILED, "reason": "MaxRestartsExceeded", "message": status["message"]},
    ]
    for condition in ("Failed", "Stalled"):
        limits = ("--namespace", job.namespace, "--timeout=60s")
        job.plane.kubectl("wait", f"--for=condition={condition}", "tftj/job", *limits)


def test_a_job_that_nobody_has_looked_at_is_not_done(new_job: NewJob, judge: Judge, operator: OperatorProcess) -> None:
    operator.kill()
    job = new_job()
    assert job.status() == UNTOUCHED
    assert status_of(judge, job) == IN_PROGRESS
    assert "Pending" in job.plane.kubectl("get", "tftj/job", "--namespace", job.namespace)
    operator.start()
    job.run()
    assert status_of(judge, job) == CURRENT


def test_a_job_that_goes(new_job: NewJob, judge: Judge, operator: OperatorProcess) -> None:
    job = new_job()
    job.run()
    job.patch({"metadata": {"finalizers": ["example.com/kept"]}})
    job.delete()
    assert status_of(judge, job) == TERMINATING
    job.patch({"metadata": {"finalizers": None}})
    wait_until(job.is_gone, "the job is gone")

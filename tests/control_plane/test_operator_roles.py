"""Parameter servers and the evaluator on a real API server: who is recreated, who is left alone, how the job ends."""

import time

from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until

ALL = {"chief": {}, "worker": {"replicas": 2}, "ps": {}, "evaluator": {}}
PODS = {f"job-{member}" for member in ("chief-0", "worker-0", "worker-1", "ps-0", "evaluator-0")}


def uids(job: TrainingJob) -> dict[str, str]:
    """The UIDs of the job's pods by name."""
    return {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}


def replaced(job: TrainingJob, before: dict[str, str]) -> set[str]:
    """Those that are there again with another UID."""
    return {name for name, uid in uids(job).items() if before[name] != uid}


def test_a_worker_and_the_evaluator_are_made_anew_alone(new_job: NewJob) -> None:
    job = new_job(spec__replicaSpecs=ALL)
    assert set(job.run(count=5)) == PODS
    assert job.wait_for("Running", ready="4/4")["replicas"]["evaluator"]["desired"] == 1
    before = uids(job)
    job.fail_pod("job-worker-1", 137)
    wait_until(lambda: replaced(job, before) == {"job-worker-1"}, "worker-1 is recreated")
    status = job.wait_for("Running", ready="3/4", attempt=1)
    assert status["message"].endswith("recreating its pod; other members keep training")
    job.run_pod("job-worker-1")
    status = job.wait_for("Running", ready="4/4", attempt=1)
    assert (status["restarts"]["counted"], status["lastRestart"]["alone"]) == (1, True)
    job.remove_pod("job-evaluator-0")
    wait_until(lambda: replaced(job, before) == {"job-worker-1", "job-evaluator-0"}, "the evaluator is recreated")
    assert job.status()["restarts"]["counted"] == 1


def test_a_lost_server_takes_the_gang_along_and_leaves_the_evaluator(new_job: NewJob) -> None:
    job = new_job(spec__replicaSpecs=ALL)
    job.run(count=5)
    before = uids(job)
    job.fail_pod("job-ps-0", 137)
    wait_until(lambda: replaced(job, before) == PODS - {"job-evaluator-0"}, "the gang is recreated")
    assert job.status()["attempt"] == 2


def test_the_evaluator_has_its_time_after_the_success(new_job: NewJob) -> None:
    job = new_job(spec__replicaSpecs=ALL, spec__runPolicy={"evaluatorGraceSeconds": 3})
    job.run(count=5)
    job.succeed_pod("job-chief-0")
    began = time.monotonic()
    job.wait_for("Succeeded")
    wait_until(lambda: set(job.pods()) == {"job-chief-0", "job-evaluator-0"}, "servers and workers are stopped")
    wait_until(lambda: set(job.pods()) == {"job-chief-0"}, "the evaluator is stopped")
    assert 1.5 < time.monotonic() - began < 10
    assert job.status()["phase"] == "Succeeded"


def test_a_rule_fails_the_job_and_another_forgives(new_job: NewJob) -> None:
    rules = [{"action": "Ignore", "onExitCodes": [3]}, {"action": "FailJob", "onReasons": ["OOMKilled"]}]
    job = new_job(spec__restartPolicy={"rules": rules, "maxRestarts": 0})
    job.run()
    job.fail_pod("job-worker-1", 3)
    job.run(attempt=2)
    assert job.status()["restarts"].get("counted", 0) == 0
    job.fail_pod("job-worker-1", 137, reason="OOMKilled")
    status = job.wait_for("Failed", reason="FailedByRule")
    assert status["message"].endswith("matched spec.restartPolicy.rules[1]: FailJob")

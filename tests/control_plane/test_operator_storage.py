"""Two jobs with one directory on a real API server: one trains, the other waits, and goes on when it may."""

from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.jobs import NewJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess

STORAGE = {"volume": {"persistentVolumeClaim": {"claimName": "training"}}, "directory": "run", "saveDirs": ["."]}


def test_the_second_job_of_a_directory_waits_until_the_pods_of_the_first_are_gone(
    control_plane: ControlPlane, new_job: NewJob, namespace: str
) -> None:
    first = new_job("first", spec__storage=STORAGE)
    first.run()
    second = new_job("second", spec__storage=STORAGE)
    status = second.wait_for("Starting", reason="StorageInUse")
    assert status["message"] == f"run of the claim {namespace}/training is in use by the job first"
    assert second.pods() == {}
    names = list(first.pods())
    for name in names:  # garbage collection may run
        first.patch_pod(name, {"metadata": {"finalizers": ["example.dev/held"]}})
    first.delete()
    wait_until(first.is_gone, "the first job is gone")
    for name in names:
        assert second.status()["reason"] == "StorageInUse" and second.pods() == {}
        first.patch_pod(name, {"metadata": {"finalizers": None}})
        first.remove_pod(name)
    second.run()


def test_suspended_jobs_hold_nothing_and_both_resumed_only_one_of_them_trains(new_job: NewJob) -> None:
    jobs = [new_job(each, spec__storage=STORAGE, spec__runPolicy={"suspend": True}) for each in ("one", "two")]
    for job in jobs:
        job.wait_for("Suspended")
    for job in jobs:
        job.patch({"spec": {"runPolicy": {"suspend": False}}})

    def reasons() -> set[str]:
        return {each.status().get("reason", "") for each in jobs}

    wait_until(lambda: "StorageInUse" in reasons() and len(reasons()) == 2, "one waits")
    with_pods, waiting = sorted(jobs, key=lambda job: job.status()["reason"] == "StorageInUse")
    assert len(with_pods.wait_for_pods(attempt=1)) == 2 and waiting.pods() == {}


def test_what_the_pods_have_written_is_cleaned_though_the_storage_changed_while_no_operator_ran(
    new_job: NewJob, operator: OperatorProcess
) -> None:
    job = new_job(spec__storage={**STORAGE, "directory": "old"})
    job.run()
    operator.kill()
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.patch({"spec": {"storage": {"directory": "new"}}})
    operator.start()
    job.wait_for("Suspended")
    wait_until(lambda: "job-cleanup" in job.objects("pods"), "the pod of the cleanup")
    (container,) = job.objects("pods")["job-cleanup"]["spec"]["containers"]
    assert container["command"][container["command"].index("--root") + 1] == "/training/old"

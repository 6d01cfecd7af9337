"""Another version of the operator takes over on a real API server: nothing is written, no pod is touched."""

import copy
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.shell import LabError
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.installation import DEFINITION, operator_kubeconfig, put_definition
from tests.support.control_plane.jobs import JOBS, NewJob, TrainingJob, wait_until
from tests.support.control_plane.operator_process import OperatorProcess

# Read by every Python process that finds it: the operator of the new version builds its pods another way.
NEW_BUILDER = """
import tftraining_api.manifests.pod as builder

made = builder.pod

def pod(*args):
    manifest = made(*args)
    manifest["metadata"]["labels"]["example.com/version"] = "2"
    manifest["spec"]["containers"][0]["env"].append({"name": "NEW", "value": "1"})
    return manifest

builder.pod = pod
"""
COLLECTIONS = (
    "api/v1/namespaces/{}/pods",
    "api/v1/namespaces/{}/services",
    "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "apis/tftraining.dev/v1/namespaces/{}/tftrainingjobs",
    "apis/events.k8s.io/v1/namespaces/{}/events",
)


def writes(operator: OperatorProcess) -> float:
    """How many requests of the operator have written something."""
    methods = ("POST", "PUT", "PATCH", "DELETE")
    return sum(operator.metric(f'tftraining_api_requests_total{{method="{each}"}}') for each in methods)


def writes_in(seconds: float, operator: OperatorProcess) -> float:
    """How many requests of the operator write something in so many seconds."""
    before = writes(operator)
    time.sleep(seconds)
    return writes(operator) - before


def everything(job: TrainingJob) -> dict[str, tuple[str, str]]:
    """UID and version of all objects in the job's namespace."""
    found: dict[str, tuple[str, str]] = {}
    for path in COLLECTIONS:
        collection: dict[str, Any] = job.plane.request("GET", "/" + path.format(job.namespace))
        for each in collection["items"]:
            meta = each["metadata"]
            found[f"{path} {meta['name']}"] = (meta["uid"], meta["resourceVersion"])
    return found


@pytest.fixture
def newer(
    control_plane: ControlPlane, operator: OperatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OperatorProcess]:
    """Give an operator of another version, not started yet; it takes the place of the one that all tests share."""
    (tmp_path / "sitecustomize.py").write_text(NEW_BUILDER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    newer = OperatorProcess(operator_kubeconfig(control_plane), tmp_path, TFTRAINING_IMAGE="operator-image:2")
    yield newer
    newer.kill()
    print(newer.log_text())


def test_a_new_version_changes_nothing_that_is_there(
    new_job: NewJob, operator: OperatorProcess, newer: OperatorProcess
) -> None:
    plain, launched, done, resting = new_job("plain"), launched_job(new_job), new_job("done"), new_job("resting")
    with chief_launcher() as launcher:
        launched.place_pod("launched-worker-0", launcher.ip)
        for job in (plain, launched, done, resting):
            job.run()
        done.succeed_pod("done-worker-0")
        done.wait_for("Succeeded")
        resting.patch({"spec": {"runPolicy": {"suspend": True}}})
        resting.wait_for("Suspended", message="spec.runPolicy.suspend is true; set it to false to resume")
        wait_until(lambda: len(plain.events()) == 2 and len(done.events()) == 3, "all is told")
        time.sleep(1.5)
        before = everything(plain)
        operator.kill()
        newer.start()
        time.sleep(4)
        assert everything(plain) == before
        assert writes(newer) == 0

        launched.remove_pod("launched-worker-1")
        wait_until(lambda: len(launched.pods()) == 2, "the lost pod is recreated")
    pods = launched.pods()
    assert pods["launched-worker-1"]["metadata"]["labels"]["example.com/version"] == "2", "by the new version"
    assert pods["launched-worker-1"]["spec"]["initContainers"][0]["image"] == "operator-image:2"
    assert "example.com/version" not in pods["launched-worker-0"]["metadata"]["labels"]


# The fields that earlier definitions lacked, by the first one of them that a job gets by a default.
LATER_FIELDS = {
    "memoryBackup": (
        "spec.launcher.memoryBackup",
        "status.memoryBackupOff",
        "status.progress.backup",
        "status.progress.backupReason",
    ),
    "exactness": ("spec.launcher.memoryBackup.exactness", "status.progress.backup.resumesAt"),
    "keras": ("spec.launcher.keras", "status.keras"),
}


@pytest.fixture
def define(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Callable[[bool], None]]:
    """Give a function that puts the definition of an older version in the place of this one, or takes it back: one
    without backups in memory, or without the fields of the test's parameter."""
    without = getattr(request, "param", "memoryBackup")
    own: dict[str, Any] = control_plane.request("GET", DEFINITION)["spec"]
    older = copy.deepcopy(own)
    root = older["versions"][0]["schema"]["openAPIV3Schema"]
    for path in LATER_FIELDS[without]:
        *parents, name = path.split(".")
        fields = root
        for parent in parents:
            fields = fields["properties"][parent]
        del fields["properties"][name]
    spec = root["properties"]["spec"]
    rules = spec["x-kubernetes-validations"]
    spec["x-kubernetes-validations"] = [each for each in rules if without not in each["rule"]]

    def put(is_older: bool) -> None:
        put_definition(control_plane, older if is_older else own)

    yield put
    put(False)


@pytest.mark.slow_fault
@pytest.mark.parametrize(("define", "field"), [(each, each) for each in LATER_FIELDS], indirect=["define"])
def test_the_defaults_of_a_newer_definition_replace_no_pod(
    new_job: NewJob, operator: OperatorProcess, define: Callable[[bool], None], field: str
) -> None:
    define(True)
    job = older_job(new_job, field)
    with chief_launcher() as launcher:
        job.wait_for_pods(attempt=1)
        job.place_pod(f"{job.name}-worker-0", launcher.ip)
        job.run()
        time.sleep(1.5)
        operator.kill()
        before, status = job.pods(), job.status()
        define(False)
        wait_until(lambda: has_default(job, field), "the newer definition is served")
        operator.start()
        time.sleep(3)
        assert (job.status(), job.pods()) == (status, before)


def test_a_definition_that_knows_gangs_and_their_schedulers_replaces_no_pod(
    new_job: NewJob, operator: OperatorProcess, control_plane: ControlPlane
) -> None:
    own: dict[str, Any] = control_plane.request("GET", DEFINITION)["spec"]
    with older_definition(control_plane, own):
        wait_until(lambda: knows_gangs(new_job) is False, "the older definition is served")
        jobs = [new_job(name, spec__template__spec__schedulerName=it) for name, it in (("a", "mine"), ("b", None))]
        for job in jobs:
            job.run()
        time.sleep(1.5)
        operator.kill()
        before = everything(jobs[0])
    wait_until(lambda: knows_gangs(new_job), "the newer definition is served")
    operator.start()
    time.sleep(3)
    assert everything(jobs[0]) == before
    for job in jobs:
        job.succeed_pod(f"{job.name}-worker-0")
        job.wait_for("Succeeded")


@contextmanager
def older_definition(plane: ControlPlane, own: dict[str, Any]) -> Iterator[None]:
    """The definition knows no gangs, and no schedulers of templates, in the `with` block."""
    older = copy.deepcopy(own)
    spec = older["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [
        each for each in spec["x-kubernetes-validations"] if ".gang" not in each["rule"]
    ]
    scheduling = spec["properties"]["runPolicy"]["properties"]["scheduling"]
    del scheduling["properties"]["gang"], scheduling["x-kubernetes-validations"]
    roles = spec["properties"]["replicaSpecs"]["properties"].values()
    for template in (spec["properties"]["template"], *(role["properties"]["template"] for role in roles)):
        del template["properties"]["spec"]["properties"]["schedulerName"]
    put_definition(plane, older)
    try:
        yield
    finally:
        put_definition(plane, own)


def knows_gangs(new_job: NewJob) -> bool:
    """Whether the API server refuses a gang of an unknown kind, where an older definition drops the field."""
    try:
        new_job("unknown", spec__runPolicy={"suspend": True, "scheduling": {"gang": "Unknown"}}).delete()
    except LabError:
        return True
    return False


@pytest.mark.slow_fault
def test_an_older_definition_repeats_no_event_of_the_backups_in_memory(
    new_job: NewJob, operator: OperatorProcess, define: Callable[[bool], None]
) -> None:
    """It drops the fields of the status that say what was told."""
    define(True)
    job = older_job(new_job)

    def told() -> list[tuple[str, str]]:
        return [(kind, reason) for kind, reason, _ in job.events() if reason.startswith("MemoryBackup")]

    with chief_launcher() as launcher:
        job.wait_for_pods(attempt=1)
        job.place_pod(f"{job.name}-worker-0", launcher.ip)
        job.run()
        backup = {"step": 170, "time": "2026-03-01T12:00:05Z", "where": "Memory", "bytes": 76_000_000, "on": True}
        for epoch in (3, 4, 5):  # each is a write of the status
            launcher.say(progress={"epoch": epoch, "epochs": 10, "step": 60 * epoch}, backup=backup)
            wait_until(partial(has_epoch, job, epoch), "the epoch in the status")
        assert "backup" not in job.status()["progress"], "the definition is the older one"
        wait_until(told, "the event")
        worker = f"{job.name}-worker-1"
        old = job.pods()[worker]["metadata"]["uid"]
        job.fail_pod(worker, 137, reason="OOMKilled")
        wait_until(lambda: job.pods().get(worker, {"metadata": {"uid": old}})["metadata"]["uid"] != old, "another pod")
        launcher.say(progress={"epoch": 6, "epochs": 10, "step": 400}, backup=backup)
        time.sleep(3)
        assert told() == [("Normal", "MemoryBackupOn"), ("Warning", "MemoryBackupOff")]
        volumes = [each["name"] for each in job.pods()[worker]["spec"]["volumes"]]
    assert "tftraining-memory-backup" not in volumes
    condition = job.condition("MemoryBackup")
    assert (condition["reason"], condition["message"]) == ("OOMKilled", "worker-1 was OOMKilled")


@pytest.mark.slow_fault
@pytest.mark.parametrize("define", ["exactness"], indirect=True)
def test_a_definition_without_the_place_where_a_restart_resumes_repeats_no_write(
    new_job: NewJob, operator: OperatorProcess, define: Callable[[bool], None]
) -> None:
    define(True)
    job = older_job(new_job, "exactness")
    with chief_launcher() as launcher:
        job.wait_for_pods(attempt=1)
        job.place_pod(f"{job.name}-worker-0", launcher.ip)
        job.run()
        backup = {"step": 170, "where": "Memory", "on": True, "resumesAt": "Step", "violation": "152 steps of 300"}
        launcher.say(progress={"epoch": 3, "epochs": 10, "step": 180}, backup=backup)
        wait_until(lambda: job.condition("ResumedTrainingDiffers"), "the condition")
        wait_until(partial(has_epoch, job, 3), "the epoch in the status")
        time.sleep(2)
        known = job.status()["progress"]["backup"]
        assert known["step"] == 170 and "resumesAt" not in known, "the definition is the older one"
        before = writes(operator)
        time.sleep(12)
        assert writes(operator) == before > 0
    told = [(kind, reason) for kind, reason, _ in job.events()]
    assert told.count(("Warning", "ResumedTrainingDiffers")) == 1


@pytest.mark.slow_fault
@pytest.mark.parametrize("define", ["keras"], indirect=True)
def test_jobs_that_began_without_a_record_of_their_keras_keep_legacy_keras_to_their_end(
    new_job: NewJob, operator: OperatorProcess, define: Callable[[bool], None]
) -> None:
    """The definition is upgraded later than the operator: one job runs then, another one is suspended."""
    define(True)
    runs, rests = older_job(new_job, "keras"), launched_job(new_job, "rests")
    for job in (runs, rests):
        job.run()
        assert job.keras() == [None, None] and "keras" not in job.status()
        assert job.condition("LegacyKeras")["status"] == "True"
    rests.patch({"spec": {"runPolicy": {"suspend": True}}})
    rests.wait_for("Suspended")
    wait_until(lambda: not rests.pods(), "its pods are gone")
    define(False)
    wait_until(lambda: has_default(runs, "keras"), "the newer definition is served")
    operator.kill()
    operator.start()
    runs.remove_pod(f"{runs.name}-worker-1")
    runs.run()
    rests.patch({"spec": {"runPolicy": {"suspend": False}}})
    rests.run(attempt=2)
    assert runs.keras() == rests.keras() == [None, None]
    assert rests.status()["keras"] == "Legacy"
    assert launched_job(new_job, "new").keras() == ["Own", "Own"]


TIME = "2026-03-01T12:00:05Z"
# A status with every field that the two tests below take away.
FULL_STATUS: dict[str, Any] = {
    "phase": "Running", "reason": "R", "message": "m", "ready": "2/2", "observedGeneration": 1, "attempt": 1,
    "startTime": TIME, "selector": "a=b", "acceptedTemplates": {"worker": "a"},
    "conditions": [{"type": "A", "status": "True", "lastTransitionTime": TIME, "reason": "R", "message": ""}],
    "replicas": {"worker": {"absentIndexes": "1", "highest": 1}},
    "restarts": {
        "inPlace": 1, "budgetUsed": 1, "withoutProgress": 1, "checkpoint": 1,
        "sameFailure": {"key": "ab", "count": 1, "since": TIME},
        "sameMember": {"member": "worker-1", "count": 1}, "wentBackTo": 3, "wentBackFrom": 9,
    },
    "avoidedNodes": [{"name": "a", "until": TIME, "replica": "worker-1", "why": "w", "usedBy": "worker-1"}],
    "lastRestart": {"time": TIME, "downSeconds": 1.5, "lostSteps": 5, "resumedFrom": "Memory", "exception": "E"},
    "progress": {
        "step": 5, "checkpoint": 3, "updatedTime": TIME, "fit": 2, "totalSteps": 9, "backupReason": "r",
        "backup": {"step": 4, "bytes": 8},
    },
    "history": {"startTime": TIME, "steps": [1], "seconds": [0.5]},
    "keras": "Own",
    "goodput": {"startTime": TIME, "updatedTime": TIME, "cause": "trained", "since": TIME, "seconds": {"trained": 0.5}},
    "failure": {"pod": "p", "exitCode": 1},
}  # fmt: skip
SOME = ("attempt", "goodput")


def fields_of(status: dict[str, Any], *parents: str) -> Iterator[str]:
    """The fields, parents before their children. Without a field that its parent requires nothing can be read."""
    for name, value in status.items():
        path = ".".join((*parents, name))
        if path not in ("phase", "lastRestart.time", "failure.pod", "progress.backup.step", "replicas.worker"):
            yield path
        if isinstance(value, dict) and name not in ("acceptedTemplates", "sameFailure"):
            yield from fields_of(value, *parents, name)


@pytest.mark.parametrize(
    "fields",
    [SOME, pytest.param(tuple(fields_of(FULL_STATUS)), marks=pytest.mark.slow_fault)],
    ids=["some", "all"],
)
def test_a_definition_without_a_field_of_the_status_causes_no_stream_of_writes(
    new_job: NewJob, operator: OperatorProcess, control_plane: ControlPlane, fields: tuple[str, ...]
) -> None:
    """Each field in turn: the API server drops it from every write, and each pass misses it."""
    job = launched_job(new_job)
    crd = control_plane.request("GET", DEFINITION)["spec"]
    with chief_launcher() as launcher:
        job.place_pod("launched-worker-0", launcher.ip)
        job.run()
        try:
            for step, field in enumerate(fields, 100):
                put_definition(control_plane, without_status(crd, field))
                wait_until(lambda: not keeps(job, field), f"the definition without {field} is served")  # noqa: B023
                tell_everything(launcher, step)
                job.patch({"metadata": {"annotations": {"a": field}}})  # whoever looks, finds something missing
                time.sleep(2)
                wait_until(lambda: writes_in(2, operator) <= 2, f"no stream of writes without {field}")
        finally:
            put_definition(control_plane, crd)
            wait_until(lambda: all(keeps(job, each) for each in fields), "the definition is back")


def tell_everything(launcher: ChiefLauncher, step: int) -> None:
    """A report of the launcher that sets every field that it can."""
    launcher.say(
        ledger={"inPlace": 1, "processFailures": 1, "withoutProgress": 1,
                "sameFailure": {"key": "ab", "count": 1, "since": 1772366405},
                "sameMember": {"member": "worker-1", "count": 1}, "wentBackTo": 3, "wentBackFrom": 9},
        lastRestart={"time": TIME, "member": "worker-1", "exitCode": 1, "reason": "Error", "exception": "E: e",
                     "downSeconds": 1.5, "resumedFromStep": 4, "resumedFrom": "Memory", "lostSteps": 5},
        failure={"member": "worker-1", "exitCode": 1, "reason": "Error", "logTail": "last"},
        progress={"step": step, "checkpoint": 3, "updatedTime": TIME, "epoch": 1, "epochs": 9, "fit": 2,
                  "totalSteps": step + 9},
        backup={"step": 90, "time": TIME, "bytes": 8, "where": "Memory", "on": True, "resumesAt": "Epoch",
                "resumesAtReason": "the input is a generator"},
        history={"startTime": TIME, "steps": [1], "epochs": [1], "seconds": [0.5], "metrics": {"loss": [1.0]}},
    )  # fmt: skip


def without_status(crd: dict[str, Any], field: str) -> dict[str, Any]:
    """The definition without that field of the status."""
    older = copy.deepcopy(crd)
    place = older["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    *parents, name = field.split(".")
    for each in parents:
        place = place["properties"][each] if "properties" in place else place["additionalProperties"]
    del place["properties"][name]
    place.pop("default", None)
    return older


def keeps(job: TrainingJob, field: str) -> bool:
    """Whether the API server keeps that field of the status, by a dry run of a write."""
    path = f"{JOBS.format(job.namespace)}/{job.name}/status?dryRun=All"
    place = job.plane.request("PATCH", path, {"status": FULL_STATUS}, "application/merge-patch+json")["status"]
    *parents, name = field.split(".")
    for each in parents:
        place = place.get(each) or {}
    return name in place


def has_default(job: TrainingJob, field: str) -> bool:
    """Whether the API server has added this field of the launcher to the job."""
    launcher = job.raw()["spec"]["launcher"]
    return field in launcher or field in launcher.get("memoryBackup", {})


def has_epoch(job: TrainingJob, epoch: int) -> bool:
    """Whether the status has this epoch."""
    return bool(job.status().get("progress", {}).get("epoch") == epoch)


def older_job(new_job: NewJob, field: str = "memoryBackup") -> TrainingJob:
    """A job with launchers and a memory limit; the first that the API server takes by the definition without the
    field."""
    limit = {"spec__template__spec__containers__0__resources": {"limits": {"memory": "2Gi"}}}
    numbers = itertools.count()

    def older() -> TrainingJob | None:
        job = new_job(f"older-{next(numbers)}", spec__restartPolicy={"mode": "InPlace"}, **limit)
        return None if has_default(job, field) else job

    job = wait_until(older, "the older definition is served")
    assert job is not None
    return job


def launched_job(new_job: NewJob, name: str = "launched") -> TrainingJob:
    """A job with launchers, whose pods are there."""
    job = new_job(name, spec__restartPolicy={"mode": "InPlace"})
    job.wait_for_pods(attempt=1)
    return job

"""The advice of `tftj explain` is followed word by word on a real API server: its field is set, its command is run, and
the reason is gone."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane.test_operator_admission_denials import denied, of_pods
from tests.control_plane.test_operator_bad_input import set_quota
from tests.control_plane.test_operator_in_place import IN_PLACE, train
from tests.control_plane.test_operator_node_loss import training
from tests.control_plane.test_operator_observability import restore, role
from tests.control_plane.test_operator_storage import STORAGE
from tests.support.control_plane.apiserver import ControlPlane
from tests.support.control_plane.chief_launcher import chief_launcher
from tests.support.control_plane.jobs import NewJob, TrainingJob, wait_until
from tests.support.control_plane.manifests import REMOVED, changed
from tests.support.control_plane.nodes import Node
from tftraining_client.__main__ import main
from tftraining_client.commands.advice import ADVICE

__all__ = ["role"]
Meet = Callable[[TrainingJob], None]
CONTAINER = "spec.template.spec.containers.0"
BARE = {"spec.restartPolicy.maxRestarts": 0}


def nothing(job: TrainingJob) -> None:
    """The reason comes by itself."""


def ends(exit_code: int, reason: str = "Error", message: str = "") -> Meet:
    """A container ends like that."""

    def meet(job: TrainingJob) -> None:
        job.wait_for_pods(attempt=1)
        job.fail_pod("job-worker-1", exit_code, message, reason)

    return meet


def told(reason: str) -> Meet:
    """A launcher ends the job."""
    words = {"verdict": "Failed", "reason": reason, "message": f"worker-1 failed: {reason}"}
    return ends(1, message=f"tftraining/1 {json.dumps(words)}\n")


def finds_no_image(job: TrainingJob) -> None:
    job.wait_for_pods(attempt=1)
    state = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "trainer:1"'}}
    entry = {"name": "tensorflow", "image": "trainer:1", "imageID": "", "restartCount": 0, "ready": False}
    job.patch_pod("job-worker-1", {"status": {"containerStatuses": [{**entry, "state": state}]}}, "/status")


def is_evicted(job: TrainingJob) -> None:
    job.wait_for_pods(attempt=1)
    said = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    job.patch_pod("job-worker-1", {"status": said}, "/status")


# By a reason, or the cause behind it: what the job is created with, what meets it, what its user sets.
Case = tuple[str, dict[str, Any], Meet, dict[str, Any]]
LAUNCHED = {key.replace("__", "."): value for key, value in IN_PLACE.items()}
CASES: dict[str, Case] = {
    "NotFound": ("NotFound", LAUNCHED, told("NotFound"), {f"{CONTAINER}.command": ["python", "train.py"]}),
    "ImportError": ("ImportError", LAUNCHED, told("ImportError"), {f"{CONTAINER}.image": "trainer:2"}),
    "Keras3Fit": (
        "Keras3Fit",
        {**LAUNCHED, "spec.launcher.keras": "Unpatched"},
        told("Keras3Fit"),
        {"spec.launcher.keras": "Auto"},
    ),
    "OOMKilled": (
        "MaxRestartsExceeded",
        BARE,
        ends(137, "OOMKilled"),
        {f"{CONTAINER}.resources": {"limits": {"memory": "4Gi"}}},
    ),
    "Evicted": (
        "MaxRestartsExceeded",
        BARE,
        is_evicted,
        {f"{CONTAINER}.resources": {"requests": {"memory": "1Gi"}}},
    ),
    "SyntaxError": ("SyntaxError", LAUNCHED, told("SyntaxError"), {}),
    "StartDeadlineExceeded": (
        "StartDeadlineExceeded",
        {"spec.runPolicy.startDeadlineSeconds": 1},
        nothing,
        {"spec.runPolicy.startDeadlineSeconds": 600},
    ),
    "Suspended": ("Suspended", {"spec.runPolicy.suspend": True}, nothing, {}),
    "Error": ("MaxRestartsExceeded", BARE, ends(1), {}),
    **{
        each: ("MaxRestartsExceeded", BARE, ends(128, each), {f"{CONTAINER}.command": ["python"]})
        for each in ("StartError", "ContainerCannotRun", "RunContainerError")
    },
    "FailedByRule": (
        "FailedByRule",
        {"spec.restartPolicy.rules": [{"action": "FailJob", "onExitCodes": [3]}]},
        ends(3),
        {"spec.restartPolicy.rules": REMOVED},
    ),
    "DeadlineExceeded": (
        "DeadlineExceeded",
        {"spec.runPolicy.activeDeadlineSeconds": 1},
        nothing,
        {"spec.runPolicy.activeDeadlineSeconds": 3600},
    ),
    "InvalidPodTemplate": (
        "InvalidPodTemplate",
        {f"{CONTAINER}.volumeMounts": [{"name": "none", "mountPath": "/data"}]},
        nothing,
        {f"{CONTAINER}.volumeMounts": REMOVED},
    ),
    "PodsNotReady": ("PodsNotReady", {}, finds_no_image, {f"{CONTAINER}.image": "trainer:2"}),
    "StorageInUse": ("StorageInUse", {"spec.storage": STORAGE}, nothing, {"spec.storage.directory": "own"}),
    "WaitingForQuota": ("WaitingForQuota", {"spec.replicaSpecs.worker.replicas": 3}, nothing, {}),
    "NoPython": (
        "NoPython",
        LAUNCHED,
        ends(128, "StartError", 'exec: "python3": executable file not found in $PATH: unknown'),
        {"spec.restartPolicy.mode": "Recreate"},
    ),
}
# By the reason of a warning, what the launchers report and what the user sets; members train on with it.
OF_WARNINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "NoStep": ({"reason": "NoStep", "message": "worker-1: no step"}, {"spec.runPolicy.stallTimeoutSeconds": 900}),
    "SlowStart": (
        {"phase": "Starting", "reason": "SlowStart", "message": "worker-1: no step"},
        {"spec.runPolicy.startDeadlineSeconds": 900},
    ),
    "NoGPU": ({"noGpu": ["worker-1"]}, {f"{CONTAINER}.image": "trainer-gpu:2"}),
    "TrainsAlone": ({"trainsAlone": ["worker-1"]}, {"spec.replicaSpecs.worker.replicas": 1}),
    "InputNotReproducible": (
        {"backup": {"on": True, "resumesAt": "Step", "inputNotReproducible": True}},
        {"spec.launcher.memoryBackup.exactness": "Required"},
    ),
}
# Their advice names a kind of object, and the message the object: a test each, below.
OF_OBJECTS = ("CreationRefused", "ChangeRefused", "NodeNotReady", "NodeLost", "Stopping", "FewerWorkers", "Forbidden")
# Why no test here follows the advice.
ELSEWHERE = {
    "it names a log of the node's or of a container, which no kubelet gives here": (
        *("Killed", "Stalled", "InitContainerFailed"),
    ),
    "another version of operator, chart or definition takes it away: test_operator_upgrades, test_client's doctor": (
        *("LegacyKeras", "SpecUnreadable", "StatusUnreadable", "InvalidSpec"),
    ),
    "it asks for a test of the node, and for a checkpoint from before": ("ReplicasDiffer",),
    "it asks for a look at the node and its storage": ("SlowMember",),
    "a fault of the product, to be reported": ("InternalError", "ChildUnreadable"),
    "it names nothing that helps any more": ("KeyLost",),
}
FAST = ("OOMKilled", "Suspended")
SLOW = sorted({*CASES} - {*FAST})  # two or three seconds each


@pytest.fixture
def typed(
    control_plane: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Give a function that runs `tftj` in this process, and returns what it prints."""
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig))

    def run(*words: str) -> str:
        code = main([*words, "--namespace", namespace])
        said = capsys.readouterr()
        assert code == 0, said
        return said.out

    return run


@pytest.mark.usefixtures("garbage_collection")
@pytest.mark.parametrize("name", [*FAST, *(pytest.param(each, marks=pytest.mark.slow_fault) for each in SLOW)])
def test_the_reason_goes_when_the_advice_is_followed(
    control_plane: ControlPlane,
    namespace: str,
    new_job: NewJob,
    typed: Callable[..., str],
    tmp_path: Path,
    name: str,
) -> None:
    reason, changes, meet, mend = CASES[name]
    if name == "WaitingForQuota":
        set_quota(control_plane, namespace, pods=2)
    if name == "StorageInUse":
        new_job("other", spec__storage=STORAGE).wait_for_pods(attempt=1)
    job = new_job("job", **{path.replace(".", "__"): value for path, value in changes.items()})
    meet(job)
    wait_until(lambda: job.status().get("reason") == reason, reason)
    uid = job.raw()["metadata"]["uid"]
    commands = follow(job, typed, mend, tmp_path)
    assert len(commands) == 1, commands
    assert (job.raw()["metadata"]["uid"] != uid) == ("--replace" in commands[0])
    wait_until(lambda: len(job.pods()) == 2, "the pods of the job")
    wait_until(lambda: job.status().get("reason") == "PodsStarting", "it starts")


@pytest.mark.slow_fault
@pytest.mark.usefixtures("garbage_collection")
@pytest.mark.parametrize("name", OF_WARNINGS)
def test_the_warning_goes_when_its_advice_is_followed(
    new_job: NewJob, typed: Callable[..., str], tmp_path: Path, name: str
) -> None:
    said, mend = OF_WARNINGS[name]
    with chief_launcher() as launcher:
        job = new_job("job", **IN_PLACE)
        train(job, launcher)
        launcher.say(**said)
        wait_until(lambda: warned(job, name), name)
        if not follow(job, typed, mend, tmp_path):
            job.patch(changed({}, mend))  # a field that may change while the job runs
        if name == "TrainsAlone":  # another number of workers is another attempt
            job.wait_for_pods(attempt=2, count=1)
            job.place_pod("job-worker-0", launcher.ip)
            job.run_pod("job-worker-0")
        launcher.say()
        wait_until(lambda: not warned(job, name), f"no {name}")
    for path, value in mend.items():
        keys: Any = (int(key) if key.isdigit() else key for key in path.split("."))
        assert reduce(lambda found, key: found[key], keys, job.raw()) == value
    assert "Failed" not in (job.status().get("phase"), job.status().get("reason"))


@contextmanager
def no_service_by_quota(job: TrainingJob) -> Iterator[None]:
    path, hard = f"/api/v1/namespaces/{job.namespace}/resourcequotas", {"hard": {"services": "0"}}
    job.plane.request("POST", path, {"metadata": {"name": "none"}, "spec": hard})
    status = {"status": {**hard, "used": {"services": "0"}}}
    job.plane.request("PATCH", f"{path}/none/status", status, "application/merge-patch+json")
    yield


@contextmanager
def no_service_by_policy(job: TrainingJob) -> Iterator[None]:
    service = {"metadata": {"name": "probe"}, "spec": {"ports": [{"port": 80}]}}
    path = f"/api/v1/namespaces/{job.namespace}/services"
    with denied(job, "CREATE", "services", lambda: job.plane.request("POST", f"{path}?dryRun=All", service)):
        yield


@contextmanager
def name_is_taken(job: TrainingJob) -> Iterator[None]:
    service = {"metadata": {"name": "job"}, "spec": {"ports": [{"port": 80}]}}
    job.plane.request("POST", f"/api/v1/namespaces/{job.namespace}/services", service)
    yield


STATUS = "tftrainingjobs/status"
WARN = json.dumps({"spec": {"validationActions": ["Warn"]}})
# What the refusals of the API server name, and what a person does with it.
NAMED = {
    r"exceeded quota: ([\w-]+)": "delete resourcequota {0}",
    r"with binding '([\w-]+)'": "patch validatingadmissionpolicybinding {0} --type=merge --patch",
    r"(\w+)/([\w-]+): already exists and does not belong to this job": "delete {0} {1}",
}


def change_what_is_named(job: TrainingJob, message: str) -> None:
    found, command = next((match, text) for pattern, text in NAMED.items() if (match := re.search(pattern, message)))
    words = command.format(*found.groups()).split()
    job.plane.kubectl(*words, *([WARN] if words[-1] == "--patch" else []), "--namespace", job.namespace)


@pytest.mark.slow_fault
@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("stand_in_the_way", [no_service_by_quota, no_service_by_policy, name_is_taken])
def test_a_refused_creation_goes_on_when_what_the_message_names_is_changed(
    control_plane: ControlPlane,
    namespace: str,
    typed: Callable[..., str],
    stand_in_the_way: Callable[[TrainingJob], Any],
) -> None:
    job = TrainingJob(control_plane, namespace)
    with stand_in_the_way(job):
        job.create()
        message = job.wait_for("Starting", reason="CreationRefused")["message"]
        advice = json.loads(typed("explain", "job", "-o", "json"))["try"]
        assert advice.startswith("change the quota, webhook, policy or name that the message names")
        change_what_is_named(job, message)
        wait_until(lambda: job.status().get("reason") == "PodsStarting", "it starts")
    assert len(job.pods()) == 2


@pytest.mark.slow_fault
def test_a_refused_change_is_made_when_the_policy_that_the_message_names_is_changed(
    new_job: NewJob, typed: Callable[..., str]
) -> None:
    job = new_job()
    job.run()
    with denied(job, "DELETE", "pods", of_pods(job, "DELETE")):
        job.fail_pod("job-worker-1")
        wait_until(lambda: warned(job, "ChangeRefused"), "ChangeRefused")
        explained = json.loads(typed("explain", "job", "-o", "json"))
        assert explained["try"].startswith("change the webhook or policy that the message names"), explained
        change_what_is_named(job, explained["warnings"][0]["message"])
        wait_until(lambda: not warned(job, "ChangeRefused"), "it is refused no more")
    job.run(attempt=2)


@pytest.mark.slow_fault
@pytest.mark.takes_permissions
def test_the_right_that_the_message_names_is_the_one_that_the_operator_lacks(
    control_plane: ControlPlane, new_job: NewJob, typed: Callable[..., str], role: str
) -> None:
    job = new_job()
    job.run()
    rules = control_plane.request("GET", role)["rules"]

    def allow(*verbs: str) -> None:
        """Give the operator these rights to the status, and no others."""
        given = [{**each, "verbs": list(verbs)} if STATUS in each["resources"] else each for each in rules]
        restore(control_plane, role, given)

    allow("patch")
    job.fail_pod("job-worker-1")
    wait_until(lambda: warned(job, "Forbidden"), "Forbidden")
    explained = json.loads(typed("explain", "job", "-o", "json"))
    assert explained["try"].startswith("give the operator the right that the message names"), explained
    lacks = re.search(r'cannot (\w+) resource "(\S+)"', explained["warnings"][0]["message"])
    assert lacks is not None and lacks[2] == STATUS, explained
    allow("patch", lacks[1])
    job.run(attempt=2)
    wait_until(lambda: not warned(job, "Forbidden"), "nothing is forbidden")


@pytest.mark.slow_fault
def test_the_pods_of_a_silent_node_are_created_elsewhere(
    new_job: NewJob, node: Node, typed: Callable[..., str]
) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": 3600})
    training(job, node)
    node.tell("Unknown")
    for reason, command in (("NodeNotReady", "describe"), ("NodeLost", "delete")):
        wait_until(lambda: job.status().get("reason") == reason, reason)  # noqa: B023
        explained = json.loads(typed("explain", "job", "-o", "json"))
        assert f"`kubectl {command} node`" in explained["try"] and node.name in explained["message"], explained
        assert node.name in job.plane.kubectl(command, "node", node.name)
        job.patch({"spec": {"runPolicy": {"nodeLostSeconds": 1}}})
    wait_until(lambda: "nodeName" not in job.pods()["job-worker-1"]["spec"], "the new pod")
    job.bind_pod("job-worker-1")
    job.run_pod("job-worker-1")
    job.wait_for("Running", ready="2/2", reason="Training")


@pytest.mark.slow_fault
@pytest.mark.usefixtures("garbage_collection")
def test_a_pod_that_stays_is_named_and_shows_its_finalizer(new_job: NewJob, typed: Callable[..., str]) -> None:
    job = new_job()
    job.run()
    job.patch_pod("job-worker-1", {"metadata": {"finalizers": ["test.example/holds"]}})
    job.delete()
    job = new_job()
    job.wait_for("Starting", reason="Stopping")
    explained = json.loads(typed("explain", "job", "-o", "json"))
    assert "`kubectl get pod -o yaml` shows the node and the finalizers" in explained["try"], explained
    assert "worker-1" in explained["message"]
    shown = yaml.safe_load(job.plane.kubectl("get", "pod", "job-worker-1", "-o", "yaml", "--namespace", job.namespace))
    assert shown["metadata"]["finalizers"] == ["test.example/holds"]
    job.patch_pod("job-worker-1", {"metadata": {"finalizers": None}})
    job.run()


@pytest.mark.slow_fault
def test_the_status_shows_the_missing_workers(new_job: NewJob, typed: Callable[..., str]) -> None:
    with chief_launcher() as launcher:
        launcher.say(gang={"size": 2, "full": 2})
        job = new_job("job", **IN_PLACE)
        train(job, launcher)
        job.patch({"spec": {"replicas": 3}}, "/scale")
        launcher.say(gang={"size": 2, "full": 3})
        job.wait_for("Running", ready="2/3", reason="FewerWorkers")
        assert "`tftj status job` shows the missing workers" in json.loads(typed("explain", "job", "-o", "json"))["try"]
        assert "worker-2  Pending" in typed("status", "job")
        job.run_pod("job-worker-2")
        launcher.say(round=2, gang={"size": 3, "full": 3})
        job.wait_for("Running", ready="3/3", reason="Training")


def warned(job: TrainingJob, reason: str) -> bool:
    conditions = job.status().get("conditions", [])
    return (reason, "True") in [(each["reason"], each["status"]) for each in conditions]


def follow(job: TrainingJob, typed: Callable[..., str], mend: dict[str, Any], folder: Path) -> list[list[str]]:
    """Run the commands of the advice, on a manifest with the fields that it names; return them."""
    advice = json.loads(typed("explain", "job", "-o", "json"))["try"]
    named = f"{advice} {job.status()['message']}" if "that the message names" in advice else advice
    for path in mend:
        assert path in named or path.rpartition(".")[2] in named, named
    file = folder / "job.yaml"
    as_it_was = {key: job.raw()[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "job"}}
    file.write_text(yaml.safe_dump(changed(as_it_was, mend)))
    found = [shlex.split(each) for each in re.findall(r"`tftj ((?:submit|resume|scale) [^`]+)`", advice)]
    commands = [[{"FILE": str(file), "N": "2"}.get(word, word) for word in each] for each in found]
    if "`python -m py_compile PROGRAM`" in advice:
        (folder / "train.py").write_text("def train(:\n")
        check = subprocess.run(
            [sys.executable, "-m", "py_compile", folder / "train.py"], capture_output=True, text=True, check=False
        )
        assert 'train.py", line 1' in check.stderr
    for command in commands:
        typed(*command, *(["--yes"] if "--replace" in command else []))
    return commands


def test_each_advice_is_followed_or_it_is_said_why_not() -> None:
    waits = {name for name, text in ADVICE.items() if text.startswith("wait:")}
    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    followed = {*CASES, *OF_WARNINGS, *OF_OBJECTS}
    assert followed | waits | elsewhere == {*ADVICE}
    assert not followed & (waits | elsewhere)

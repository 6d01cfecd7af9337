"""Jobs with launchers on a real API server: what their pods get, how restarts are told, which pods are replaced."""

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.control_plane.chief_launcher import ChiefLauncher, chief_launcher
from tests.support.control_plane.jobs import JOBS, NewJob, TrainingJob, wait_until
from tests.support.control_plane.nodes import Node
from tests.support.control_plane.operator_process import OperatorProcess
from tftraining_api.manifests.affinity import PREFERRED

IN_PLACE = {"spec__restartPolicy__mode": "InPlace"}
LIMITED = {"spec__template__spec__containers__0__resources": {"limits": {"memory": "2Gi"}}}
KILLED = {"member": "worker-1", "exitCode": None, "signal": 9, "reason": "Killed"}
RESUMED = {"downSeconds": 1.1, "resumedFromEpoch": 2, "resumedFromStep": 140, "lostSteps": 30}


@pytest.fixture
def launcher() -> Iterator[ChiefLauncher]:
    """Give the launcher in the chief's pod."""
    with chief_launcher() as launcher:
        yield launcher


def train(job: TrainingJob, launcher: ChiefLauncher) -> dict[str, Any]:
    """Wait until the job trains and its launcher is heard; return the pods."""
    pods = job.wait_for_pods(attempt=1)
    job.place_pod("job-worker-0", launcher.ip)
    for name in pods:
        job.run_pod(name)
    job.wait_for("Running", ready="2/2")
    wait_until(lambda: launcher.asked > 0, "the launcher is asked")
    return pods


def uids(job: TrainingJob) -> dict[str, str]:
    """The UIDs of the job's pods by name."""
    return {name: pod["metadata"]["uid"] for name, pod in job.pods().items()}


def now() -> str:
    return datetime.now(UTC).isoformat()


def requests(operator: OperatorProcess) -> float:
    """All requests to the API server so far."""
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    return sum(operator.metric(f'tftraining_api_requests_total{{method="{each}"}}') for each in methods)


def test_pods_meet_the_restricted_standard_and_share_a_secret(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job("never")  # so that the namespace is there
    job.delete()
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    job.plane.request("PATCH", f"/api/v1/namespaces/{job.namespace}", restricted, "application/merge-patch+json")
    job = new_job(**IN_PLACE, **LIMITED)
    pods = job.wait_for_pods(attempt=1)
    owner = job.raw()["metadata"]["uid"]
    name = f"job-launcher-{owner[:8]}"
    secret = job.objects("secrets")[name]
    key = base64.b64decode(secret["data"]["key"])
    assert len(key) == 32
    assert secret["metadata"]["ownerReferences"][0]["uid"] == owner
    for pod in pods.values():
        assert int(secret["metadata"]["resourceVersion"]) < int(pod["metadata"]["resourceVersion"])
        assert [each["name"] for each in pod["spec"]["initContainers"]] == ["tftraining-launcher"]
        assert pod["spec"]["initContainers"][0]["image"] == "operator-image"
        container = pod["spec"]["containers"][0]
        assert container["command"] == ["python3", "/opt/tftraining-launcher", "--", "train"]
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "tftraining-key")
        assert (volume["secret"]["secretName"], volume["secret"]["defaultMode"]) == (name, 0o440)
        assert secret["data"]["key"] not in json.dumps(pod)
        backups = next(each for each in pod["spec"]["volumes"] if each["name"] == "tftraining-memory-backup")
        assert backups["emptyDir"] == {"medium": "Memory", "sizeLimit": str(1024**3)}
    assert secret["data"]["key"] not in operator.log_text()
    assert secret["data"]["key"] not in json.dumps(job.events())


def test_the_choice_of_keras_is_stored_before_the_first_pod(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job("digits", spec__restartPolicy={"mode": "InPlace"}, spec__launcher={"keras": "Unpatched"})
    job.wait_for_pods(attempt=1)
    before = job.plane.request("GET", f"/api/v1/namespaces/{job.namespace}")["metadata"]["resourceVersion"]
    seen = job.plane.watched(JOBS.format(job.namespace), before)
    stored = min(int(each["metadata"]["resourceVersion"]) for each in seen if "keras" in each["status"])
    created = [int(pod["metadata"]["resourceVersion"]) for pod in job.pods().values()]
    assert stored < min(created)
    assert (job.status()["keras"], job.keras()) == ("Unpatched", ["Unpatched"] * 2)


def test_progress_and_restarts_in_place_are_told(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    name = 'tftraining_restarts_total{charged="true",mode="InPlace",reason="Killed"}'
    before = operator.metric(name), operator.metric("tftraining_recovery_seconds_count")
    progress = {"epoch": 3, "epochs": 10, "step": 170, "stepsPerSecond": 9.5, "metrics": {"loss": 0.5}, "fit": 2}
    launcher.say(progress={**progress, "updatedTime": now()})
    job = new_job(**IN_PLACE)
    old = {each: pod["metadata"]["uid"] for each, pod in train(job, launcher).items()}
    status = wait_until(lambda: job.status() if "progress" in job.status() else None, "the progress") or {}
    assert (status["progress"]["display"], status["progress"]["fit"]) == ("epoch 3/10", 2)

    launcher.say(
        round=2,
        ledger={"inPlace": 1, "processFailures": 1, "withoutProgress": 1},
        lastRestart={"time": now(), **KILLED, **RESUMED},
        failure={**KILLED, "logTail": "epoch 3\nloss 0.5"},
        progress={**progress, "updatedTime": now()},
    )
    words = "worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s"
    status = job.wait_for("Running", message=words)
    counters = {"counted": 1, "inPlace": 1, "budgetUsed": 1, "withoutProgress": 1}
    assert status["restarts"] == {**counters, "epoch": 3, "checkpoint": 140}
    assert status["lastRestart"].items() >= {"pod": "job-worker-1", "signal": 9, **RESUMED}.items()
    assert status["failure"]["logTail"] == "epoch 3\nloss 0.5"
    assert job.condition("Resumed")["status"] == "True"
    assert (status["attempt"], uids(job)) == (1, old)
    wait_until(lambda: ("Warning", "Killed", f"{words}; 30 steps lost") in job.events(), "the event")
    assert [event[1] for event in job.events()].count("Killed") == 1
    assert operator.metric(name) == before[0] + 1
    assert operator.metric("tftraining_recovery_seconds_count") == before[1] + 1


def test_a_launcher_that_leaves_its_pod_for_a_new_one_gets_it_alone_and_without_a_charge(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    job = new_job(**IN_PLACE)
    old = {name: pod["metadata"]["uid"] for name, pod in train(job, launcher).items()}
    words = "worker-1 failed 2 times in a row before its first step, in a pod where it had run longer"
    told = {"verdict": "", "reason": "UncleanContainer", "message": words, "member": "worker-1"}
    job.fail_pod("job-worker-1", 143, f"tftraining/1 {json.dumps({**told, 'ledger': {'processFailures': 3}})}\n")
    wait_until(lambda: uids(job).get("job-worker-1") not in (None, old["job-worker-1"]), "the new pod")
    assert uids(job)["job-worker-0"] == old["job-worker-0"]
    job.run_pod("job-worker-1")
    status = job.wait_for("Running", ready="2/2")
    assert status["restarts"].items() >= {"counted": 3, "recreated": 1}.items()
    assert "disruptions" not in status["restarts"] and "podFailures" not in status["restarts"]
    assert status["lastRestart"].items() >= {"pod": "job-worker-1", "reason": "UncleanContainer"}.items()
    wait_until(lambda: ("Normal", "UncleanContainer") in [event[:2] for event in job.events()], "the event")


def test_a_member_that_fails_again_and_again_gets_a_pod_that_avoids_its_node(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher, node: Node
) -> None:
    """The API server takes the term, one for all nodes, beside the user's own; the launchers have counted."""
    own = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    job = new_job(**IN_PLACE, spec__template__spec__affinity={"nodeAffinity": {PREFERRED: [own]}})
    job.wait_for_pods(attempt=1)
    job.bind_pod("job-worker-1", node.name)
    old = {name: pod["metadata"]["uid"] for name, pod in train(job, launcher).items()}
    words, fields = "worker-1 failed 3 times in a row, and no other member", []
    for number, sick in enumerate((node.name, "node-1"), 1):
        told = {"verdict": "", "reason": "NodeSuspected", "message": words, "member": "worker-1"}
        head = json.dumps({**told, "ledger": {"processFailures": 3 * number}})
        job.fail_pod("job-worker-1", 143, f"tftraining/1 {head}\n")
        wait_until(lambda: uids(job).get("job-worker-1") not in (None, old["job-worker-1"]), "the new pod")
        pods = job.pods()
        fields.append({"key": "metadata.name", "operator": "NotIn", "values": [sick]})
        term = {"weight": 100, "preference": {"matchFields": fields}}
        assert pods["job-worker-1"]["spec"]["affinity"]["nodeAffinity"] == {PREFERRED: [own, term]}
        assert pods["job-worker-0"]["metadata"]["uid"] == old["job-worker-0"]
        old["job-worker-1"] = pods["job-worker-1"]["metadata"]["uid"]
        job.bind_pod("job-worker-1", "node-1")
        job.run_pod("job-worker-1")
        job.wait_for("Running", ready="2/2")
    status = (
        wait_until(lambda: job.status() if "usedBy" in job.status()["avoidedNodes"][1] else None, "it is told") or {}
    )
    assert [(each["name"], each["replica"], each["why"]) for each in status["avoidedNodes"]] == [
        (node.name, "worker-1", words), ("node-1", "worker-1", words)
    ]  # fmt: skip
    assert status["restarts"].items() >= {"counted": 6, "recreated": 2}.items()
    reasons = {("Normal", "NodeSuspected"), ("Warning", "AvoidedNodeUsed")}
    wait_until(lambda: reasons <= {event[:2] for event in job.events()}, "the events")


def test_backups_in_memory_are_told_until_a_container_is_oom_killed(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    backup = {"step": 170, "time": now(), "where": "Memory", "bytes": 76_000_000, "seconds": 0.018}
    progress = {"epoch": 3, "epochs": 10, "step": 171, "updatedTime": now()}
    launcher.say(progress=progress, backup={**backup, "members": 2, "on": True, "reason": ""})
    job = new_job(**IN_PLACE, **LIMITED)
    train(job, launcher)
    status = (
        wait_until(lambda: job.status() if "backup" in job.status().get("progress", {}) else None, "the backup") or {}
    )
    assert status["progress"]["backup"].items() >= {each: backup[each] for each in backup if each != "time"}.items()
    told = ("Normal", "MemoryBackupOn", "backups in memory: the first at step 170, 76.0 MB a member")
    wait_until(lambda: told in job.events(), "the event")

    odd = "at step 170 worker-1 holds other values than the rest: dense/kernel"
    source = {"resumedFrom": "Memory", "resumedFromStep": 170, "lostSteps": 1, "lostSeconds": 0.1}
    launcher.say(
        ledger={"inPlace": 1, "processFailures": 1},
        lastRestart={"time": now(), **KILLED, **RESUMED, **source, "backupSkipped": "no time"},
        progress=progress,
        backup={**backup, "on": True, "replicas": odd, "replicasDiffer": True},
        slowMember={"member": "worker-1", "factor": 1.5, "cause": "WaitsForInput"},
    )
    words = "worker-1 was killed (SIGKILL); resumed from memory at step 170 after 1.1 s"
    last = job.wait_for("Running", message=words)["lastRestart"]
    assert last.items() >= {**source, "backupSkipped": "no time"}.items()
    lost = "; 1 step lost (0.1 s of training)"
    wait_until(lambda: ("Warning", "Killed", words + lost) in job.events(), "the event with the lost work")
    wait_until(lambda: ("Warning", "ReplicasDiffer", odd) in job.events(), "the event of the replicas")
    assert job.condition("ReplicasDiffer").items() >= {"status": "True", "message": odd}.items()
    slow = next(message for _, reason, message in job.events() if reason == "SlowMember")
    assert slow.startswith("the others wait for worker-1") and slow.endswith("for a step: it waits for its input")
    assert job.condition("SlowMember").items() >= {"status": "True", "message": slow}.items()

    old = uids(job)
    job.fail_pod("job-worker-1", 137, reason="OOMKilled")
    wait_until(lambda: uids(job).get("job-worker-1", old["job-worker-1"]) != old["job-worker-1"], "another pod")
    reason, status = "worker-1 was OOMKilled", job.status()
    assert (status["memoryBackupOff"], status["progress"]["backupReason"]) == (reason, reason)
    volumes = {name: [each["name"] for each in pod["spec"]["volumes"]] for name, pod in job.pods().items()}
    assert [name for name in volumes if "tftraining-memory-backup" in volumes[name]] == ["job-worker-0"]


def test_a_mount_of_the_users_in_the_place_of_the_backups_is_refused_by_name(
    new_job: NewJob, operator: OperatorProcess
) -> None:
    path = "/opt/tftraining-memory-backup"
    mount = {"spec__template__spec__containers__0__volumeMounts": [{"name": "mine", "mountPath": path}]}
    job = new_job(**IN_PLACE, **LIMITED, **mount, spec__template__spec__volumes=[{"name": "mine", "emptyDir": {}}])
    status = job.wait_for("Failed")
    assert path in status["message"] and "must be unique" in status["message"]


def test_a_restart_in_the_making_is_shown_and_survives_the_operator(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    begun = {"time": now(), **KILLED}
    failed = {"ledger": {"processFailures": 1, "withoutProgress": 1}, "failure": {**KILLED, "logTail": "loss 0.5"}}
    launcher.say("Restarting", lastRestart=begun, **failed)
    words = "worker-1 was killed (SIGKILL); restarting in place"
    status = job.wait_for("Restarting", reason="Killed", message=words)
    assert (status["restarts"]["counted"], status["lastRestart"]["signal"]) == (1, 9), "before the next round starts"
    assert status["failure"]["logTail"] == "loss 0.5"
    wait_until(lambda: ("Warning", "Killed", words) in job.events(), "the event")
    operator.kill()
    ledger = {"inPlace": 1, "processFailures": 1, "withoutProgress": 1}
    launcher.say(ledger=ledger, lastRestart={**begun, **RESUMED})
    operator.start()
    status = job.wait_for("Running", message="worker-1 was killed (SIGKILL); resumed from epoch 2 after 1.1 s")
    assert status["restarts"]["counted"] == status["restarts"]["inPlace"] == 1
    assert [event[1] for event in job.events()].count("Killed") == 1


def test_members_that_stand_still_or_train_alone_are_conditions_and_events(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    stands, alone = (
        "worker-1: no step for 600 s, which is unusual for this job",
        "worker-1 trains without the other members",
    )
    launcher.say(reason="NoStep", message=stands, trainsAlone=["worker-1"])
    job.wait_for("Running", message=f"2 replicas training; {stands} (NoStep); {alone} (TrainsAlone)")
    found = [job.condition(kind) for kind in ("NoProgress", "TrainsAlone")]
    assert [(each["status"], each["reason"]) for each in found] == [("True", "NoStep"), ("True", "TrainsAlone")]
    wait_until(lambda: {event[1] for event in job.events()} >= {"NoStep", "TrainsAlone"}, "the events")
    launcher.say()
    job.wait_for("Running", message="2 replicas training")
    assert job.condition("NoProgress")["status"] == job.condition("TrainsAlone")["status"] == "False"


def test_the_seconds_of_a_job_add_up_over_restarts_a_suspension_and_an_operator_that_was_away(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    for restarts in (1, 2):
        if restarts == 2:
            operator.kill()
        lost = {"downSeconds": 0.02, "resumedFromStep": 14, "lostSteps": 3, "lostSeconds": 0.01}
        last, backup = {"time": now(), **KILLED, **lost}, {"step": 14, "on": True, "blockedSeconds": 0.008 / restarts}
        launcher.say(
            round=restarts, ledger={"inPlace": restarts}, lastRestart=last, progress={"step": 17}, backup=backup
        )
        if restarts == 2:
            operator.start()
        wait_until(lambda: job.status()["restarts"].get("inPlace") == restarts, "the restart")  # noqa: B023
    job.remove_pod("job-worker-1")
    job.wait_for("Restarting", reason="PodDeleted")
    assert job.status()["goodput"]["cause"] == "recreated"
    wait_until(lambda: "job-worker-1" in job.pods(), "the new pod")
    job.run_pod("job-worker-1")
    job.wait_for("Running", ready="2/2")
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.wait_for("Suspended")
    for name in job.pods():
        job.remove_pod(name)
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.run(attempt=2)
    job.succeed_pod("job-worker-0", 'tftraining/1 {"verdict": "Succeeded"}\n')
    status = job.wait_for("Succeeded")
    goodput = status["goodput"]
    times = job.raw()["metadata"]["creationTimestamp"], status["completionTime"]
    created, ended = map(datetime.fromisoformat, times)
    began, until = (datetime.fromisoformat(goodput[name]) for name in ("startTime", "updatedTime"))
    # The operator's estimate of the API server's time may be a second behind.
    assert timedelta() <= created - began < timedelta(seconds=1)
    assert sum(goodput["seconds"].values()) == pytest.approx((until - began).total_seconds(), abs=0.01)
    assert timedelta() <= until - ended < timedelta(seconds=1) and "cause" not in goodput
    expected = {"inPlace": 0.04, "repeated": 0.02, "copies": 0.012}
    assert {name: goodput["seconds"][name] for name in expected} == pytest.approx(expected)
    assert goodput["seconds"].keys() == {*expected, "start", "recreated", "suspended", "trained"}


def test_a_calm_job_is_asked_and_costs_no_request(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    launcher.say(progress={"epoch": 1, "step": 5, "updatedTime": now()})
    job = new_job(**IN_PLACE)
    train(job, launcher)
    wait_until(lambda: "progress" in job.status(), "the progress")
    time.sleep(1.5)  # what is still on its way
    asked, before = launcher.asked, requests(operator)
    wait_until(lambda: launcher.asked >= asked + 2, "two more questions")
    # Two watches may end and begin again just now, nothing else; that of events does each minute.
    assert requests(operator) <= before + 4


def test_a_secret_that_somebody_deletes_costs_one_announced_restart(new_job: NewJob, launcher: ChiefLauncher) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    ((name, old),) = ((name, each) for name, each in job.objects("secrets").items() if "-launcher-" in name)
    job.plane.request("DELETE", f"/api/v1/namespaces/{job.namespace}/secrets/{name}")
    job.remove_pod("job-worker-1")
    assert len(job.wait_for_pods(attempt=2)) == 2
    assert job.objects("secrets")[name]["data"] != old["data"]
    told = f"secret/{name}, the key of the launchers, was deleted: new launchers cannot join; recreating all pods"
    told += "; restarting the gang as attempt 2"
    wait_until(lambda: ("Normal", "KeyLost", told) in job.events(), "the event")
    assert job.status()["restarts"].items() >= {"counted": 0, "disruptions": 2}.items()


def test_a_pod_that_fails_as_a_whole_is_replaced_alone_and_charged_once(
    new_job: NewJob, operator: OperatorProcess, launcher: ChiefLauncher
) -> None:
    job = new_job(**IN_PLACE)
    old = {name: pod["metadata"]["uid"] for name, pod in train(job, launcher).items()}
    job.fail_pod("job-worker-1", 137, "epoch 2", reason="OOMKilled")
    wait_until(lambda: uids(job).get("job-worker-1", old["job-worker-1"]) != old["job-worker-1"], "another pod")
    operator.kill()
    operator.start()
    environment = {
        each["name"]: each.get("value") for each in job.pods()["job-worker-1"]["spec"]["containers"][0]["env"]
    }
    assert json.loads(environment["TFTRAINING_LAUNCHER"] or "")["ledger"]["podFailures"] == 1
    job.run_pod("job-worker-1")
    status = job.wait_for("Running", ready="2/2", attempt=1)
    assert status["restarts"].items() >= {"counted": 1, "podFailures": 1, "recreated": 1}.items()
    assert status["failure"]["reason"] == "OOMKilled"
    assert uids(job)["job-worker-0"] == old["job-worker-0"]


def test_verdicts_end_the_job(new_job: NewJob, launcher: ChiefLauncher) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    head = {
        "verdict": "Failed", "reason": "ImportError", "message": "worker-1 failed with exit code 1: No module named x",
        "member": "worker-1", "exitCode": 1, "signal": None, "ledger": {"processFailures": 1},
    }  # fmt: skip
    job.fail_pod("job-worker-0", 1, f"tftraining/1 {json.dumps(head)}\nImportError: No module named x\n")
    status = job.wait_for("Failed", reason="ImportError", message=head["message"])
    assert status["failure"] == {
        "pod": "job-worker-1", "exitCode": 1, "reason": "ImportError", "logTail": "ImportError: No module named x",
    }  # fmt: skip
    assert status["restarts"]["counted"] == 1 and "recreated" not in status["restarts"]


def test_success_is_a_verdict_too(new_job: NewJob, launcher: ChiefLauncher) -> None:
    job = new_job(**IN_PLACE)
    train(job, launcher)
    job.succeed_pod("job-worker-1", 'tftraining/1 {"verdict": "Succeeded"}\n')
    job.wait_for("Succeeded", reason="ChiefSucceeded")


def test_an_image_without_python_fails_at_once(new_job: NewJob) -> None:
    job = new_job(**IN_PLACE)
    job.wait_for_pods(attempt=1)
    words = 'failed to create containerd task: exec: "python3": executable file not found in $PATH: unknown'
    job.fail_pod("job-worker-1", 128, words, reason="StartError")
    status = job.wait_for("Failed", reason="NoPython")
    assert "Python 3.9" in status["message"] and "mode: Recreate" in status["message"]

"""What a pod and a job get for the launcher, and that the launcher itself can read it."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.rules_table import CASES, Case
from tests.support.simulated_cluster.builders import UID, JobBuilder, a_job, a_launched_job
from tftraining.launch.config.settings import read
from tftraining.launch.failure.exit import FATAL
from tftraining.launch.failure.restart_rules import REASONS, Decision, Failure, decide
from tftraining_api.manifests.launcher import secret
from tftraining_api.manifests.memory_backup import NO_LIMIT
from tftraining_api.manifests.pod import pod
from tftraining_api.model.job import parse_job
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Manifest


def made(job: JobBuilder, index: int = 1) -> Manifest:
    spec: Manifest = pod(*job.parsed(), Replica("worker", index), "operator:1")["spec"]
    return spec


def main(job: JobBuilder) -> Manifest:
    container: Manifest = made(job)["containers"][0]
    return container


def environment(job: JobBuilder) -> dict[str, str]:
    return {each["name"]: each["value"] for each in main(job)["env"]}


def told(job: JobBuilder) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(environment(job)["TFTRAINING_LAUNCHER"])
    return settings


def test_the_launcher_stands_before_the_command_and_the_arguments_stay() -> None:
    container = main(a_launched_job().container(args=["--out", "$(TFTRAINING_DIR)/x"]))
    assert container["command"] == ["python", "/opt/tftraining-launcher", "--", "python", "train.py"]
    assert container["args"] == ["--out", "$(TFTRAINING_DIR)/x"]


@pytest.mark.parametrize(
    ("command", "python"),
    [
        (["python3", "x.py"], "python3"),
        (["/opt/conda/bin/python3.11", "-m", "x"], "/opt/conda/bin/python3.11"),
        (["/usr/bin/python", "x.py"], "/usr/bin/python"),
        (["sh", "-c", "python x.py"], "python3"),
        (["python-wrapper", "x"], "python3"),
        (["$(PYTHON)", "x"], "python3"),
    ],
)
def test_the_interpreter_is_the_users_own_where_that_can_be_seen(command: list[str], python: str) -> None:
    assert main(a_launched_job().container(command=command))["command"] == [
        python, "/opt/tftraining-launcher", "--", *command,
    ]  # fmt: skip


def test_an_init_container_brings_the_launcher() -> None:
    spec = made(a_launched_job().pod(initContainers=[{"name": "fetch", "image": "x"}]))
    init, own = spec["initContainers"]
    assert own["name"] == "fetch"
    assert (init["name"], init["image"]) == ("tftraining-launcher", "operator:1")
    assert init["command"] == ["python3", "-m", "tftraining.launch.install", "/opt/tftraining-launcher"]
    assert init["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    mount = {"name": "tftraining-launcher", "mountPath": "/opt/tftraining-launcher"}
    assert init["volumeMounts"] == [mount]
    assert {**mount, "readOnly": True} in spec["containers"][0]["volumeMounts"]
    assert {"name": "tftraining-launcher", "emptyDir": {}} in spec["volumes"]


@pytest.mark.parametrize(
    ("resources", "asked"),
    [
        ({"limits": {"cpu": "4", "memory": "8Gi"}}, {"cpu", "memory"}),
        ({"requests": {"memory": "8Gi"}, "limits": {"nvidia.com/gpu": 1}}, {"memory"}),
        ({"limits": {"nvidia.com/gpu": 1}}, set()),
        ({}, set()),
    ],
    ids=["guaranteed", "memory", "gpu", "nothing"],
)
def test_the_init_container_asks_for_nothing_that_the_pod_does_not(
    resources: dict[str, object], asked: set[str]
) -> None:
    init = made(a_launched_job().container(resources=resources))["initContainers"][0]["resources"]
    # Anything else would take the class Guaranteed from a pod whose containers ask for it.
    assert init.get("requests", {}) == init.get("limits", {})
    assert set(init.get("limits", {})) == asked


def test_the_image_of_the_launcher_can_be_chosen_and_pull_secrets_are_the_jobs_own() -> None:
    job = a_launched_job().set("launcher.image", "mirror/launcher:7").pod(imagePullSecrets=[{"name": "registry"}])
    spec = made(job)
    assert spec["initContainers"][0]["image"] == "mirror/launcher:7"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_the_key_is_a_file_for_the_pods_group_and_nowhere_else() -> None:
    spec = made(a_launched_job())
    volume = next(each for each in spec["volumes"] if each["name"] == "tftraining-key")
    assert volume["secret"] == {
        "secretName": f"mnist-launcher-{UID[:8]}",
        "defaultMode": 0o440,
        "items": [{"key": "key", "path": "key"}],
    }
    assert spec["securityContext"]["fsGroup"] == 1000
    mount = {"name": "tftraining-key", "mountPath": "/opt/tftraining-key", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]
    assert "tftraining-key" not in json.dumps([spec["initContainers"], *spec["containers"][1:]])


def test_the_secret_belongs_to_the_job_and_comes_without_its_key() -> None:
    job, _ = a_launched_job().parsed()
    manifest = secret(job)
    assert manifest["metadata"]["name"] == f"mnist-launcher-{UID[:8]}"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == UID
    assert not manifest.get("immutable"), "a kubelet would give an earlier key to new pods"
    assert not {"data", "stringData"} & set(manifest)


def test_probes_ask_the_launcher() -> None:
    container = main(a_launched_job())
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8472}
    liveness = container["livenessProbe"]
    assert liveness["httpGet"] == {"path": "/healthz", "port": 8472}
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def test_the_users_own_probes_win() -> None:
    probe = {"exec": {"command": ["true"]}}
    container = main(a_launched_job().container(livenessProbe=probe, readinessProbe=None))
    assert container["livenessProbe"] == probe
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_what_the_launcher_is_told() -> None:
    job = a_launched_job().storage().max_restarts(3).set("restartPolicy.budgetReset", "Never")
    job.set("launcher", {"warmStart": False, "terminationGraceSeconds": 7, "memberTimeoutSeconds": 4})
    job.set("runPolicy", {"startDeadlineSeconds": 60, "stallTimeoutSeconds": 120})
    assert told(job) == {
        "job": {"namespace": "ml", "name": "mnist", "uid": UID},
        "attempt": 0,
        "rendezvous": "mnist-worker-0.mnist.ml.svc:8471",
        "statusPort": 8472,
        "host": "",
        "secretFile": "/opt/tftraining-key/key",
        "directory": "/training/mnist",
        "terminationMessage": "/dev/termination-log",
        "warmStart": False,
        "terminationGraceSeconds": 7,
        "memberTimeoutSeconds": 4,
        "maxRestarts": 3,
        "sameFailureLimit": 3,
        "sameMemberLimit": 3,
        "onDivergence": "Report",
        "budgetReset": "Never",
        "scope": "Job",
        "rules": [],
        "startDeadlineSeconds": 60,
        "stallTimeoutSeconds": 120,
        "evaluatorGraceSeconds": 60,
        "successPolicy": "Chief",
        "minReplicas": None,
        "workerAddress": "mnist-worker-%d.mnist.ml.svc:2222",
        "largestGang": 2,
        "needed": True,
        "orders": "/opt/tftraining-orders/orders",
        "ledger": {"inPlace": 0, "processFailures": 0, "podFailures": 0, "refilledAt": 0, "withoutProgress": 0},
        "proven": False,
        "memoryBackup": {
            "mode": "Auto",
            "maxOverheadPercent": 1,
            "exactness": "Preferred",
            "sizeLimit": None,
            "memoryLimit": None,
            "directory": None,
            "off": NO_LIMIT,
        },
    }


# What a launcher can see of the table of failures.
SEEN = [case for case in CASES if case[2][3] in (*REASONS, "")]
FULL: Manifest = {
    "onExitCodes": list(range(1, 256)),
    "onSignals": list(range(1, 65)),
    "onReasons": [f"{index:02d}{chr(0x1F600) * 126}" for index in range(27)] + ["OOMKilled", *sorted(FATAL)],
    "role": "evaluator",
}


def test_as_many_rules_as_a_job_may_have_reach_the_chiefs_launcher() -> None:
    rules = [{"action": "Restart", **FULL} for _ in range(63)] + [{"action": "FailJob", **FULL, "role": "worker"}]
    job = a_launched_job().set("restartPolicy.rules", rules)
    there = [sys.executable, "-c", "import os; print(os.environ['TFTRAINING_LAUNCHER'])"]
    variables = {each["name"]: each["value"] for each in made(job, index=0)["containers"][0]["env"]}
    value = subprocess.run(there, env=variables, capture_output=True, text=True, check=True).stdout
    arrived = read({**variables, "TFTRAINING_LAUNCHER": value}).policy.rules
    assert len(arrived) == 64
    failure = Failure("worker", None, 9, "OOMKilled")
    assert decide(arrived, failure, True) == Decision("FailJob", "matched spec.restartPolicy.rules[63]: FailJob")


def test_a_rule_for_a_reason_that_only_pods_have_never_holds_for_a_launcher() -> None:
    rules = [{"action": "FailJob", "onReasons": ["Evicted"]}, {"action": "Ignore", "onReasons": ["Evicted", "Stalled"]}]
    job = a_launched_job().set("restartPolicy.rules", rules)
    variables = {each["name"]: each["value"] for each in made(job, index=0)["containers"][0]["env"]}
    policy = read(variables).policy
    assert decide(policy.rules, Failure("worker", 1, None, "Error"), True).action == "Restart"
    assert decide(policy.rules, Failure("worker", None, None, "Stalled"), True).rule.startswith(
        "matched spec.restartPolicy.rules[1]"
    )


@pytest.mark.parametrize("case", SEEN, ids=[case[0] for case in SEEN])
def test_the_rules_that_arrive_decide_as_those_of_the_spec(case: Case) -> None:
    _, rules, (role, code, signal, reason, proven), action, words = case
    job = a_launched_job().set("restartPolicy.rules", rules)
    variables = {each["name"]: each["value"] for each in made(job, index=0)["containers"][0]["env"]}
    told, failure = read(variables).policy.rules, Failure(role, code, signal, reason)
    assert decide(told, failure, proven) == Decision(action, words)


def test_only_the_chiefs_launcher_is_told_of_the_rules() -> None:
    job = a_launched_job().set("restartPolicy.rules", [{"action": "FailJob", "onExitCodes": [3]}])
    assert told(job)["rules"] == []


def test_the_rendezvous_is_at_the_chief() -> None:
    assert told(a_launched_job().chief())["rendezvous"] == "mnist-chief-0.mnist.ml.svc:8471"


def test_the_launcher_understands_what_it_is_told() -> None:
    job = a_launched_job().storage().container(terminationMessagePath="/tmp/last words")
    settings = read(environment(job))
    assert (settings.gang.me, settings.gang.chief, settings.is_chief) == ("worker-1", "worker-0", False)
    assert settings.rendezvous == ("mnist-worker-0.mnist.ml.svc", 8471)
    assert str(settings.termination_message) == "/tmp/last words"
    assert settings.policy.stall_timeout_seconds is None and settings.policy.max_restarts == 10


def test_a_path_is_no_variable() -> None:
    # The kubelet turns $$( into $( and expands $(NAME).
    value = environment(a_launched_job().container(terminationMessagePath="/tmp/$(HOME)"))["TFTRAINING_LAUNCHER"]
    assert "/tmp/$$(HOME)" in value


def test_the_ledger_is_what_the_status_knows() -> None:
    restarts = {"counted": 5, "podFailures": 2, "budgetUsed": 1, "inPlace": 9, "withoutProgress": 3}
    job = parse_job(a_launched_job().raw() | {"status": {"phase": "Restarting", "attempt": 2, "restarts": restarts}})
    assert job.spec is not None
    env = pod(job, job.spec, Replica("worker", 0), "x")["spec"]["containers"][0]["env"]
    settings = json.loads(next(each["value"] for each in env if each["name"] == "TFTRAINING_LAUNCHER"))
    assert settings["attempt"] == 2
    assert settings["ledger"] == {
        "inPlace": 9, "processFailures": 3, "podFailures": 2, "refilledAt": 4, "withoutProgress": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "proven"),
    [
        ({}, False),
        ({"restarts": {"counted": 0, "inPlace": 0}}, False),
        ({"progress": {"step": 40}}, True),
        ({"restarts": {"inPlace": 1}}, True),
        ({"restarts": {"counted": 1}}, True),
        ({"restarts": {"disruptions": 1}}, True),
    ],
)
def test_the_launcher_is_told_whether_steps_may_have_been_made(status: Manifest, proven: bool) -> None:
    job = parse_job(a_launched_job().raw() | {"status": {"phase": "Restarting", **status}})
    assert job.spec is not None
    made = pod(job, job.spec, Replica("worker", 0), "x")
    env = {each["name"]: each.get("value", "") for each in made["spec"]["containers"][0]["env"]}
    assert read(env).proven is proven
    fresh = parse_job(a_launched_job().raw())
    assert fresh.spec is not None
    notes = made["metadata"]["annotations"]
    assert notes == pod(fresh, fresh.spec, Replica("worker", 0), "x")["metadata"]["annotations"], "made from the same"


def test_the_launcher_decides_about_legacy_keras() -> None:
    assert "TF_USE_LEGACY_KERAS" not in environment(a_launched_job())
    assert environment(a_launched_job().container(env=[{"name": "TF_USE_LEGACY_KERAS", "value": "0"}]))[
        "TF_USE_LEGACY_KERAS"
    ] == "0"  # fmt: skip


def test_the_launcher_has_time_for_its_last_words() -> None:
    job = a_launched_job().set("launcher.terminationGraceSeconds", 20)
    assert made(job)["terminationGracePeriodSeconds"] == 22
    assert made(job.pod(terminationGracePeriodSeconds=90))["terminationGracePeriodSeconds"] == 90


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ({}, 0),
        ({"limits": {"cpu": "2", "memory": "4Gi"}}, 0),
        ({"limits": {"nvidia.com/gpu": 4}}, 4),
        ({"limits": {"amd.com/gpu": "2"}, "requests": {"amd.com/gpu": "2", "cpu": 1}}, 2),
        ({"requests": {"nvidia.com/gpu": "1"}}, 1),
        ({"limits": {"nvidia.com/gpu": "0"}}, 0),
        ({"limits": {"nvidia.com/gpu": "many"}}, 0),
        ({"limits": {"example.com/not-a-gpu": 1}}, 0),
    ],
)
def test_the_launcher_is_told_how_many_gpus_its_container_asks_for(resources: Manifest, gpus: int) -> None:
    job = a_launched_job().container(resources=resources)
    assert told(job).get("gpus", 0) == gpus
    assert read(environment(job)).gpus == gpus


def test_the_launcher_of_an_older_operator_knows_of_no_gpus() -> None:
    assert "gpus" not in told(a_launched_job())
    assert read(environment(a_launched_job())).gpus == 0


def test_devices_are_the_users_business() -> None:
    resources = {"limits": {"nvidia.com/gpu": 4}}
    spec = made(a_launched_job().container(resources=resources))
    assert spec["containers"][0]["resources"] == resources
    assert "nvidia" not in json.dumps(spec["initContainers"])


def test_other_containers_are_left_alone() -> None:
    sidecar = made(a_launched_job().beside(name="logs", image="logs:1", command=["tail"]))["containers"][1]
    assert set(sidecar) == {"name", "image", "command", "securityContext"}


def test_recreate_needs_no_launcher() -> None:
    spec = made(a_job())
    assert "initContainers" not in spec
    assert "launcher" not in json.dumps(spec).lower()
    assert not {"readinessProbe", "livenessProbe"} & set(spec["containers"][0])


def test_null_where_the_template_may_have_it() -> None:
    job = a_launched_job().pod(volumes=None, securityContext=None, initContainers=None)
    spec = made(job.container(env=None, volumeMounts=None, args=None, livenessProbe=None))
    assert spec["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert [each["name"] for each in spec["initContainers"]] == ["tftraining-launcher"]

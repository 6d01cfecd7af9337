"""The JSON that the operator gives to launchers stays byte for byte: an upgrade of the operator changes no pod."""

import inspect
import json
import re
from dataclasses import fields
from types import ModuleType
from typing import Any

import msgspec
import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_launched_job
from tftraining.launch.config.settings import MemoryBackupSettings, read
from tftraining.launch.config.settings_and_defaults import Policy, decode, decode_updates, names
from tftraining.launch.failure.restart_rules import Rule
from tftraining_api.manifests import launcher, spec_updates
from tftraining_api.manifests.pod import pod
from tftraining_api.model.names import ANNOTATION_ORDERS, Replica
from tftraining_api.model.spec import JobSpec, LauncherSpec, MemoryBackupSpec, RestartPolicy, RunPolicy

# Written by the version before launch/config/settings_and_defaults.py, which had no backups in memory.
DEFAULTS = (
    '{"job": {"namespace": "ml", "name": "mnist", "uid": "job-uid"}, "attempt": 0, '
    '"rendezvous": "mnist-worker-0.mnist.ml.svc:8471", "statusPort": 8472, "host": "", '
    '"secretFile": "/opt/tftraining-key/key", "directory": null, "terminationMessage": "/dev/termination-log", '
    '"warmStart": true, "terminationGraceSeconds": 5, "memberTimeoutSeconds": 3, "maxRestarts": 10, '
    '"sameFailureLimit": 3, "sameMemberLimit": 3, "onDivergence": "Report", '
    '"budgetReset": "OnProgress", "scope": "Job", '
    '"startDeadlineSeconds": 600, "stallTimeoutSeconds": null, "evaluatorGraceSeconds": 60, '
    '"successPolicy": "Chief", "rules": [], '
    '"minReplicas": null, "workerAddress": "mnist-worker-%d.mnist.ml.svc:2222", "largestGang": 2, "needed": true, '
    '"orders": "/opt/tftraining-orders/orders", "ledger": {"inPlace": 0, "processFailures": 0, "podFailures": 0, '
    '"refilledAt": 0, "withoutProgress": 0}, "proven": false}',
    '{"workers": 2, "maxRestarts": 10, "sameFailureLimit": 3, "sameMemberLimit": 3, "onDivergence": "Report", '
    '"budgetReset": "OnProgress", '
    '"successPolicy": "Chief", "startDeadlineSeconds": 600, "stallTimeoutSeconds": null, '
    '"evaluatorGraceSeconds": 60}',
)
ALL_SET = (
    '{"job": {"namespace": "ml", "name": "mnist", "uid": "job-uid"}, "attempt": 0, '
    '"rendezvous": "mnist-worker-0.mnist.ml.svc:8471", "statusPort": 8472, "host": "", '
    '"secretFile": "/opt/tftraining-key/key", "directory": "/training/mnist", '
    '"terminationMessage": "/dev/termination-log", "warmStart": false, "terminationGraceSeconds": 7, '
    '"memberTimeoutSeconds": 4.5, "maxRestarts": 3, "sameFailureLimit": 5, '
    '"sameMemberLimit": 4, "onDivergence": "Restore", "budgetReset": "Never", "scope": "Pod", '
    '"startDeadlineSeconds": 60, "stallTimeoutSeconds": 120, "evaluatorGraceSeconds": 0, '
    '"successPolicy": "AllWorkers", "rules": [{"action": "Ignore", "onExitCodes": [3], "onSignals": [9], '
    '"onReasons": ["Killed"], "role": "worker"}, {"action": "FailJob", "onReasons": ["OfPods"]}], "minReplicas": 2, '
    '"workerAddress": "mnist-worker-%d.mnist.ml.svc:2222", "largestGang": 3, "needed": true, '
    '"orders": "/opt/tftraining-orders/orders", "ledger": {"inPlace": 0, "processFailures": 0, "podFailures": 0, '
    '"refilledAt": 0, "withoutProgress": 0}, "proven": false}',
    '{"workers": 3, "maxRestarts": 3, "sameFailureLimit": 5, "sameMemberLimit": 4, "onDivergence": "Restore", '
    '"budgetReset": "Never", '
    '"successPolicy": "AllWorkers", "startDeadlineSeconds": 60, "stallTimeoutSeconds": 120, '
    '"evaluatorGraceSeconds": 0}',
)


BACKUP = (
    ', "memoryBackup": {"mode": "Auto", "maxOverheadPercent": 1, "exactness": "Preferred", "sizeLimit": null, '
    '"memoryLimit": null, "directory": null, "off": "the training container has no memory limit: set '
    'resources.limits.memory, or spec.launcher.memoryBackup.sizeLimit"}}'
)
BACKUP_SET = (
    ', "memoryBackup": {"mode": "Auto", "maxOverheadPercent": 2.5, "exactness": "Required", "sizeLimit": 1500000000, '
    '"memoryLimit": 4294967296, "directory": "/opt/tftraining-memory-backup", "off": ""}}'
)


def all_set() -> JobBuilder:
    rule = {"action": "Ignore", "onExitCodes": [3], "onSignals": [9], "onReasons": ["Killed"], "role": "worker"}
    rules = [rule, {"action": "FailJob", "onReasons": ["Evicted"]}]
    restarts = {
        "budgetReset": "Never",
        "scope": "Pod",
        "sameFailureLimit": 5,
        "sameMemberLimit": 4,
        "onDivergence": "Restore",
        "maxRestarts": 3,
        "rules": rules,
    }
    job = a_launched_job().workers(3).storage().set("minReplicas", 2).set("successPolicy", "AllWorkers")
    job.set("restartPolicy", {"mode": "InPlace", **restarts})
    backup = {"maxOverheadPercent": 2.5, "exactness": "Required", "sizeLimit": "1.5G"}
    launcher = {"warmStart": False, "terminationGraceSeconds": 7, "memberTimeoutSeconds": 4.5}
    job.set("launcher", {**launcher, "memoryBackup": backup}).container(resources={"limits": {"memory": "4Gi"}})
    return job.set("runPolicy", {"startDeadlineSeconds": 60, "stallTimeoutSeconds": 120, "evaluatorGraceSeconds": 0})


def written(job: JobBuilder, index: int) -> tuple[dict[str, str], str]:
    """The variables of a worker's program, and the annotation with the updates of the spec."""
    manifest = pod(*job.parsed(), Replica("worker", index), "operator:1")
    variables = {each["name"]: each["value"] for each in manifest["spec"]["containers"][0]["env"]}
    return variables, manifest["metadata"]["annotations"][ANNOTATION_ORDERS]


@pytest.mark.parametrize(
    ("job", "index", "expected", "backup"),
    [(a_launched_job(), 1, DEFAULTS, BACKUP), (all_set(), 0, ALL_SET, BACKUP_SET)],
    ids=["defaults", "all set"],
)
def test_the_json_is_that_of_the_version_before(
    job: JobBuilder, index: int, expected: tuple[str, str], backup: str
) -> None:
    variables, updates = written(job, index)
    assert variables["TFTRAINING_LAUNCHER"] == expected[0].removesuffix("}") + backup
    assert json.loads(updates) == json.loads(expected[1]), "which the operator compares without the order"


def test_a_launcher_decodes_every_field() -> None:
    variables, _ = written(all_set(), 0)
    assert read(variables).policy == Policy(
        warm_start=False,
        termination_grace_seconds=7.0,
        member_timeout_seconds=4.5,
        max_restarts=3,
        same_failure_limit=5,
        same_member_limit=4,
        on_divergence="Restore",
        budget_reset="Never",
        scope="Pod",
        start_deadline_seconds=60.0,
        stall_timeout_seconds=120.0,
        evaluator_grace_seconds=0.0,
        success_policy="AllWorkers",
        rules=(
            Rule("Ignore", frozenset({3}), frozenset({9}), frozenset({"Killed"}), "worker"),
            Rule("FailJob", reasons=frozenset({"OfPods"})),
        ),
        min_replicas=2,
    )


def test_a_key_that_an_earlier_operator_does_not_send_has_its_default() -> None:
    assert decode(Policy, {}) == Policy(same_failure_limit=0, same_member_limit=0), "its jobs end with no SameFailure"
    assert decode_updates({}, Policy(max_restarts=4)) == Policy(max_restarts=4)


def test_an_update_changes_only_fields_that_may_change_while_the_job_runs() -> None:
    raw = {"maxRestarts": 7, "stallTimeoutSeconds": None, "memberTimeoutSeconds": 60, "scope": "Pod"}
    assert decode_updates(raw, Policy(stall_timeout_seconds=9.0)) == Policy(max_restarts=7)


OWNERS: tuple[type[msgspec.Struct], ...] = (JobSpec, RestartPolicy, LauncherSpec, RunPolicy)


def defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {each.name: each.default for each in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("name", [each.name for each in fields(Policy)])
def test_a_setting_is_one_field_of_the_custom_resource_with_one_default(name: str) -> None:
    (found,) = [defaults(owner)[name] for owner in OWNERS if name in defaults(owner)]
    follows_from_the_roles = name == "scope"
    assert found == (None if follows_from_the_roles else getattr(Policy(), name))


@pytest.mark.parametrize("writer", [launcher, spec_updates])
def test_what_writes_the_json_names_no_setting(writer: ModuleType) -> None:
    words = {*re.findall(r"\w+", inspect.getsource(writer))}
    assert words & {*names(Policy)} - {"rules", "scope"} == set(), "a new one is a row and a field"


def test_a_setting_of_backups_in_memory_has_one_default() -> None:
    assert {name: getattr(MemoryBackupSettings(), name) for name in defaults(MemoryBackupSpec)} == defaults(
        MemoryBackupSpec
    )


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"memberTimeoutSeconds": 0.4}, "memberTimeoutSeconds must be at least 0.5 seconds"),
        ({"stallTimeoutSeconds": 0}, "stallTimeoutSeconds must be at least 0.1 seconds"),
        ({"startDeadlineSeconds": float("inf")}, "startDeadlineSeconds must be at least 0 seconds"),
    ],
)
def test_a_value_out_of_range_is_named(raw: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(Policy, raw)

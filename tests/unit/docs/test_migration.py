"""docs/migration.md: the translated manifest is valid and trains, and a test file proves each row of the tables."""

import re

import pytest
import yaml

from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.documented_jobs import running

DOCUMENT = (REPOSITORY / "docs" / "migration.md").read_text(encoding="utf-8")
PLAN = "unit/operator/plan"
# The test file that proves each row, by the row's first cell.
PROOFS = {
    "`tfReplicaSpecs.Worker`, `PS`, `Evaluator`, `Chief`": f"{PLAN}/test_roles.py",
    "`tfReplicaSpecs.Master`": "unit/api/test_tf_config.py",
    "`tfReplicaSpecs.*.replicas`": f"{PLAN}/test_elastic.py",
    "`tfReplicaSpecs.*.template`": "unit/api/test_pod_manifest.py",
    "`ports[].name: tfjob-port`": "unit/api/test_tf_config.py",
    "`restartPolicy: OnFailure`": f"{PLAN}/test_in_place.py",
    "`restartPolicy: Never`": f"{PLAN}/test_restart_budget.py",
    "`restartPolicy: Always`": f"{PLAN}/test_success_policy.py",
    "`restartPolicy: ExitCode`": "unit/docs/test_migration.py",
    "`runPolicy.backoffLimit` (unset: no limit)": f"{PLAN}/test_restart_budget.py",
    "`runPolicy.cleanPodPolicy` (unset: None)": f"{PLAN}/test_clean_pods.py",
    "`runPolicy.ttlSecondsAfterFinished`": f"{PLAN}/test_workertemp_cleanup.py",
    "`runPolicy.activeDeadlineSeconds`": f"{PLAN}/test_deadlines.py",
    "`runPolicy.suspend`": f"{PLAN}/test_suspend_resume.py",
    "`runPolicy.managedBy`": f"{PLAN}/test_start.py",
    "`runPolicy.schedulingPolicy.minAvailable`, `queue`, `scheduleTimeoutSeconds`": f"{PLAN}/test_gang_scheduling.py",
    "`runPolicy.schedulingPolicy.priorityClass`": "unit/api/test_pod_manifest.py",
    "`runPolicy.schedulingPolicy.minResources`": f"{PLAN}/test_gang_scheduling.py",
    '`successPolicy: ""`': f"{PLAN}/test_success_policy.py",
    "`successPolicy: AllWorkers`": f"{PLAN}/test_success_policy.py",
    "`enableDynamicWorker`": f"{PLAN}/test_elastic.py",
    "`status.conditions[].type: Created, Running, Restarting`": "support/simulated_cluster/invariants.py",
    "`status.replicaStatuses`": f"{PLAN}/test_clean_pods.py",
    "labels `training.kubeflow.org/job-name`, `replica-type`, `replica-index`": "unit/api/test_pod_manifest.py",
    "names of pods": "unit/api/test_pod_manifest.py",
    "Services": f"{PLAN}/test_start.py",
    "TF_CONFIG": "unit/api/test_tf_config.py",
    "a worker's program dies": f"{PLAN}/test_in_place.py",
    "a pod is deleted, drained, evicted or preempted": f"{PLAN}/test_disruptions.py",
    "a finished worker's pod is deleted": f"{PLAN}/test_success_policy.py",
    "a peer hangs": "processes/launch/test_member_timeout.py",
    "a pod never starts": f"{PLAN}/test_deadlines.py",
    "`workertemp_*` directories": f"{PLAN}/test_workertemp_cleanup.py",
    "Keras 3 `fit` with two workers": f"{PLAN}/test_keras.py",
    "in the pod by default": "unit/api/test_pod_manifest.py",
    "who may reach the pods": f"{PLAN}/test_gang_scheduling.py",
}


def test_a_test_file_proves_each_row() -> None:
    rows = {line.split("|")[1].strip() for line in DOCUMENT.splitlines() if line.startswith("|")}
    assert rows - {"case", "TFJob", "---"} == set(PROOFS)
    assert sorted(path for path in PROOFS.values() if not (REPOSITORY / "tests" / path).exists()) == []


MANIFEST_AFTER = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)[1])


def test_the_manifest_after_is_valid_and_trains() -> None:
    cluster = running(MANIFEST_AFTER)
    assert (cluster.pods, cluster.status.ready) == (["chief-0", "worker-0", "worker-1"], "3/3")
    for pod in cluster.api.pods.values():
        (container,) = pod["spec"]["containers"]
        assert pod["spec"]["priorityClassName"] == "high"
        assert container["image"] == "example.com/mnist:7"
        assert {"name": "tftraining-storage", "mountPath": "/training"}.items() <= container["volumeMounts"][0].items()
    (group,) = (each for each in cluster.api.auxiliary_objects.values() if each["kind"] == "PodGroup")
    assert group["spec"] == {"minMember": 3, "queue": "research", "priorityClassName": "high"}


@pytest.mark.parametrize(("code", "phase"), [(1, "Failed"), (127, "Failed"), (130, "Running"), (137, "Running")])
def test_the_rules_of_the_manifest_after_restart_the_exit_codes_that_tfjob_restarts(code: int, phase: str) -> None:
    assert running(MANIFEST_AFTER).exit("worker-1", code=code).run_timers().status.phase == phase

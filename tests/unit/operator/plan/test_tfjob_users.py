"""Row: TFJob users. What people rely on with TFJob is there, and the migration table tells the truth.

Each row of docs/migration.md is shown here on the planner, or is named below with where else it is shown.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.support.repository import REPOSITORY
from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tests.unit.operator.plan.conftest import until_it_cleans
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.model.spec import Manifest
from tftraining_client.validation import validate

DOCUMENT = (REPOSITORY / "docs" / "migration.md").read_text(encoding="utf-8")
SHOWN: set[str] = set()
ELSEWHERE = {
    "a peer hangs": "tests/processes/launch/test_liveness.py and test_watchdog.py",
    "Keras 3 `fit` with two workers": "tests/processes: it takes TensorFlow",
    "`runPolicy.schedulingPolicy.minResources`": "there is none",
}
BOTH = pytest.mark.parametrize("job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])


def row(*cells: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test shows the rows of the table that begin with these cells."""
    SHOWN.update(cells)
    return lambda test: test


def running(job: JobBuilder) -> World:
    world = World(job).run()
    assert world.status.phase == "Running"
    return world


def spec_of(world: World, pod: str) -> Manifest:
    spec: Manifest = world.api.pods[world.name(pod)]["spec"]
    return spec


def tf_config(world: World, pod: str) -> dict[str, Any]:
    env = spec_of(world, pod)["containers"][0]["env"]
    config: dict[str, Any] = json.loads(next(each["value"] for each in env if each["name"] == "TF_CONFIG"))
    return config


def chief_done(world: World) -> World:
    """The chief's program has done its work; nobody has seen it yet."""
    if world.launched:
        world.launchers.finish()
    else:
        world.exit("worker-0", code=0)
    return world


def finish(world: World) -> World:
    """The same, and what remains to be done is done, but for the work of the cleanup."""
    return until_it_cleans(chief_done(world))


# --- the manifest


def migrated() -> JobBuilder:
    """The job of the document, as the API server stores it."""
    manifest = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)[1])
    job = JobBuilder().without("worker")
    for field, value in validate(manifest)["spec"].items():
        job.set(field, value)
    return job


def test_the_manifest_after_is_valid_and_trains() -> None:
    world = running(migrated())
    assert (world.pods, world.status.ready) == (["chief-0", "worker-0", "worker-1"], "3/3")
    for pod in world.pods:
        (container,) = spec_of(world, pod)["containers"]
        assert spec_of(world, pod)["priorityClassName"] == "high"
        assert container["image"] == "example.com/mnist:7"
        assert {"name": "tftraining-storage", "mountPath": "/training"}.items() <= container["volumeMounts"][0].items()
    (group,) = (each for each in world.api.auxiliary_objects.values() if each["kind"] == "PodGroup")
    assert group["spec"] == {"minMember": 3, "queue": "research", "priorityClassName": "high"}


@row("`restartPolicy: ExitCode`")
@pytest.mark.parametrize(("code", "phase"), [(1, "Failed"), (127, "Failed"), (130, "Running"), (137, "Running")])
def test_exit_codes_as_tfjob_has_them_by_the_rules_of_that_manifest(code: int, phase: str) -> None:
    world = running(migrated()).exit("worker-1", code=code).run_timers()
    assert world.status.phase == phase


def test_every_row_is_shown_or_is_shown_elsewhere() -> None:
    rows = {line.split("|")[1].strip() for line in DOCUMENT.splitlines() if line.startswith("|")}
    assert rows - {"case", "TFJob", "---"} == SHOWN | set(ELSEWHERE)


# --- fields


@row("`tfReplicaSpecs.Worker`, `PS`, `Evaluator`, `Chief`", "`tfReplicaSpecs.*.template`")
@BOTH
def test_one_template_for_all_roles_or_one_in_a_role(job: Any) -> None:
    own = {"spec": {"containers": [{"name": "tensorflow", "image": "ps:1", "command": ["ps"]}]}}
    world = running(job().chief().role("ps", template=own).role("evaluator"))
    images = {pod: spec_of(world, pod)["containers"][0]["image"] for pod in world.pods}
    common = dict.fromkeys(("chief-0", "evaluator-0", "worker-0", "worker-1"), "trainer:1")
    assert images == {**common, "ps-0": "ps:1"}
    assert {spec_of(world, pod)["restartPolicy"] for pod in world.pods} == {"Never"}


@row("`tfReplicaSpecs.Master`")
def test_a_master_is_a_chief() -> None:
    assert tf_config(running(a_job().chief()), "chief-0")["task"] == {"type": "chief", "index": 0}


@row("`tfReplicaSpecs.*.replicas`", "`enableDynamicWorker`")
def test_the_number_of_workers_changes_and_all_are_told() -> None:
    world = running(a_job().chief())
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run()
    sizes = {pod: len(tf_config(world, pod)["cluster"]["worker"]) for pod in world.pods}
    assert sizes == {"chief-0": 3, "worker-0": 3, "worker-1": 3, "worker-2": 3}


@row("`ports[].name: tfjob-port`")
def test_the_port_is_a_field() -> None:
    assert tf_config(running(a_job()), "worker-0")["cluster"]["worker"][0].endswith(":2222")
    cluster = tf_config(running(a_job().role("worker", port=3333)), "worker-0")["cluster"]
    assert all(each.endswith(":3333") for each in cluster["worker"])


@row("`restartPolicy: OnFailure`", "a worker's program dies")
def test_by_default_the_whole_gang_restarts_in_its_pods_once() -> None:
    world = running(a_launched_job())
    before = {name: pod["metadata"]["uid"] for name, pod in world.api.pods.items()}
    world.launchers.crash("worker-1", code=1)
    world.run()
    assert {name: pod["metadata"]["uid"] for name, pod in world.api.pods.items()} == before
    assert (world.status.phase, world.launchers.round) == ("Running", 2)
    assert (world.status.restarts.in_place, world.status.restarts.counted) == (1, 1)


@row("`restartPolicy: Never`")
@BOTH
def test_never_is_no_restart_but_an_evicted_pod_is_made_anew(job: Any) -> None:
    world = running(job().max_restarts(0))
    world.kubelet.evict("mnist-worker-1")
    assert world.run_timers().status.phase == "Running"
    if world.launched:
        world.launchers.crash("worker-1")
    else:
        world.exit("worker-1")
    assert world.run_timers().status.reason == "MaxRestartsExceeded"


@row("`restartPolicy: Always`", "a finished worker's pod is deleted")
def test_who_has_ended_with_0_is_done() -> None:
    world = running(a_job().workers(3)).exit("worker-1", code=0).run().delete("worker-1").run()
    assert (world.status.phase, world.pods, world.status.ready) == ("Running", ["worker-0", "worker-2"], "3/3")


@row("`runPolicy.backoffLimit` (unset: no limit)")
@BOTH
@pytest.mark.parametrize("reset", ["OnProgress", "Never"])
def test_one_incident_is_one_charge_and_a_newer_epoch_refills_the_budget(job: Any, reset: str) -> None:
    world = running(job().workers(4).max_restarts(1).set("restartPolicy.budgetReset", reset))
    for epoch in (1, 3):
        if world.launched:
            world.launchers.advance(epoch, 70 * epoch)
            world.listen()
            world.settle()
        world.wait(61)
        world.exit("worker-1", "worker-2", "worker-3", code=137, reason="OOMKilled").run_timers()
    refilled = reset == "OnProgress"
    assert world.status.phase == ("Running" if refilled else "Failed")
    assert world.status.restarts.counted == (2 if refilled else 1)


@row("`runPolicy.cleanPodPolicy` (unset: None)")
@pytest.mark.parametrize(
    ("policy", "kept"),
    [(None, ["worker-0", "worker-2"]), ("Running", ["worker-0", "worker-2"]), ("All", []), ("None", 3)],
)
def test_finished_and_failed_pods_are_kept_unless_it_says_otherwise(policy: str | None, kept: list[str] | int) -> None:
    job = a_job().workers(3).max_restarts(0)
    world = running(job.set("runPolicy.cleanPodPolicy", policy) if policy else job)
    world.exit("worker-0", code=0).exit("worker-2").run_timers()
    assert world.status.phase == "Succeeded"
    assert (len(world.pods) if policy == "None" else world.pods) == kept


@row("`runPolicy.ttlSecondsAfterFinished`", "`workertemp_*` directories")
@BOTH
def test_the_job_goes_in_time_but_the_temporary_directories_first(job: Any) -> None:
    world = finish(running(job().storage().set("runPolicy.ttlSecondsAfterFinished", 0)))
    assert "cleanup" in world.pods and not world.api.gone
    world.exit("cleanup", code=0, message='{"removed": 1}').run_timers()
    assert world.api.gone


@row("`runPolicy.activeDeadlineSeconds`")
@BOTH
def test_the_deadline_is_enforced_and_begins_anew_after_a_suspension(job: Any) -> None:
    world = running(job().set("runPolicy.activeDeadlineSeconds", 60)).wait(50)
    for suspended in (True, False):
        world.api.edit("runPolicy.suspend", suspended)
        world.run()
    assert world.wait(59).run().status.phase == "Running"
    assert world.wait(1).run().status.reason == "DeadlineExceeded"


@row("`runPolicy.suspend`")
@BOTH
def test_a_suspended_job_has_no_pods_and_goes_on(job: Any) -> None:
    world = running(job())
    world.api.edit("runPolicy.suspend", True)
    assert world.run().pods == []
    world.api.edit("runPolicy.suspend", False)
    assert world.run().status.phase == "Running"


@row("`runPolicy.managedBy`")
@BOTH
def test_a_job_that_somebody_else_manages_is_left_alone(job: Any) -> None:
    world = World(job().set("runPolicy.managedBy", "example.com/other")).run()
    assert (world.api.writes, world.pods) == ([], [])
    assert running(job().set("runPolicy.managedBy", "tftraining.dev/operator")).status.ready == "2/2"


@row(
    "`runPolicy.schedulingPolicy.minAvailable`, `queue`, `scheduleTimeoutSeconds`",
    "`runPolicy.schedulingPolicy.priorityClass`",
)
def test_a_pod_group_is_asked_for_by_the_job() -> None:
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "minAvailable": 1, "timeoutSeconds": 30}
    scheduling = {"podGroup": group, "priorityClassName": "high"}
    world = running(a_job().set("runPolicy.scheduling", scheduling))
    (made,) = world.api.auxiliary_objects.values()
    assert (made["apiVersion"], made["kind"]) == ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    assert made["spec"] == {"minMember": 1, "scheduleTimeoutSeconds": 30}
    assert {spec_of(world, pod)["priorityClassName"] for pod in world.pods} == {"high"}
    assert running(a_job()).api.auxiliary_objects == {}


@row('`successPolicy: ""`')
@BOTH
def test_the_chief_otherwise_worker_0_decides(job: Any) -> None:
    assert finish(running(job())).status.message == "worker-0 (the chief) has finished"


@row("`successPolicy: AllWorkers`")
def test_all_workers_and_a_chief_too() -> None:
    world = running(a_job().chief().set("successPolicy", "AllWorkers")).exit("worker-0", "worker-1", code=0).run()
    assert world.status.phase == "Running"
    assert world.exit("chief-0", code=0).run().status.phase == "Succeeded"


@row("`status.conditions[].type: Created, Running, Restarting`")
@BOTH
@pytest.mark.parametrize("well", [True, False])
def test_succeeded_and_failed_are_never_both_true(job: Any, well: bool) -> None:
    world = running(job().max_restarts(0))
    if well:
        chief_done(world).settle().exit("worker-1")
    else:
        world.exit("worker-0", code=137, reason="OOMKilled").settle().exit("worker-1", code=0)
    world.run_timers()
    assert (world.status.is_true("Succeeded"), world.status.is_true("Failed")) == (well, not well)
    assert world.status.phase == ("Succeeded" if well else "Failed")


@row("`status.replicaStatuses`")
def test_the_counts_of_each_role() -> None:
    world = running(a_job().workers(3)).exit("worker-1", code=0).run()
    workers = world.status.replicas["worker"]
    assert (workers.desired, workers.active, workers.succeeded, workers.failed) == (3, 2, 1, 0)


@row("labels `training.kubeflow.org/job-name`, `replica-type`, `replica-index`")
def test_labels() -> None:
    labels = running(a_job()).api.pods["mnist-worker-1"]["metadata"]["labels"]
    ours = {"tftraining.dev/job-name": "mnist", "tftraining.dev/role": "worker", "tftraining.dev/index": "1"}
    assert ours.items() <= labels.items()


# --- behaviour


@row("names of pods", "Services")
@BOTH
def test_names_and_the_one_service_that_is_there_before_any_pod(job: Any) -> None:
    world = running(job().chief())
    assert sorted(world.api.pods) == ["mnist-chief-0", "mnist-worker-0", "mnist-worker-1"]
    created = [each for each in world.api.writes if each.startswith("create")]
    assert created[0] == "create service/mnist" and len([each for each in created if "service" in each]) == 1
    assert world.api.services["mnist"]["spec"]["clusterIP"] == "None"
    assert tf_config(world, "chief-0")["cluster"]["worker"][1].startswith("mnist-worker-1.mnist.ml.svc:")


@row("TF_CONFIG")
@BOTH
@pytest.mark.parametrize("workers", [1, 2])
def test_every_pod_has_a_tf_config_of_cluster_and_task(job: Any, workers: int) -> None:
    world = running(job().workers(workers))
    assert all(set(tf_config(world, pod)) == {"cluster", "task"} for pod in world.pods)


@row("a pod is deleted, drained, evicted or preempted")
@BOTH
@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager", ""])
def test_a_pod_that_the_cluster_takes_costs_nothing(job: Any, reason: str) -> None:
    world = running(job().max_restarts(0))
    if reason:
        world.kubelet.mark_disrupted("mnist-worker-1", reason)
    world.delete("worker-1").run_timers()
    assert (world.status.phase, world.status.restarts.counted, world.status.restarts.disruptions) == ("Running", 0, 1)


@row("a pod never starts")
def test_a_pod_that_never_starts_fails_the_job_in_the_end_with_what_held_it_up() -> None:
    world = World(a_job()).settle()
    world.kubelet.hold("mnist-worker-1", "ErrImagePull", "no such image")
    world.run_timers()
    assert world.status.reason == "StartDeadlineExceeded"
    held = "worker-1: container tensorflow: image pull failed (trainer:1): no such image"
    assert world.status.message is not None and held in world.status.message


@row("in the pod by default")
@BOTH
def test_a_pod_is_restricted_unless_its_template_says_otherwise(job: Any) -> None:
    spec = spec_of(running(job()), "worker-0")
    assert spec["automountServiceAccountToken"] is False
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (1000, True)
    root = spec_of(running(job().pod(securityContext={"runAsUser": 0})), "worker-0")["securityContext"]
    assert root["runAsUser"] == 0 and not root.get("runAsNonRoot")


@row("who may reach the pods")
def test_each_other_and_the_operator_may_reach_the_pods() -> None:
    world = World(a_launched_job())
    world.operator_selector = OperatorSelector("tftraining-system", {"app": "operator"})
    (policy,) = world.run().api.auxiliary_objects.values()
    assert policy["kind"] == "NetworkPolicy"
    assert len(policy["spec"]["ingress"]) == 2

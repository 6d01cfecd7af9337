"""Gang schedulers, queues and other controllers: what stands beside the pods, when it is made, and when it goes."""

from typing import Any

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tftraining_api.manifests.network_policy import OperatorSelector
from tftraining_api.manifests.pod import pod
from tftraining_api.manifests.pod_group import pod_group
from tftraining_api.model.names import Replica
from tftraining_api.model.spec import Manifest

COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
GROUP, POLICY = "podgroup/mnist-job-uid", "networkpolicy/mnist-job-uid"
ASKER = OperatorSelector("system", {"app": "operator"})
PRIORITY = "runPolicy.scheduling.priorityClassName"
QUEUE = {"kueue.x-k8s.io/queue-name": "research"}


def grouped(job: JobBuilder, api: str = VOLCANO, **fields: object) -> JobBuilder:
    return job.set("runPolicy.scheduling.podGroup", {"apiVersion": api, **fields})


def native(job: JobBuilder) -> JobBuilder:
    return job.set("runPolicy.scheduling.gang", "Native")


def gang_of(pods: int) -> dict[str, object]:
    return {"schedulingPolicy": {"gang": {"minCount": pods}}}


def queued(job: JobBuilder) -> JobBuilder:
    return job.labelled(**{"kueue.x_k8s.io__queue_name": "research"})


def guarded(job: JobBuilder) -> SimulatedCluster:
    cluster = SimulatedCluster(job)
    cluster.operator_selector = ASKER
    return cluster


def group_of(job: JobBuilder) -> dict[str, Any]:
    parsed, spec = job.parsed()
    asked = pod_group(parsed, spec)
    assert asked is not None
    return {name: value for name, value in asked["spec"].items() if value is not None}


def made(job: JobBuilder, role: str = "worker") -> Manifest:
    return pod(*job.parsed(), Replica(role, 0), "operator:1")  # type: ignore[arg-type]


# --- PodGroup


@pytest.mark.parametrize(
    ("job", "spec"),
    [
        (grouped(a_job().workers(3).chief(), COSCHEDULING), {"minMember": 4}),
        (grouped(a_job().role("ps", replicas=2).role("evaluator"), COSCHEDULING), {"minMember": 4}),
        (grouped(a_job(), COSCHEDULING, timeoutSeconds=9), {"minMember": 2, "scheduleTimeoutSeconds": 9}),
        (grouped(a_job(), minAvailable=1, queue="q"), {"minMember": 1, "queue": "q"}),
        (
            grouped(a_job()).set("runPolicy.scheduling.priorityClassName", "high"),
            {"minMember": 2, "priorityClassName": "high"},
        ),
        (grouped(a_job().workers(4).set("minReplicas", 2)), {"minMember": 4}),
        (native(a_job().workers(3).role("ps", replicas=2).role("evaluator")), gang_of(5)),
        (
            native(a_job().set(PRIORITY, "low").pod(priorityClassName="high")),
            {**gang_of(2), "priorityClassName": "high"},
        ),
        (native(a_job().set(PRIORITY, "low")), {**gang_of(2), "priorityClassName": "low"}),
        (native(a_job().set(PRIORITY, "low").pod(priorityClassName=None)), gang_of(2)),
    ],
    ids=[
        "all",
        "no evaluator",
        "timeout",
        "queue",
        "priority",
        "minReplicas is for later",
        "Kubernetes' own",
        "the template's priority, which the pods have",
        "the job's priority",
        "no priority, by the template",
    ],
)
def test_the_group_holds_what_was_asked_for(job: JobBuilder, spec: dict[str, object]) -> None:
    assert group_of(job) == spec


def test_what_is_unset_is_taken_out_of_a_group_that_had_it() -> None:
    parsed, spec = grouped(a_job()).parsed()
    group = pod_group(parsed, spec)
    assert group is not None and group["spec"] == {"minMember": 2, "queue": None, "priorityClassName": None}


def test_pods_are_in_their_group_but_for_the_evaluator() -> None:
    job = grouped(a_job().role("evaluator"), COSCHEDULING)
    label = "scheduling.x-k8s.io/pod-group"
    assert made(job)["metadata"]["labels"][label] == "mnist-job-uid"
    assert made(job)["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
    assert label not in made(job, "evaluator")["metadata"]["labels"]
    assert "schedulerName" not in made(job, "evaluator")["spec"]
    job = grouped(a_job())
    assert made(job)["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "mnist-job-uid"
    assert made(job)["spec"]["schedulerName"] == "volcano"


def test_pods_of_a_native_gang_name_it_but_for_the_evaluator() -> None:
    job = native(a_job().role("evaluator"))
    assert made(job)["spec"]["schedulingGroup"] == {"podGroupName": "mnist-job-uid"}
    assert not {"schedulingGroup", "schedulerName"} & made(job, "evaluator")["spec"].keys()
    plain = made(a_job())
    assert "schedulerName" not in made(job)["spec"] and made(job)["metadata"]["labels"] == plain["metadata"]["labels"]


def test_a_native_gang_that_was_asked_for_in_a_suspension_that_nobody_saw() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit("runPolicy.scheduling", {"gang": "Native"})
    cluster.run()
    assert (cluster.status.attempt, list(cluster.api.auxiliary_objects)) == (2, [GROUP])


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (queued(a_job()), "excludes the label kueue.x-k8s.io/queue-name"),
        (a_job().pod(schedulingGroup={"podGroupName": "mine"}), "the operator sets schedulingGroup"),
        (
            a_job().role("ps", template={"spec": {"priorityClassName": "low", "containers": []}}),
            "need the same priorityClassName (now worker: none, ps: low)",
        ),
    ],
    ids=["a queue", "another group", "two priorities"],
)
def test_what_a_native_gang_excludes_is_said_and_makes_no_pod(job: JobBuilder, why: str) -> None:
    assert job.parsed()[0].problem is None
    cluster = SimulatedCluster(native(job)).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.pods) == ("Failed", "InvalidSpec", [])
    assert why in (cluster.status.message or "")


def test_an_evaluator_may_have_another_priority_than_a_native_gang() -> None:
    template = {"spec": {"priorityClassName": "low", "containers": []}}
    assert native(a_job().role("evaluator", template=template)).parsed()[0].problem is None


def test_the_users_own_scheduler_is_believed() -> None:
    assert made(grouped(a_job()).pod(schedulerName="mine"))["spec"]["schedulerName"] == "mine"


def test_no_group_no_trace() -> None:
    manifest = made(a_job())
    assert "schedulerName" not in manifest["spec"]
    assert not any("scheduling" in name for part in ("labels", "annotations") for name in manifest["metadata"][part])


def test_the_group_is_there_before_any_pod() -> None:
    cluster = SimulatedCluster(grouped(a_job()))
    cluster.settle()
    assert cluster.api.writes.index(f"ensure {GROUP}") < cluster.api.writes.index("create pod/mnist-worker-0")


@pytest.mark.parametrize("job", [a_job(), a_job().role("evaluator")], ids=["workers", "evaluator"])
def test_a_scheduler_that_is_not_there_is_said_and_waited_for(job: JobBuilder) -> None:
    cluster = SimulatedCluster(grouped(job))
    cluster.api.refusals[GROUP] = (404, "the cluster has no PodGroup")
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "CreationRefused")
    assert cluster.status.message == f"{GROUP}: the cluster has no PodGroup"
    assert cluster.pods == [] and not cluster.step(), "no hot loop"
    del cluster.api.refusals[GROUP]
    assert cluster.run_timers().status.phase == "Running"


@pytest.mark.parametrize("code", [400, 403, 422, 500])
def test_a_group_that_is_refused_is_tried_again(code: int) -> None:
    # The CRD was kept to: what is wrong, such as a queue that is closed, may change.
    cluster = SimulatedCluster(grouped(a_job()))
    cluster.api.refusals[GROUP] = (code, "the queue is closed")
    cluster.settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Starting", "CreationRefused")


def test_a_scheduler_that_never_comes_ends_the_wait() -> None:
    cluster = SimulatedCluster(grouped(a_job().set("runPolicy.startDeadlineSeconds", 60)))
    cluster.api.refusals[GROUP] = (404, "the cluster has no PodGroup")
    cluster.settle().wait(61).settle()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert cluster.status.message is not None and "the cluster has no PodGroup" in cluster.status.message


def test_the_group_grows_with_the_gang() -> None:
    cluster = SimulatedCluster(grouped(a_job())).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run()
    assert cluster.api.auxiliary_objects[GROUP]["spec"]["minMember"] == 3


def test_the_group_shrinks_with_a_gang_that_trains_on() -> None:
    cluster = SimulatedCluster(grouped(a_launched_job().workers(3))).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 2)
    cluster.run_timers()
    assert cluster.pods == ["worker-0", "worker-1"] and cluster.status.attempt == 1
    assert cluster.api.auxiliary_objects[GROUP]["spec"]["minMember"] == 2
    before = len(cluster.api.writes)
    assert len(cluster.wait(600).run_timers().api.writes) == before


def test_a_group_that_cannot_shrink_yet_is_asked_again() -> None:
    cluster = SimulatedCluster(grouped(a_launched_job().workers(3))).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 2)
    cluster.api.refusals[GROUP] = (500, "not now")
    cluster.settle()
    del cluster.api.refusals[GROUP]
    cluster.settle().wait(1.5).run_timers()
    assert cluster.api.auxiliary_objects[GROUP]["spec"]["minMember"] == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["one operator", "a new operator"])
def test_a_suspension_deletes_the_group_though_that_was_refused_once(restarted: bool) -> None:
    cluster = suspend(SimulatedCluster(grouped(a_launched_job())).run())
    cluster.api.refusals[f"DELETE {GROUP}"] = (500, "not now")
    cluster.run()
    assert cluster.pods == [] and GROUP in cluster.api.auxiliary_objects
    assert cluster.status.is_true("ChangeRefused")
    cluster.api.refusals.clear()
    if restarted:
        cluster.forget()
    cluster.wait(2).run_timers()
    assert GROUP not in cluster.api.auxiliary_objects
    assert not cluster.status.is_true("ChangeRefused")


def test_a_group_that_was_asked_for_in_a_suspension_that_nobody_saw() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit("runPolicy.scheduling", {"podGroup": {"apiVersion": VOLCANO}})
    cluster.run()
    assert (cluster.status.attempt, list(cluster.api.auxiliary_objects)) == (2, [GROUP])
    assert cluster.status.last_restart is not None and cluster.status.last_restart.reason == "SpecChanged"


# --- NetworkPolicy


def test_the_policy_is_there_before_any_pod_and_names_who_may_come_in() -> None:
    cluster = guarded(a_launched_job())
    cluster.run()
    assert cluster.api.writes.index(f"ensure {POLICY}") < cluster.api.writes.index("create pod/mnist-worker-0")
    own, operator = cluster.api.auxiliary_objects[POLICY]["spec"]["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": {"tftraining.dev/job-name": "mnist"}}}]}
    assert operator["from"][0]["podSelector"] == {"matchLabels": {"app": "operator"}}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8472}]


def test_the_policy_admits_prometheus_on_the_status_port_only() -> None:
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    cluster = guarded(a_launched_job())
    cluster.operator_selector = OperatorSelector(ASKER.namespace, ASKER.labels, (prometheus,))
    own, status = cluster.run().api.auxiliary_objects[POLICY]["spec"]["ingress"]
    assert prometheus not in own["from"]
    assert status["from"][1:] == [prometheus] and status["ports"] == [{"protocol": "TCP", "port": 8472}]


def test_without_the_setting_there_is_none() -> None:
    assert SimulatedCluster(a_job()).run().api.auxiliary_objects == {}


@pytest.mark.parametrize("role", ["worker", "chief"])
def test_no_policy_where_a_pod_is_on_its_nodes_network(role: str) -> None:
    # Its packets would come from the node's address, and be kept from the others.
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "tensorflow", "image": "x", "command": ["c"]}]}}
    assert guarded(a_job().chief().role(role, template=template)).run().api.auxiliary_objects == {}


def test_the_nodes_network_chosen_in_a_suspension_takes_the_policy_away_and_back() -> None:
    cluster = suspend(guarded(a_launched_job()).run()).run()
    cluster.api.edit("template.spec.hostNetwork", True)
    assert resume(cluster).run().api.auxiliary_objects == {}
    writes = cluster.api.writes
    assert writes.index(f"delete {POLICY}") < len(writes) - writes[::-1].index("create pod/mnist-worker-0")
    suspend(cluster).run()
    cluster.api.edit("template.spec.hostNetwork", False)
    assert list(resume(cluster).run().api.auxiliary_objects) == [POLICY]


def test_a_job_that_runs_is_not_given_a_policy_by_a_new_version() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.operator_selector = ASKER
    assert not cluster.step()
    cluster.exit("worker-1").run()
    assert list(cluster.api.auxiliary_objects) == [POLICY]


# --- both


@pytest.mark.parametrize("code", [0, 1])
def test_auxiliary_objects_go_with_the_service(code: int) -> None:
    cluster = guarded(grouped(a_job().max_restarts(0))).run()
    assert sorted(cluster.api.auxiliary_objects) == [POLICY, GROUP]
    cluster.exit("worker-0", code=code).run()
    assert cluster.status.terminal and (cluster.api.auxiliary_objects, cluster.api.services) == ({}, {})
    assert not cluster.step()


def test_auxiliary_objects_are_kept_with_everything_else() -> None:
    cluster = guarded(grouped(a_job().set("runPolicy.cleanPodPolicy", "None"))).run()
    cluster.exit("worker-0", code=0).run()
    assert sorted(cluster.api.auxiliary_objects) == [POLICY, GROUP]


def test_a_suspended_job_holds_no_place_in_a_queue() -> None:
    cluster = guarded(grouped(a_job())).run()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run()
    assert list(cluster.api.auxiliary_objects) == [POLICY]
    assert not cluster.step()
    cluster.api.edit("runPolicy.suspend", False)
    assert sorted(cluster.run().api.auxiliary_objects) == [POLICY, GROUP]


@pytest.mark.parametrize("writes", range(1, 6))
def test_a_crash_while_a_job_is_suspended_leaves_no_group(writes: int) -> None:
    cluster = guarded(grouped(a_job())).run()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.step(writes=writes)
    cluster.forget()
    assert list(cluster.run().api.auxiliary_objects) == [POLICY]
    assert cluster.status.phase == "Suspended" and not cluster.step()


def test_a_crash_while_they_go_leaves_none() -> None:
    cluster = guarded(grouped(a_job())).run().exit("worker-0", code=0)
    for writes in (2, 3, 4):
        cluster.step(writes=writes)
    assert cluster.run().api.auxiliary_objects == {}


# --- Kueue


def test_a_queued_job_is_a_group_that_is_not_retriable() -> None:
    manifest = made(queued(a_launched_job()))["metadata"]
    assert QUEUE.items() <= manifest["labels"].items()
    assert manifest["labels"]["kueue.x-k8s.io/pod-group-name"] == "mnist-job-uid-0"
    assert manifest["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "2"
    assert manifest["annotations"]["kueue.x-k8s.io/retriable-in-group"] == "false"


def test_a_pod_alone_and_the_evaluator_are_queued_by_themselves() -> None:
    for manifest in (made(queued(a_job().workers(1))), made(queued(a_job().role("evaluator")), "evaluator")):
        assert QUEUE.items() <= manifest["metadata"]["labels"].items()
        assert "pod-group" not in str(manifest["metadata"])


def test_the_groups_name_is_a_label_however_long_the_jobs_is() -> None:
    name = made(queued(a_job().named("d" * 51)))["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"]
    assert len(name) <= 63 and name.endswith("-job-uid-0")


def test_a_priority_without_a_queue_asks_for_nothing() -> None:
    job = a_job().labelled(**{"kueue.x_k8s.io__priority_class": "urgent"})
    assert "kueue" not in str(made(job)["metadata"])


def test_an_evaluator_of_a_queued_job_is_replaced_alone() -> None:
    cluster = SimulatedCluster(queued(a_launched_job().role("evaluator"))).run().delete("evaluator-0").run_timers()
    assert (cluster.status.attempt, cluster.status.phase) == (1, "Running")
    assert cluster.pods == ["evaluator-0", "worker-0", "worker-1"]


def test_a_queued_job_changes_its_size_with_a_group_of_its_own() -> None:
    # Kueue would take pods that are more than the group's total count for too many, and delete them.
    cluster = SimulatedCluster(queued(a_launched_job())).run()
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run()
    assert (cluster.status.attempt, cluster.attempts(), cluster.status.ready) == (2, {"2"}, "3/3")
    counts = {
        each["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] for each in cluster.api.pods.values()
    }
    assert counts == {"3"}


def gate(cluster: SimulatedCluster, *names: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    for name in names:
        cluster.kubelet.condition(cluster.name(name), {**condition, "message": "blocked"})


def test_the_time_in_the_queue_is_not_the_jobs() -> None:
    cluster = SimulatedCluster(queued(a_job().set("runPolicy.startDeadlineSeconds", 60))).settle()
    gate(cluster, "worker-0", "worker-1")
    cluster.wait(3600).settle()
    assert cluster.status.phase == "Starting"
    assert cluster.status.message == (
        "worker-0: waiting for quota: scheduling gated, see kubectl describe workload mnist-job-uid-1 (and 1 more)"
    )
    for name in ("worker-0", "worker-1"):
        now = cluster.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        cluster.kubelet.set_waiting(cluster.name(name), "ErrImagePull", "no such image")
        cluster.kubelet.condition(cluster.name(name), placed)
    assert cluster.wait(59).settle().status.phase == "Starting"
    assert cluster.wait(2).settle().status.reason == "StartDeadlineExceeded"


def kept(cluster: SimulatedCluster, finalizer: str = "kueue.x-k8s.io/managed") -> SimulatedCluster:
    for each in cluster.api.pods.values():
        each["metadata"]["finalizers"] = [finalizer]
    return cluster


def test_a_queued_pod_that_was_never_placed_is_said_to_have_ended() -> None:
    # There is no kubelet to say so, and Kueue holds the names of the group until somebody has.
    cluster = kept(SimulatedCluster(queued(a_job())).settle())
    cluster.api.edit("runPolicy.suspend", True)
    cluster.settle()
    assert {pod["status"]["phase"] for pod in cluster.api.pods.values()} == {"Failed"}


def test_a_job_that_expires_leaves_no_pod_behind_that_its_queue_keeps() -> None:
    limits = {"ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 30, "nodeLostSeconds": 60}
    cluster = SimulatedCluster(queued(a_job().set("runPolicy", limits)))
    cluster.nodes.add("node-b")
    cluster.run().nodes.power_off("node-b")
    left, other = cluster.wait(31).run().api.pods
    assert cluster.api.pods[other]["status"]["phase"] == "Failed"  # and Kueue keeps it for the sake of the group
    cluster.api.delete_pod(left, 0)  # a person loses patience, in vain
    assert cluster.run().status.reason == "DeadlineExceeded" and not cluster.api.gone
    writes = cluster.wait(60).run().api.writes
    assert writes.index(f"end pod/{left}") < writes.index("delete job")


def test_what_a_kubelet_or_nobody_has_been_told_to_end_is_left_to_it() -> None:
    cluster = kept(SimulatedCluster(queued(a_launched_job())).run())
    cluster.api.edit("runPolicy.suspend", True)
    cluster.settle()
    plain = kept(SimulatedCluster(a_job()).settle(), "example.com/mine")
    plain.api.edit("runPolicy.suspend", True)
    plain.settle()
    assert not any(write.startswith("end ") for write in (*cluster.api.writes, *plain.api.writes))


def test_a_preemption_by_kueue_is_told_in_its_words_and_free() -> None:
    cluster = SimulatedCluster(queued(a_launched_job())).run()
    said = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvicted", "message": "Preempted by b"}
    for name in ("worker-0", "worker-1"):
        cluster.kubelet.condition(cluster.name(name), said)
    cluster.delete("worker-0", "worker-1").run_timers()
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (0, 1)
    assert cluster.status.last_restart is not None and cluster.status.last_restart.reason == "WorkloadEvicted"
    (note,) = (each for each in cluster.events if each.reason == "WorkloadEvicted")
    assert "worker-0 was disrupted: WorkloadEvicted (Preempted by b)" in note.message


def test_what_has_its_quota_and_finds_no_node_is_held_to_the_start_deadline() -> None:
    cluster = SimulatedCluster(queued(a_job().set("runPolicy.startDeadlineSeconds", 60))).settle()
    gate(cluster, "worker-0", "worker-1")
    cluster.wait(3600).settle()
    assert cluster.status.admitted_time is None
    # The condition keeps the time of its first reason, as Kubernetes has it.
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    for name in ("worker-0", "worker-1"):
        cluster.kubelet.condition(cluster.name(name), full)
    cluster.settle()
    cluster.forget()
    assert cluster.wait(59).settle().status.phase == "Starting"
    assert cluster.wait(2).settle().status.reason == "StartDeadlineExceeded"
    assert "cannot be scheduled: 0/3 nodes" in str(cluster.status.message)


# --- another controller


@pytest.mark.parametrize("spec", [None, {"replicaSpecs": "what the next version has"}], ids=["readable", "unreadable"])
def test_a_job_of_another_controller_is_left_alone(spec: dict[str, object] | None) -> None:
    cluster = guarded(grouped(a_job()).set("runPolicy.managedBy", "kueue.x-k8s.io/multikueue"))
    if spec:
        cluster.api.job["spec"] |= spec
    assert not cluster.step() and cluster.api.writes == []
    cluster.api.job["status"] = {"phase": "Running", "attempt": 3}
    assert not cluster.step()

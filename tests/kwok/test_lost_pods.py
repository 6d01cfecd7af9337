"""Pods that are deleted, evicted, drained or preempted: a disruption, charged to nobody, made good at once."""

import time

import pytest

from testbed.shell import LabError
from tests.support.control_plane.jobs import wait_until
from tests.support.control_plane.manifests import template
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.kwok.jobs import NewJob, SimulatedJob
from tests.support.kwok.nodes import ZONE, Node

MODES = pytest.mark.parametrize("mode", ["InPlace", pytest.param("Recreate", marks=pytest.mark.slow_fault)])


def budget(job: SimulatedJob, **rule: int | str) -> dict[str, int]:
    """Create a PodDisruptionBudget for the job's pods; return what the disruption controller makes of it."""
    selector = {"matchLabels": {"tftraining.dev/job-name": job.name}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"}}
    path = f"/apis/policy/v1/namespaces/{job.namespace}/poddisruptionbudgets"
    job.plane.request("POST", path, {**body, "spec": {"selector": selector, **rule}})

    def counted() -> dict[str, int]:
        status = job.plane.request("GET", f"{path}/budget").get("status") or {}
        return status if status.get("currentHealthy") == len(job.pods()) else {}

    return wait_until(counted, "the disruption controller has counted")


def is_made_good(job: SimulatedJob, lost: str, old: dict[str, str], reason: str) -> None:
    """The lost pod is another one (without launchers all are), nobody is charged, and the job ends well."""
    job.wait_for_another(lost, old[lost])
    attempt = 2 if job.raw()["spec"]["restartPolicy"]["mode"] == "Recreate" else 1
    job.train(attempt=attempt)
    kept = {name for name, uid in job.uids().items() if uid == old[name]}
    assert kept == (set() if attempt == 2 else set(old) - {lost})
    job.is_made_good(reason)


@pytest.mark.parametrize("mode", ["InPlace", "Recreate"])
@pytest.mark.parametrize("lost", ["job-worker-1", pytest.param("job-worker-0", marks=pytest.mark.slow_fault)])
def test_a_deleted_pod(new_job: NewJob, mode: str, lost: str) -> None:
    job = new_job(spec__restartPolicy={"mode": mode})
    job.train()
    old = job.uids()
    job.plane.kubectl("delete", "pod", lost, "--namespace", job.namespace)  # returns when that pod is gone
    is_made_good(job, lost, old, "PodDeleted")


@MODES
def test_a_pod_whose_object_is_just_gone(new_job: NewJob, mode: str) -> None:
    job = new_job(spec__restartPolicy={"mode": mode})
    job.train()
    old = job.uids()
    job.remove_pod("job-worker-1")
    is_made_good(job, "job-worker-1", old, "PodDeleted")


@MODES
def test_an_evicted_pod(new_job: NewJob, mode: str) -> None:
    job = new_job(spec__restartPolicy={"mode": mode})
    job.train()
    old = job.uids()
    job.evict("job-worker-1")
    is_made_good(job, "job-worker-1", old, "EvictionByEvictionAPI")


def test_a_budget_that_refuses_an_eviction(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old, version = job.uids(), job.raw()["metadata"]["resourceVersion"]
    budget(job, minAvailable=2)
    with pytest.raises(LabError, match=r"429 .*disruption budget"):
        job.evict("job-worker-1")
    assert (job.uids(), job.raw()["metadata"]["resourceVersion"]) == (old, version)
    job.finish()


def test_a_drained_node(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old, node = job.uids(), job.node_of("job-worker-1")
    job.plane.kubectl("drain", node.name, "--delete-emptydir-data", "--timeout=60s")
    is_made_good(job, "job-worker-1", old, "EvictionByEvictionAPI")
    assert node.name not in {pod["spec"]["nodeName"] for pod in job.pods().values()}


@pytest.mark.parametrize(("rule", "allowed"), [({"maxUnavailable": 1}, 1), ({"minAvailable": "100%"}, 0)])
def test_a_budget_reads_the_scale_of_the_job(new_job: NewJob, rule: dict[str, int | str], allowed: int) -> None:
    job = new_job()
    job.train()
    found = budget(job, **rule)
    assert (found["expectedPods"], found["disruptionsAllowed"]) == (2, allowed)
    job.finish()


def test_a_budget_that_reads_the_scale_knows_only_the_workers(new_job: NewJob) -> None:
    job = new_job(spec__replicaSpecs={"chief": {}, "worker": {"replicas": 2}})
    job.train(3)
    found = budget(job, maxUnavailable=1)
    assert (found["expectedPods"], found["disruptionsAllowed"]) == (2, 2), "docs/disruptions.md says what to write"
    job.finish(chief="chief-0")


def test_a_pod_that_is_preempted(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old, node = job.uids(), job.node_of("job-worker-1")
    urgent = f"urgent-{job.namespace}"
    priority = {"metadata": {"name": urgent}, "value": 1000}
    job.plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    spec = {
        "priorityClassName": urgent,
        "nodeSelector": {"kubernetes.io/hostname": node.name},
        "affinity": job.raw()["spec"]["template"]["spec"]["affinity"],  # not beside a training pod
        "containers": [{"name": "main", "image": "x"}],
    }
    pod = {"metadata": {"name": "intruder", "labels": {"tftraining.dev/role": "none"}}, "spec": spec}
    job.plane.request("POST", f"/api/v1/namespaces/{job.namespace}/pods", pod)
    is_made_good(job, "job-worker-1", old, "PreemptionByScheduler")
    assert node.name not in {pod["spec"]["nodeName"] for pod in job.pods().values()}


def test_a_finished_worker_that_is_drained_away_does_not_run_again(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy__mode="Recreate", spec__successPolicy="AllWorkers")
    job.train()
    node = job.node_of("job-worker-1")
    job.tell_program("job-worker-1", 0)
    wait_until(lambda: job.status()["replicas"]["worker"].get("succeeded") == 1, "worker-1 has finished")
    job.plane.kubectl("drain", node.name, "--delete-emptydir-data", "--timeout=60s")
    wait_until(lambda: set(job.pods()) == {"job-worker-0"}, "its pod is gone")
    job.finish()
    assert job.status()["restarts"] == {"counted": 0}


@MODES
def test_a_drained_node_with_several_pods_is_one_disruption(new_job: NewJob, nodes: list[Node], mode: str) -> None:
    for node in nodes[1:]:
        node.taint("later", "NoSchedule")
    together = template()
    together["spec"]["nodeSelector"] = {ZONE: nodes[0].zone}
    eight = {"worker": {"replicas": 8}}
    job = new_job(spec__template=together, spec__replicaSpecs=eight, spec__restartPolicy={"mode": mode})
    job.train(8)
    old = job.uids()
    time.sleep(1.1)  # pods tell their age in seconds
    for node in nodes[1:]:
        node.untaint()
    job.plane.kubectl("drain", nodes[0].name, "--delete-emptydir-data", "--timeout=60s")
    for pod, uid in old.items():
        job.wait_for_another(pod, uid)
    job.train(8, attempt=2 if mode == "Recreate" else 1)
    status = job.status()
    assert status["restarts"] == {"counted": 0, "disruptions": 1, "recreated": 1, "withoutProgress": 1}
    assert status["lastRestart"]["reason"] == "EvictionByEvictionAPI"
    job.finish()


def test_evictions_while_the_operator_is_down(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old = job.uids()
    operator.kill()
    job.plane.kubectl("delete", "pod", "job-worker-1", "--namespace", job.namespace)
    operator.start()
    is_made_good(job, "job-worker-1", old, "PodDeleted")

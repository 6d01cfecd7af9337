"""Nodes that are tainted, fall silent, are declared out of service or deleted; the controllers are the real ones.

A silent node is Unknown after `GRACE_SECONDS`, not after Kubernetes' 50 s.
"""

import time

import pytest

from tests.support.control_plane.jobs import wait_until
from tests.support.control_plane.operator_process import OperatorProcess
from tests.support.kwok.jobs import NewJob, SimulatedJob
from tests.support.kwok.nodes import Node

MODES = pytest.mark.parametrize("mode", ["InPlace", pytest.param("Recreate", marks=pytest.mark.slow_fault)])
LOST = "job-worker-1"
NEVER = 3600
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNREACHABLE = "node.kubernetes.io/unreachable"


def silent(node: Node) -> None:
    """Its kubelet stops; return when the node controller has noticed, and has taken back its pods' Ready."""
    node.silence()
    wait_until(lambda: node.ready() == "Unknown", f"node {node.name} is Unknown")


def is_made_good_elsewhere(job: SimulatedJob, node: Node, old: str, *reasons: str, lost: str = LOST) -> None:
    """The lost pod is another one on another node, nobody is charged, and the job ends well."""
    job.wait_for_another(lost, old)
    job.train(attempt=2 if job.raw()["spec"]["restartPolicy"]["mode"] == "Recreate" else 1)
    assert job.node_of(lost).name != node.name
    job.is_made_good(*(reasons or ("NodeLost",)))


@MODES
def test_a_taint_that_evicts(new_job: NewJob, mode: str) -> None:
    job = new_job(spec__restartPolicy={"mode": mode})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    node.taint("maintenance")
    is_made_good_elsewhere(job, node, old, "DeletionByTaintManager")


@pytest.mark.parametrize(
    ("mode", "lost"),
    [("InPlace", "job-worker-0"), pytest.param("Recreate", "job-worker-1", marks=pytest.mark.slow_fault)],
)
def test_a_node_that_stays_silent(new_job: NewJob, mode: str, lost: str) -> None:
    job = new_job(spec__restartPolicy={"mode": mode}, spec__runPolicy={"nodeLostSeconds": NEVER})
    job.train()
    old, node = job.uids()[lost], job.node_of(lost)
    silent(node)
    status = job.wait_for("Running", reason="NodeNotReady", ready="1/2")
    assert status["message"].startswith(f"{lost.removeprefix('job-')}: node {node.name} has not been ready since ")
    job.patch({"spec": {"runPolicy": {"nodeLostSeconds": 2}}})
    is_made_good_elsewhere(job, node, old, lost=lost)
    node.speak()
    node.wait_until_usable()


def test_a_node_that_is_heard_again_in_time(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": NEVER})
    job.train()
    old, node = job.uids(), job.node_of(LOST)
    silent(node)
    job.wait_for("Running", reason="NodeNotReady", ready="1/2")
    node.speak()
    node.wait_until_usable()
    job.train()
    assert (job.uids(), job.status()["restarts"]) == (old, {"counted": 0})
    job.finish()


def test_a_silent_node_that_is_declared_out_of_service(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": NEVER})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    silent(node)
    job.wait_for("Running", reason="NodeNotReady")
    node.taint(OUT_OF_SERVICE)
    # The garbage collector, which comes every 20 s, may take the pod in the moment before the operator gives it up.
    is_made_good_elsewhere(job, node, old, "NodeLost", "PodDeleted")


@MODES
def test_a_node_that_is_deleted(new_job: NewJob, mode: str) -> None:
    job = new_job(spec__restartPolicy={"mode": mode}, spec__runPolicy={"nodeLostSeconds": NEVER})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    node.delete()
    is_made_good_elsewhere(job, node, old)


def test_a_node_that_is_deleted_while_the_operator_is_down(new_job: NewJob, operator: OperatorProcess) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    operator.kill()
    node.delete()
    operator.start()
    is_made_good_elsewhere(job, node, old)


def test_a_pod_that_is_evicted_from_a_node_that_does_not_answer(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": NEVER})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    silent(node)
    job.evict(LOST)
    assert "deletionTimestamp" in job.pods()[LOST]["metadata"]
    job.patch({"spec": {"runPolicy": {"nodeLostSeconds": 4}}})
    is_made_good_elsewhere(job, node, old, "EvictionByEvictionAPI")


def test_all_nodes_silent_is_an_outage_of_the_control_plane(new_job: NewJob, nodes: list[Node]) -> None:
    patience = 4
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": NEVER})
    job.train()
    old = job.uids()
    for node in nodes:
        node.silence()
    wait_until(lambda: {node.ready() for node in nodes} == {"Unknown"}, "all nodes are Unknown")
    job.wait_for("Running", reason="NodeNotReady", ready="0/2")
    job.patch({"spec": {"runPolicy": {"nodeLostSeconds": patience}}})
    time.sleep(patience + 1)
    assert job.uids() == old
    for node in nodes:
        node.speak()
    job.train()
    assert (job.uids(), job.status()["restarts"]) == (old, {"counted": 0})
    job.finish()


def test_a_node_that_registers_anew_under_its_name(new_job: NewJob, nodes: list[Node]) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    node.delete()
    job.wait_for_another(LOST, old)
    node.create()
    node.wait_until_usable()
    job.train()
    for other in nodes:
        if other.name not in (node.name, job.node_of("job-worker-0").name):
            other.delete()
    wait_until(lambda: job.node_of(LOST).name == node.name, "worker-1 is on the node of that name")
    job.train()
    assert job.status()["restarts"].items() >= {"counted": 0, "disruptions": 2}.items()
    job.finish()


@pytest.mark.slow_fault
def test_a_suspended_job_whose_node_is_silent(new_job: NewJob) -> None:
    job = new_job(spec__restartPolicy={"mode": "InPlace"}, spec__runPolicy={"nodeLostSeconds": 3})
    job.train()
    old, node = job.uids()[LOST], job.node_of(LOST)
    silent(node)
    job.patch({"spec": {"runPolicy": {"suspend": True}}})
    job.wait_for("Suspended")
    wait_until(lambda: job.pods() == {}, "both pods are gone, one by force")
    job.patch({"spec": {"runPolicy": {"suspend": False}}})
    job.train(attempt=2)
    assert job.uids()[LOST] != old and job.node_of(LOST).name != node.name
    assert job.status()["restarts"] == {"counted": 0}
    job.finish()


@pytest.mark.slow_fault
def test_a_job_that_ends_while_a_node_is_silent(new_job: NewJob) -> None:
    job = new_job(
        spec__restartPolicy={"mode": "InPlace"},
        spec__runPolicy={"nodeLostSeconds": 3},
        spec__storage={"volume": {"nfs": {"server": "files", "path": "/"}}},
    )
    job.train()
    silent(job.node_of(LOST))
    job.finish()
    wait_until(lambda: job.status().get("cleanup", {}).get("removed") == 0, "cleaned when worker-1 is given up")
    wait_until(lambda: LOST not in job.pods(), "its pod is gone")


def test_the_cleanup_is_done_elsewhere_when_its_node_dies(new_job: NewJob, nodes: list[Node]) -> None:
    job = new_job(spec__storage={"volume": {"nfs": {"server": "files", "path": "/"}}})
    job.train()
    job.tell_program("job-worker-0", 0)
    wait_until(lambda: "job-cleanup" in job.pods(), "the cleanup")
    job.node_of("job-cleanup").delete()
    wait_until(lambda: job.condition("Cleaned").get("status") == "True", "cleaned all the same")


def test_a_gang_waits_for_a_node_and_says_so(new_job: NewJob, nodes: list[Node]) -> None:
    for node in nodes[1:]:
        node.delete()
    job = new_job()
    status = job.wait_for("Starting", reason="PodsNotReady")
    assert "cannot be scheduled: 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity" in status["message"]
    nodes[1].create()
    job.train()
    job.finish()

"""status.avoidedNodes: which nodes new pods avoid, which pods they are, and what is told of it."""

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.support.crd import definition
from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.support.simulated_cluster.suspension import resume, suspend
from tests.unit.operator.plan.test_kueue_successors import queued
from tftraining_api.manifests.affinity import PREFERRED

WHY = "worker-1 failed 3 times in a row, and no other member"
TERM = {
    "weight": 100,
    "preference": {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-a"]}]},
}
ECC = "InternalError: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"
AWAY = "new pods avoid node-a, if another node has room"
TRACEBACK = "Traceback (most recent call last):\nValueError: boom\n"
OWN: dict[str, Any] = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
    "nodeAffinity": {
        PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]
    },
}


def running(job: JobBuilder | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster((job or a_launched_job()).max_restarts(100)).run()
    cluster.events.clear()
    return cluster.wait(5)


def leave(cluster: SimulatedCluster, member: str = "worker-1", why: str = WHY) -> SimulatedCluster:
    """The launcher of this member leaves its node."""
    ledger = {"processFailures": 3, "withoutProgress": 3}
    told = {"verdict": "", "reason": "NodeSuspected", "message": why, "member": "worker-1", "ledger": ledger}
    return cluster.exit(member, code=143, message=f"tftraining/1 {json.dumps(told)}\n")


def terms(cluster: SimulatedCluster, pod: str = "worker-1") -> list[Any]:
    """The preferred terms of node affinity of the pod."""
    affinity = cluster.api.pods[cluster.name(pod)]["spec"].get("affinity") or {}
    return list((affinity.get("nodeAffinity") or {}).get(PREFERRED) or [])


def avoided(cluster: SimulatedCluster) -> list[str]:
    return [each.name for each in cluster.status.avoided_nodes]


def test_a_member_that_leaves_its_node_gets_a_pod_alone_that_avoids_it_and_it_is_free() -> None:
    cluster = running()
    kept = cluster.api.pods["mnist-worker-0"]["metadata"]["uid"]
    leave(cluster).settle()
    status = cluster.status
    assert (status.phase, status.reason, status.attempt) == ("Restarting", "NodeSuspected", 1)
    words = f"{WHY}; recreating its pod in 4 s; other members are waiting; {AWAY}"
    assert (status.message, [each.message for each in cluster.events]) == (words, [words])
    (node,) = status.avoided_nodes
    assert (node.name, node.replica, node.why, node.used_by) == ("node-a", "worker-1", WHY, None)
    assert node.until - cluster.now == timedelta(hours=24)
    cluster.nodes.add("node-b")
    cluster.run_timers()
    assert (cluster.status.phase, terms(cluster), terms(cluster, "worker-0")) == ("Running", [TERM], [])
    assert cluster.api.pods["mnist-worker-0"]["metadata"]["uid"] == kept
    restarts = cluster.status.restarts
    assert (restarts.counted, restarts.pod_failures, restarts.disruptions, restarts.recreated) == (3, 0, 0, 1)
    assert cluster.status.last_restart is not None and cluster.status.last_restart.reason == "NodeSuspected"


def test_a_long_reason_is_cut_as_the_definition_bounds_it() -> None:
    (node,) = leave(running(), why="x" * 600).settle().status.avoided_nodes
    fields = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert node.why == "x" * fields["avoidedNodes"]["items"]["properties"]["why"]["maxLength"]


def test_the_users_own_affinity_stays() -> None:
    cluster = running(a_launched_job().set("template.spec.affinity", OWN))
    assert cluster.api.pods["mnist-worker-1"]["spec"]["affinity"] == OWN
    leave(cluster).run_timers()
    own = OWN["nodeAffinity"][PREFERRED]
    wanted = {**OWN, "nodeAffinity": {PREFERRED: [*own, TERM]}}
    assert cluster.api.pods["mnist-worker-1"]["spec"]["affinity"] == wanted


def test_where_the_scheduler_goes_there_all_the_same_it_is_told_once() -> None:
    cluster = leave(running()).run_timers()
    assert [each.used_by for each in cluster.status.avoided_nodes] == ["worker-1"]
    told = [each.message for each in cluster.events if each.reason == "AvoidedNodeUsed"]
    assert told == [f"worker-1 was scheduled on node-a: {WHY}"]
    assert not cluster.wait(60).step(), "and nothing more is written"


def test_every_new_pod_of_the_job_avoids_it_for_a_day_also_after_a_suspension() -> None:
    cluster = leave(running()).run_timers()
    cluster.delete("worker-0").run_timers()
    assert terms(cluster, "worker-0") == [TERM]
    resume(suspend(cluster).run_timers()).run_timers()
    assert (cluster.status.attempt, terms(cluster), terms(cluster, "worker-0")) == (2, [TERM], [TERM])
    cluster.wait(24 * 3600).delete("worker-0").run_timers()
    assert terms(cluster, "worker-0") == []
    leave(cluster).run_timers()
    assert avoided(cluster) == ["node-a"], "each node once"


def test_no_more_than_sixteen_nodes_are_kept_the_last_ones() -> None:
    cluster = running()
    for number in range(18):
        cluster.api.pods["mnist-worker-1"]["spec"]["nodeName"] = f"node-{number}"
        cluster.nodes.add(f"node-{number}")
        leave(cluster).run_timers()
    assert avoided(cluster) == [f"node-{number}" for number in range(2, 18)]
    assert len(terms(cluster)[0]["preference"]["matchFields"]) == 16


def test_a_pod_in_a_queue_of_kueue_is_made_anew_as_it_was() -> None:
    cluster = leave(running(queued())).run_timers()
    assert cluster.pods == ["worker-0", "worker-1-r1"]
    assert (avoided(cluster), terms(cluster, "worker-1-r1")) == ([], [])


def test_a_definition_that_drops_the_field_leaves_the_choice_to_the_scheduler_and_makes_no_loop() -> None:
    cluster = running()
    put = cluster.api.put_status

    def dropping(version: str, status: Any) -> None:
        put(version, status)
        cluster.api.job["status"].pop("avoidedNodes", None)

    cluster.api.put_status = dropping  # type: ignore[method-assign]
    leave(cluster).run_timers()
    assert (cluster.status.phase, avoided(cluster), terms(cluster)) == ("Running", [], [])
    assert not cluster.wait(1).step()


# --- pods that fail as a whole, behind launchers and without


def fails(cluster: SimulatedCluster, member: str = "worker-1", message: str = "", **how: Any) -> SimulatedCluster:
    return cluster.wait(40).exit(member, message=message, **{"code": 139, **how}).run_timers()


@pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_the_third_time_in_a_row_the_operator_counts_too(new_job: Any) -> None:
    cluster = running(new_job())
    assert avoided(fails(fails(cluster))) == []
    assert cluster.status.restarts.same_member is not None and cluster.status.restarts.same_member.count == 2
    assert avoided(fails(cluster)) == ["node-a"]
    assert cluster.status.restarts.same_member is None
    assert TERM in terms(cluster)


@pytest.mark.parametrize("new_job", [a_job, a_launched_job], ids=["Recreate", "InPlace"])
def test_words_of_the_hardware_need_no_row(new_job: Any) -> None:
    assert avoided(fails(running(new_job()), message=f"Traceback\n{ECC}\n")) == ["node-a"]


@pytest.mark.parametrize(
    "how",
    [{"code": 137, "reason": "OOMKilled"}, {"code": 1, "message": TRACEBACK}],
    ids=["OOMKilled", "the same exception"],
)
def test_what_another_node_would_not_cure_does_not_count(how: dict[str, Any]) -> None:
    cluster = running(a_job().set("restartPolicy.sameFailureLimit", 100))
    for _ in range(5):
        fails(cluster, **how)
    assert (cluster.status.phase, avoided(cluster)) == ("Running", [])


def test_members_that_fail_together_blame_no_node() -> None:
    cluster = running()
    for _ in range(5):
        cluster.wait(40).exit("worker-0", "worker-1", code=139).run_timers()
    assert (cluster.status.phase, avoided(cluster)) == ("Running", [])


def test_a_limit_of_zero_is_off_and_a_suspension_begins_a_new_row() -> None:
    cluster = running(a_job().set("restartPolicy.sameMemberLimit", 0))
    for _ in range(4):
        fails(cluster, message=ECC)
    assert avoided(cluster) == []
    cluster = fails(fails(running(a_job())))
    resume(suspend(cluster).run_timers()).run_timers()
    assert avoided(fails(cluster)) == []

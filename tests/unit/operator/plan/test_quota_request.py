"""What a gang asks of the quotas, and does while it has to wait (who waits: tests/unit/operator/cluster)."""

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.test_quota import hold as refuse
from tftraining_operator.model.observed import QuotaHold
from tftraining_operator.plan.step import QuotaAsk

FULL = QuotaHold("2 pods wait for room in the quota q: they need pods=2 of 1")


def asked(cluster: SimulatedCluster) -> tuple[list[str], bool, bool] | None:
    ask: QuotaAsk | None = cluster.plan().quota
    return ([str(each) for each in ask.replicas], ask.begins, ask.holds) if ask else None


def test_a_gang_that_waits_has_no_pod_and_uses_no_start_deadline() -> None:
    cluster = SimulatedCluster(a_launched_job().set("runPolicy.startDeadlineSeconds", 60))
    assert asked(cluster) == (["worker-0", "worker-1"], True, False)
    cluster.quota = FULL
    cluster.run().wait(3600).run()
    assert (cluster.status.phase, cluster.status.reason, cluster.pods) == ("Starting", "WaitingForQuota", [])
    assert cluster.status.message == FULL.message and cluster.timer is not None
    cluster.quota = None
    assert cluster.run().status.phase == "Running" and asked(cluster) is None


@pytest.mark.parametrize("launched", [False, True], ids=["Recreate", "InPlace"])
def test_a_gang_gives_back_its_pods_without_a_charge(launched: bool) -> None:
    job = a_launched_job() if launched else a_job()
    cluster = SimulatedCluster(job.workers(3))
    cluster.api.refusals["pod/mnist-worker-2"] = (403, "exceeded quota: q, requested: pods=1, used: pods=2, limited: 2")
    cluster.settle()
    assert cluster.pods == ["worker-0", "worker-1"] and asked(cluster) == (["worker-2"], True, True)
    cluster.api.refusals.clear()
    cluster.refusal, cluster.quota = None, QuotaHold("older first", gives_back=True)
    cluster.step()
    cluster.quota = None
    cluster.kubelet.remove_deleted()
    assert (cluster.pods == [] and cluster.status.reason == "Stopping") or cluster.status.attempt == 2
    assert cluster.run_timers().status.phase == "Running" and len(cluster.pods) == 3
    assert (cluster.status.restarts.counted, cluster.status.restarts.disruptions) == (0, 0)


@pytest.mark.parametrize("launched", [False, True], ids=["Recreate", "InPlace"])
def test_a_gang_that_has_trained_never_gives_back(launched: bool) -> None:
    cluster = SimulatedCluster(a_launched_job() if launched else a_job()).run().wait(60)
    cluster.delete("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    found = cluster.plan().quota
    if launched:
        assert found is None or (not found.begins and found.holds), "a single successor waits"
    else:
        assert found is None or not found.holds, "a new attempt, of which no pod is there"


def test_a_gang_whose_new_pods_are_of_the_second_of_its_restart_has_not_begun() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().wait(0.4)
    cluster.api.refusals["pod/mnist-worker-2"] = (403, "exceeded quota: q, requested: pods=1, used: pods=2, limited: 2")
    cluster.exit("worker-1").settle().kubelet.remove_deleted()
    cluster.settle()
    assert cluster.status.phase == "Restarting" and asked(cluster) == (["worker-2"], True, True)


def test_the_smallest_gang_is_enough() -> None:
    cluster = SimulatedCluster(a_launched_job().workers(4).set("minReplicas", 2))
    assert asked(cluster) == (["worker-0", "worker-1"], True, False)


def test_a_queue_of_kueue_has_quotas_of_its_own() -> None:
    assert asked(SimulatedCluster(a_launched_job().labelled(**{"kueue.x_k8s.io__queue_name": "q"}))) is None


def test_a_refusal_by_a_quota_asks_for_the_rest_at_once() -> None:
    cluster = SimulatedCluster(a_launched_job().workers(20))
    refuse(cluster, 9)
    cluster.settle()
    found = cluster.plan().quota
    assert found is not None and len(found.replicas) == 20 and not found.holds

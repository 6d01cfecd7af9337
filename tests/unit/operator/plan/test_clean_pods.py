"""cleanPodPolicy: which pods and whether the Service stay when a job is done."""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.conftest import ended, failed, succeeded


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        ("Running", ["worker-0", "worker-1"], []),
        ("All", [], []),
        ("None", ["worker-0", "worker-1", "worker-2"], ["mnist"]),
    ],
)
def test_after_a_success_with_a_worker_done_and_one_running(policy: str, pods: list[str], services: list[str]) -> None:
    cluster = SimulatedCluster(a_job().workers(3).set("runPolicy.cleanPodPolicy", policy)).run()
    cluster.exit("worker-1", code=0).exit("worker-0", code=0).run()
    assert (cluster.pods, list(cluster.api.services)) == (pods, services)


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        ("Running", ["worker-1"], []),
        ("All", [], []),
        ("None", ["worker-0", "worker-1"], ["mnist"]),
    ],
)
def test_after_a_failure(policy: str, pods: list[str], services: list[str]) -> None:
    cluster = (
        SimulatedCluster(a_job().max_restarts(0).set("runPolicy.cleanPodPolicy", policy)).run().exit("worker-1").run()
    )
    assert (cluster.pods, list(cluster.api.services)) == (pods, services)


def test_the_service_stays_as_long_as_a_pod_may_still_use_it() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).settle()
    assert list(cluster.api.services) == ["mnist"]
    cluster.kubelet.remove_deleted()
    assert cluster.settle().api.services == {}


def test_the_pod_of_a_chief_that_has_just_exited_is_kept_for_its_log() -> None:
    # The kubelet reports the exit some moments before it moves the pod's phase.
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0)
    cluster.api.pods["mnist-worker-0"]["status"]["phase"] = "Running"
    assert cluster.run().pods == ["worker-0"]


def test_what_the_counts_say_at_the_end() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=0).run()
    workers = cluster.status.replicas["worker"]
    assert (workers.desired, workers.active, workers.ready, workers.succeeded, workers.highest) == (3, 0, 0, 1, 2)


def test_pods_on_their_way_out_still_count() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=0).settle()
    assert cluster.status.replicas["worker"].active == 2


def test_leftovers_of_an_older_attempt_go_under_running() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").run().exit("worker-1", code=1)
    cluster.api.pods["mnist-worker-1"]["metadata"]["labels"]["tftraining.dev/attempt"] = "1"
    cluster.exit("worker-0", code=0).run()
    assert (cluster.status.phase, cluster.pods) == ("Succeeded", ["worker-0"])


def test_none_keeps_the_service_also_when_every_pod_is_done() -> None:
    cluster = SimulatedCluster(a_job().set("runPolicy.cleanPodPolicy", "None")).run()
    cluster.exit("worker-1", "worker-0", code=0).run()
    assert list(cluster.api.services) == ["mnist"]


@pytest.mark.parametrize("policy", ["Running", "All", "None"])
def test_the_last_lines_of_the_first_failure_are_kept_without_its_pod(job: JobBuilder, policy: str) -> None:
    cluster = SimulatedCluster(job.max_restarts(0).set("runPolicy.cleanPodPolicy", policy)).run()
    failed(cluster)
    ended(cluster)
    failure = cluster.status.failure
    assert failure is not None
    assert (failure.pod, failure.exit_code, failure.log_tail) == ("mnist-worker-1", 3, "the last line")


def test_the_service_is_deleted_after_the_last_pod(job: JobBuilder) -> None:
    cluster = SimulatedCluster(job.max_restarts(0)).run()
    succeeded(cluster)
    assert ended(cluster).api.services == {}


def test_every_child_is_garbage_collected_with_the_job() -> None:
    # Every child names the job as its controller, so the garbage collector deletes it.
    cluster = SimulatedCluster(a_launched_job().storage())
    service = cluster.plan().create_service
    cluster.step()
    step = cluster.plan()
    children = [service, step.create_secret, *step.create_pods]
    assert len(children) == 4
    for child in children:
        assert child is not None
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], "blockOwnerDeletion" in owner) == ("job-uid", True, False)
        assert "finalizers" not in child["metadata"]

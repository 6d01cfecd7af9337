"""Row: completion. Who decides, that what is done is never done again, and that no side-car holds up the end."""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.conftest import until_it_cleans

DONE_HERE = 'tftraining/1 {"verdict": "Succeeded"}\n'


def finish(cluster: SimulatedCluster) -> SimulatedCluster:
    """The chief's program has done its work."""
    if cluster.launched:
        cluster.launchers.finish()
        return cluster
    return cluster.exit("worker-0", code=0)


def clean(cluster: SimulatedCluster) -> SimulatedCluster:
    """The job's end, its cleanup included."""
    until_it_cleans(cluster)
    if "cleanup" in cluster.pods:
        cluster.exit("cleanup", code=0, message='{"removed": 1}').run_timers()
    return cluster


# --- who decides


def test_the_chief_decides(cluster: SimulatedCluster) -> None:
    assert clean(finish(cluster)).status.reason == "ChiefSucceeded"


def test_a_worker_does_not(cluster: SimulatedCluster) -> None:
    cluster.exit("worker-1", code=0, message=DONE_HERE if cluster.launched else "")
    if cluster.launched:
        # It says so for all: its launcher heard it from the chief's.
        assert cluster.run().status.phase == "Succeeded"
    else:
        assert cluster.run().status.phase == "Running"


def test_all_workers_decide_where_the_job_says_so() -> None:
    cluster = SimulatedCluster(a_job().set("successPolicy", "AllWorkers")).run()
    cluster.exit("worker-0", code=0).run()
    assert cluster.status.phase == "Running"
    assert cluster.exit("worker-1", code=0).run().status.reason == "AllWorkersSucceeded"


# --- never again


def test_done_pods_that_are_deleted_do_not_run_again(cluster: SimulatedCluster) -> None:
    clean(finish(cluster))
    cluster.kubelet.force_delete(*list(cluster.api.pods))
    cluster.forget()
    created = [each for each in cluster.api.writes if each.startswith("create")]
    assert clean(cluster).status.phase == "Succeeded"
    assert [each for each in cluster.api.writes if each.startswith("create")] == created


def test_a_worker_that_has_finished_does_not_run_again_while_the_others_train() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run()
    cluster.delete("worker-1")
    cluster.forget()
    assert (cluster.run().pods, cluster.status.attempt) == (["worker-0", "worker-2"], 1)


def test_all_of_it_while_the_operator_was_down(cluster: SimulatedCluster) -> None:
    finish(cluster).wait(3600).forget()
    assert clean(cluster).status.phase == "Succeeded"
    assert cluster.status.restarts.recreated == 0


def test_even_if_every_pod_was_deleted_meanwhile() -> None:
    # Nothing in the cluster tells any more; the verdict in the job's directory does.
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.finish()
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    cluster.wait(3600).forget()
    cluster.run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.launchers.round == 2, "the launchers met once more, and no program ran"
    assert (cluster.status.restarts.counted, cluster.status.failure) == (0, None)


def test_a_job_of_the_same_name_does_not_take_it_for_its_own() -> None:
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.finish()
    cluster.launchers.verdict_in = {"another-uid": "Succeeded"}
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    assert cluster.run().status.phase == "Running"


@pytest.mark.parametrize("field", ["replicaSpecs.worker.replicas", "restartPolicy.maxRestarts"])
def test_no_change_of_the_spec_wakes_it(cluster: SimulatedCluster, field: str) -> None:
    clean(finish(cluster))
    cluster.api.edit(field, 7)
    assert clean(cluster).status.phase == "Succeeded"


# --- side-cars


@pytest.fixture(params=["injected", "native"])
def proxied(job: JobBuilder, request: pytest.FixtureRequest) -> SimulatedCluster:
    """A gang whose pods have a proxy beside the program: a container of its own, or an init container that stays."""
    if request.param == "injected":
        job.beside(name="istio-proxy", image="proxy:1")
    else:
        job.pod(initContainers=[{"name": "istio-proxy", "image": "proxy:1", "restartPolicy": "Always"}])
    cluster = SimulatedCluster(job.max_restarts(0)).run()
    for pod in cluster.api.pods.values():
        if request.param == "native":
            pod["status"]["initContainerStatuses"] = [{"name": "istio-proxy", "ready": True, "state": {"running": {}}}]
    return cluster


def test_the_main_container_decides_and_the_proxy_does_not_outlive_it(proxied: SimulatedCluster) -> None:
    finish(proxied)
    for pod in proxied.api.pods.values():
        if len(pod["status"]["containerStatuses"]) > 1:
            pod["status"]["phase"] = "Running"  # the kubelet ends only native side-cars by itself
    assert clean(proxied).status.phase == "Succeeded"
    assert not [name for name in proxied.pods if proxied.api.pods[proxied.name(name)]["status"]["phase"] == "Running"]


def test_a_proxy_that_fails_is_no_failure_of_the_job(proxied: SimulatedCluster) -> None:
    cluster = proxied
    for pod in cluster.api.pods.values():
        statuses = pod["status"].get("initContainerStatuses") or pod["status"]["containerStatuses"][1:]
        statuses[0]["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert cluster.run().status.phase == "Running"
    assert clean(finish(cluster)).status.phase == "Succeeded"


def test_the_failure_of_the_program_is_not_blamed_on_the_proxy_that_ends_with_it(proxied: SimulatedCluster) -> None:
    cluster = proxied.exit("worker-1", code=137, reason="OOMKilled")
    status = cluster.api.pods["mnist-worker-1"]["status"]
    status["phase"] = "Failed"
    status["initContainerStatuses"] = [
        {"name": "istio-proxy", "state": {"terminated": {"exitCode": 143, "reason": "Error"}}}
    ]
    cluster.run()
    assert cluster.status.phase == "Failed"
    assert cluster.status.failure is not None and cluster.status.failure.reason == "OOMKilled"

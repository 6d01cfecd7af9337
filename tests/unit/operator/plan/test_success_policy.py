"""successPolicy. When a job has succeeded: the chief or all workers decide, a finished program never runs again, and no
side-car delays the end.
"""

import pytest

from tests.support.simulated_cluster.builders import JobBuilder, a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.conftest import ended, succeeded

DONE_HERE = 'tftraining/1 {"verdict": "Succeeded"}\n'


# --- successPolicy Chief, without launchers


def test_the_trajectory_of_a_success() -> None:
    cluster = SimulatedCluster(a_job()).run().wait(60)
    cluster.trajectory.clear()
    cluster.exit("worker-0", code=0).settle()
    assert cluster.trajectory[0] == "Succeeded 2/2 ChiefSucceeded"
    assert cluster.status.message == "worker-0 (the chief) has succeeded"
    assert cluster.status.is_true("Succeeded")
    assert cluster.status.condition("Failed") is None
    assert not cluster.status.is_true("Ready")
    assert cluster.status.completion_time == cluster.now
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Normal", "Succeeded")


def test_times_are_whole_seconds_as_kubernetes_has_them() -> None:
    status = SimulatedCluster(a_job()).wait(0.4).run().wait(0.7).exit("worker-0", code=0).run().status
    times = [status.start_time, status.completion_time, *(each.last_transition_time for each in status.conditions)]
    assert all(time is not None and time.microsecond == 0 for time in times)


def test_the_chief_finishes_first() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=0).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.pods == ["worker-0"]
    assert cluster.status.restarts.recreated == 0


def test_a_worker_finishes_first() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1", code=0).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "2/2")
    assert cluster.status.replicas["worker"].succeeded == 1
    cluster.wait(60).exit("worker-0", code=0).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.pods == ["worker-0", "worker-1"]


def test_the_task_named_chief_decides() -> None:
    cluster = SimulatedCluster(a_job().chief()).run().exit("worker-0", "worker-1", code=0).run()
    assert cluster.status.phase == "Running"
    assert cluster.exit("chief-0", code=0).run().status.phase == "Succeeded"


def test_a_worker_that_has_finished_and_is_deleted_never_runs_again() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run().delete("worker-1")
    cluster.forget()
    assert cluster.run().pods == ["worker-0", "worker-2"]
    assert (cluster.status.phase, cluster.status.ready, cluster.status.attempt) == ("Running", "3/3", 1)
    assert not cluster.step()
    assert cluster.exit("worker-0", code=0).run().status.phase == "Succeeded"
    assert cluster.status.replicas["worker"].succeeded == 2


def test_those_that_finish_after_a_deletion_do_not_bring_the_deleted_back() -> None:
    cluster = SimulatedCluster(a_job().workers(4)).run().exit("worker-2", code=0).run().delete("worker-2").run()
    cluster.exit("worker-1", code=0).run().delete("worker-1").run()
    assert (cluster.pods, cluster.status.attempt) == (["worker-0", "worker-3"], 1)
    assert cluster.status.replicas["worker"].completed_indexes == "1-2"
    cluster.exit("worker-3", code=0).run()
    assert (cluster.status.attempt, cluster.status.replicas["worker"].succeeded) == (1, 3)


def test_a_new_attempt_runs_everybody_again() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run().delete("worker-1").run()
    cluster.exit("worker-2", code=1).run()
    assert (cluster.pods, cluster.status.ready) == (["worker-0", "worker-1", "worker-2"], "3/3")
    assert cluster.status.replicas["worker"].completed_indexes == ""


def test_a_worker_that_is_lost_beside_one_that_has_finished_is_a_disruption() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1", code=0).run().delete("worker-1").run()
    cluster.kubelet.force_delete("mnist-worker-2")
    cluster.run()
    assert (cluster.status.attempt, cluster.pods) == (2, ["worker-0", "worker-1", "worker-2"])
    assert cluster.status.restarts.counted == 0


def test_a_success_counts_though_a_worker_failed_in_the_same_moment() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-0", code=0).exit("worker-1", code=1).run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.restarts.counted == 0


def test_the_others_may_fail_once_the_chief_is_done() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=0).settle()
    cluster.exit("worker-1").run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.status.failure is None


def test_a_deleted_chief_that_leaves_politely_is_no_success() -> None:
    cluster = SimulatedCluster(a_job()).run().delete("worker-0").exit("worker-0", code=0).run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


def test_an_evicted_chief_that_leaves_politely_is_no_success() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.kubelet.evict("mnist-worker-0", code=0)
    assert (cluster.run().status.phase, cluster.status.attempt) == ("Running", 2)


def test_a_chief_that_had_finished_before_it_was_deleted_is_a_success() -> None:
    cluster = SimulatedCluster(a_job().beside(name="logs", image="logs:1")).run()
    cluster.exit("worker-0", code=0).wait(5).delete("worker-0").settle()
    assert cluster.status.phase == "Succeeded"


def test_a_failed_job_never_runs_again_when_max_restarts_is_raised() -> None:
    failed = SimulatedCluster(a_job().max_restarts(0)).run().exit("worker-1").run()
    failed.api.edit("restartPolicy.maxRestarts", 5)
    assert failed.run().status.phase == "Failed"


# --- successPolicy Chief, in both modes


def test_a_worker_does_not_decide(cluster: SimulatedCluster) -> None:
    cluster.exit("worker-1", code=0, message=DONE_HERE if cluster.launched else "")
    if cluster.launched:
        # The worker's launcher repeats the result of the chief's launcher.
        assert cluster.run().status.phase == "Succeeded"
    else:
        assert cluster.run().status.phase == "Running"


def test_the_log_of_a_failed_job_is_that_of_the_member_at_fault() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    for name in ("worker-0", "worker-1"):
        head = '{"verdict": "Failed", "reason": "Error", "member": "worker-1"}'
        cluster.exit(name, message=f"tftraining/1 {head}\nlog of {name}\n")
    failure = cluster.run().status.failure
    assert failure is not None and (failure.pod, failure.log_tail) == ("mnist-worker-1", "log of worker-1")


def test_done_pods_that_are_deleted_do_not_run_again(cluster: SimulatedCluster) -> None:
    ended(succeeded(cluster))
    cluster.kubelet.force_delete(*list(cluster.api.pods))
    cluster.forget()
    created = [each for each in cluster.api.writes if each.startswith("create")]
    assert ended(cluster).status.phase == "Succeeded"
    assert [each for each in cluster.api.writes if each.startswith("create")] == created


def test_a_success_while_the_operator_was_down(cluster: SimulatedCluster) -> None:
    succeeded(cluster).wait(3600).forget()
    assert (ended(cluster).status.phase, cluster.status.reason) == ("Succeeded", "ChiefSucceeded")
    assert cluster.status.restarts.recreated == 0


def test_a_success_while_the_operator_was_down_and_every_pod_was_deleted() -> None:
    # Only the verdict in the job's directory is left.
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.finish()
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    cluster.wait(3600).forget()
    cluster.run()
    assert cluster.status.phase == "Succeeded"
    assert cluster.launchers.round == 2, "the launchers met once more, and no program ran"
    assert (cluster.status.restarts.counted, cluster.status.failure) == (0, None)


def test_the_verdict_of_an_earlier_job_of_the_same_name_does_not_count() -> None:
    cluster = SimulatedCluster(a_launched_job().storage()).run()
    cluster.launchers.finish()
    cluster.launchers.verdict_in = {"another-uid": "Succeeded"}
    cluster.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    assert cluster.run().status.phase == "Running"


@pytest.mark.parametrize("field", ["replicaSpecs.worker.replicas", "restartPolicy.maxRestarts"])
def test_no_change_of_the_spec_starts_a_finished_job_again(cluster: SimulatedCluster, field: str) -> None:
    ended(succeeded(cluster))
    cluster.api.edit(field, 7)
    assert ended(cluster).status.phase == "Succeeded"


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
    succeeded(proxied)
    for pod in proxied.api.pods.values():
        if len(pod["status"]["containerStatuses"]) > 1:
            pod["status"]["phase"] = "Running"  # the kubelet ends only native side-cars by itself
    assert ended(proxied).status.phase == "Succeeded"
    assert not [name for name in proxied.pods if proxied.api.pods[proxied.name(name)]["status"]["phase"] == "Running"]


def test_a_proxy_that_fails_is_no_failure_of_the_job(proxied: SimulatedCluster) -> None:
    cluster = proxied
    for pod in cluster.api.pods.values():
        statuses = pod["status"].get("initContainerStatuses") or pod["status"]["containerStatuses"][1:]
        statuses[0]["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    assert cluster.run().status.phase == "Running"
    assert ended(succeeded(cluster)).status.phase == "Succeeded"


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


# --- successPolicy AllWorkers: the job has succeeded when every chief and worker has


def all_workers() -> JobBuilder:
    return a_job().set("successPolicy", "AllWorkers")


def test_the_chief_alone_does_not_decide() -> None:
    cluster = SimulatedCluster(all_workers().workers(3)).run().exit("worker-0", code=0).run()
    assert (cluster.status.phase, cluster.status.ready) == ("Running", "3/3")
    cluster.exit("worker-2", code=0).run().exit("worker-1", code=0).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Succeeded", "AllWorkersSucceeded")
    assert cluster.status.message == "every chief and worker has succeeded"


def test_those_that_have_finished_never_run_again_when_they_are_deleted() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-0", code=0).run().delete("worker-0").run()
    assert (cluster.status.phase, cluster.pods, cluster.status.attempt) == ("Running", ["worker-1"], 1)
    assert cluster.exit("worker-1", code=0).run().status.phase == "Succeeded"


def test_a_failure_after_the_chief_is_done_restarts_the_gang() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-0", code=0).run().exit("worker-1").run()
    assert (cluster.status.phase, cluster.status.attempt, cluster.status.restarts.counted) == ("Running", 2, 1)
    assert cluster.pods == ["worker-0", "worker-1"]


def test_all_workers_succeed_while_the_operator_was_down() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-0", "worker-1", code=0).wait(3600)
    cluster.forget()
    assert cluster.run().status.phase == "Succeeded"


def test_one_that_is_deleted_and_leaves_politely_has_not_finished() -> None:
    cluster = (
        SimulatedCluster(all_workers()).run().exit("worker-0", code=0).run().delete("worker-1").exit("worker-1", code=0)
    )
    cluster.run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)


def test_one_that_is_evicted_in_the_second_in_which_it_finished_has_finished() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-1", code=0).run()
    cluster.kubelet.mark_disrupted("mnist-worker-1", "EvictionByEvictionAPI")
    status = cluster.run().status
    assert (status.attempt, status.replicas["worker"].completed_indexes, status.ready) == (1, "1", "2/2")
    status = cluster.delete("worker-1").run().status
    assert (cluster.pods, status.attempt, status.restarts.disruptions) == (["worker-0"], 1, 0)
    assert cluster.exit("worker-0", code=0).run().status.phase == "Succeeded"


def test_the_finish_of_an_earlier_attempt_says_nothing_about_the_present_one() -> None:
    cluster = SimulatedCluster(all_workers()).run().exit("worker-1", code=0).run().exit("worker-0").run()
    assert (cluster.status.attempt, cluster.status.replicas["worker"].completed_indexes) == (2, "")
    cluster.exit("worker-1", code=0)
    cluster.kubelet.mark_disrupted("mnist-worker-1", "EvictionByEvictionAPI")
    assert cluster.run().status.attempt == 3, "no pass has seen that it finished before the eviction"


def test_the_message_counts_only_members_that_train() -> None:
    cluster = SimulatedCluster(all_workers().workers(3)).run().exit("worker-1", code=0).run()
    assert cluster.status.message == "2 replicas training; worker-1 has finished"
    cluster.exit("worker-0", code=0).run().delete("worker-1").run()
    assert cluster.status.message == "1 replica training; worker-0, worker-1 have finished"


# --- with launchers, which count for themselves and end together


@pytest.fixture
def launched() -> SimulatedCluster:
    return SimulatedCluster(a_launched_job().storage().set("successPolicy", "AllWorkers")).run()


def test_with_launchers_the_chief_alone_does_not_decide_either(launched: SimulatedCluster) -> None:
    launched.launchers.finish("worker-0")
    assert (launched.run().status.phase, launched.status.ready) == ("Running", "2/2")
    assert launched.status.message == "1 replica training; worker-0 has finished"
    assert not launched.launchers.verdict_in
    launched.launchers.finish("worker-1")
    assert (launched.run().status.phase, launched.status.reason) == ("Succeeded", "AllWorkersSucceeded")
    assert launched.status.message == "every chief and worker has succeeded"


def test_with_launchers_a_failure_after_the_chief_is_done_restarts_in_place(launched: SimulatedCluster) -> None:
    launched.launchers.finish("worker-0")
    launched.run().launchers.crash("worker-1")
    status = launched.run().status
    assert (status.phase, status.attempt) == ("Running", 1)
    assert (status.restarts.counted, status.restarts.in_place, status.restarts.recreated) == (1, 1, 0)
    launched.launchers.finish("worker-1")
    assert launched.run().status.phase == "Running", "the chief's program runs again too"
    launched.launchers.finish("worker-0")
    assert launched.run().status.phase == "Succeeded"


def test_with_launchers_the_pod_of_one_that_has_finished_is_made_anew_and_its_program_is_not(
    launched: SimulatedCluster,
) -> None:
    launched.launchers.finish("worker-1")
    launched.run().delete("worker-1")
    assert (launched.run_timers().status.phase, launched.status.ready) == ("Running", "2/2")
    assert (launched.launchers.round, launched.status.restarts.counted) == (1, 0)
    launched.launchers.finish("worker-0")
    assert launched.run().status.reason == "AllWorkersSucceeded"


def test_with_launchers_all_workers_succeed_while_the_operator_was_down(launched: SimulatedCluster) -> None:
    launched.launchers.finish("worker-0", "worker-1")
    launched.kubelet.force_delete("mnist-worker-0", "mnist-worker-1")
    launched.wait(3600).forget()
    assert launched.run().status.phase == "Succeeded"
    assert launched.status.reason == "AllWorkersSucceeded"

"""A program fails: the gang starts again, one incident is one charge, and the first to fail is blamed."""

import pytest

from tests.support.simulated_cluster.builders import a_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.model.status import LastFailure


def test_the_trajectory_of_a_crash() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.trajectory.clear()
    cluster.exit("worker-1", code=137).settle()
    assert cluster.pods == ["worker-0"]
    cluster.kubelet.remove_deleted()
    cluster.settle()
    cluster.kubelet.start_all()
    cluster.settle()
    assert cluster.trajectory == [
        "Restarting 0/2 Error",
        "Restarting 0/2 Error",
        "Running 2/2 Training",
    ]
    assert cluster.attempts() == {"2"}


def test_the_intent_is_written_before_a_pod_is_deleted() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1")
    cluster.api.writes.clear()
    cluster.step()
    assert cluster.api.writes == ["status", "delete pod/mnist-worker-0", "delete pod/mnist-worker-1"]


def test_the_survivors_are_given_one_second_of_grace() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1")
    cluster.settle()
    assert cluster.api.pods["mnist-worker-0"]["metadata"]["deletionGracePeriodSeconds"] == 1


def test_what_the_status_says_of_a_crash() -> None:
    cluster = SimulatedCluster(a_job()).run().wait(30).exit("worker-1", code=137, message="epoch 3\nKilled").settle()
    last, status = cluster.status.last_restart, cluster.status
    assert status.message == "worker-1 failed: exit code 137 (SIGKILL); restarting the gang as attempt 2"
    assert last is not None
    assert (last.pod, last.exit_code, last.signal, last.reason) == ("mnist-worker-1", 137, 9, "Error")
    assert status.failure == LastFailure("mnist-worker-1", 137, 9, "Error", "epoch 3\nKilled")
    assert (status.restarts.counted, status.restarts.disruptions, status.restarts.recreated) == (1, 0, 1)
    assert (cluster.events[-1].type, cluster.events[-1].reason) == ("Warning", "Error")


def test_status_and_rules_have_the_same_reason_for_a_failure_after_a_step() -> None:
    log = "Traceback (most recent call last):\nImportError: no"
    rule = {"onReasons": ["ImportError"], "action": "Ignore"}
    for job in (a_job(), a_job().set("restartPolicy.rules", [rule])):
        cluster = SimulatedCluster(job).run().wait(120).exit("worker-1", message=log).settle()
        last, status = cluster.status.last_restart, cluster.status
        assert last is not None and status.failure is not None
        assert (status.reason, last.reason, status.failure.reason, cluster.events[-1].reason) == ("ImportError",) * 4


def test_a_pod_that_fails_before_its_container_ran() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.pods["mnist-worker-1"]["status"] = {"phase": "Failed"}
    said = cluster.settle().status.message
    assert said == ("worker-1 failed: the pod failed before its container ran; restarting the gang as attempt 2")


def test_the_time_without_training_is_told() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle().wait(7.26).run()
    last = cluster.status.last_restart
    assert last is not None and last.down_seconds == 7.3
    assert cluster.events[-1].message == "2/2 replicas training, 7.3 s after Error"


@pytest.mark.parametrize("crashed", [("worker-0",), ("worker-2",), ("worker-0", "worker-1", "worker-2")])
def test_one_incident_is_one_charge_whoever_crashes(crashed: tuple[str, ...]) -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit(*crashed).run()
    assert (cluster.status.phase, cluster.status.attempt) == ("Running", 2)
    assert cluster.status.restarts.counted == 1


def test_failures_that_follow_are_collateral() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-2", code=1).settle()
    cluster.wait(1).exit("worker-0").settle()
    cluster.wait(2).exit("worker-1").run()
    assert cluster.status.restarts.counted == 1
    assert cluster.status.attempt == 2


def test_the_earliest_exit_is_blamed_whatever_its_rank() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-2", code=3)
    cluster.wait(1).exit("worker-0", "worker-1", code=1).settle()
    assert cluster.status.failure is not None and cluster.status.failure.pod == "mnist-worker-2"


def test_within_one_second_a_signal_was_first() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-0", code=1).exit("worker-2", code=137).settle()
    assert cluster.status.failure is not None and cluster.status.failure.pod == "mnist-worker-2"


def test_within_one_second_and_alike_the_lowest_rank_is_named() -> None:
    cluster = SimulatedCluster(a_job().chief().workers(2)).run().exit("worker-0", "worker-1", "chief-0").settle()
    assert cluster.status.failure is not None and cluster.status.failure.pod == "mnist-chief-0"


def test_a_crash_of_the_explicit_chief_restarts_the_gang() -> None:
    cluster = SimulatedCluster(a_job().chief()).run().exit("chief-0").run()
    assert (cluster.status.phase, cluster.attempts(), cluster.status.ready) == ("Running", {"2"}, "3/3")


def test_a_crash_while_the_gang_restarts_is_an_incident_of_its_own() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1").settle()
    cluster.kubelet.remove_deleted()
    cluster.settle()
    cluster.kubelet.start("mnist-worker-0")
    cluster.exit("worker-0").settle()
    assert (cluster.status.attempt, cluster.status.restarts.counted) == (3, 2)
    assert cluster.run_timers().status.phase == "Running"


def test_a_crash_before_the_gang_was_complete_is_charged_too() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.kubelet.start("mnist-worker-1")
    cluster.exit("worker-1", code=2).run()
    told = "worker-1 failed: exit code 2; restarting the gang as attempt 2"
    assert told in [each.message for each in cluster.events]
    assert (cluster.status.attempt, cluster.status.restarts.counted) == (2, 1)


def test_new_pods_wait_until_the_last_old_one_is_gone() -> None:
    cluster = SimulatedCluster(a_job().workers(3)).run().exit("worker-1").settle()
    assert cluster.pods == ["worker-0", "worker-2"]
    cluster.kubelet.force_delete("mnist-worker-0")
    assert cluster.settle().pods == ["worker-2"]
    cluster.kubelet.force_delete("mnist-worker-2")
    assert cluster.settle().pods == ["worker-0", "worker-1", "worker-2"]
    assert cluster.attempts() == {"2"}


def test_a_failure_before_the_container_ran_says_what_the_kubelet_says() -> None:
    cluster = SimulatedCluster(a_job()).settle()
    cluster.api.pods["mnist-worker-1"]["status"] = {"phase": "Failed", "reason": "UnknownVolume", "message": "no such"}
    cluster.settle()
    assert cluster.status.message is not None and cluster.status.message.startswith("worker-1 failed: UnknownVolume")
    assert cluster.status.failure is not None and cluster.status.failure.log_tail == "no such"


def test_only_the_last_lines_of_a_long_log_are_kept() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    failure = SimulatedCluster(a_job()).run().exit("worker-1", message=text).settle().status.failure
    assert failure is not None and failure.log_tail is not None
    assert failure.log_tail.splitlines() == [f"line {number}" for number in range(80, 100)]


def test_an_out_of_memory_kill_is_named() -> None:
    cluster = SimulatedCluster(a_job()).run().exit("worker-1", code=137, reason="OOMKilled").settle()
    assert cluster.status.reason == "OOMKilled"
    assert cluster.status.message is not None and "exit code 137 (SIGKILL, OOMKilled)" in cluster.status.message

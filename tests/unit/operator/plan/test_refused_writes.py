"""Deletions and changes that the API server refuses: told in every phase, tried again, and in nobody else's way."""

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tests.unit.operator.plan.test_gang_scheduling import VOLCANO
from tests.unit.operator.plan.test_kueue_successors import queued
from tftraining_api.manifests.network_policy import OperatorSelector

WINDOW = (403, 'admission webhook "w.example" denied the request: maintenance window')
REFUSED = f"was refused: {WINDOW[1]}"


def told(cluster: SimulatedCluster) -> list[str]:
    """The events of refused changes."""
    warnings = [note for note in cluster.events if note.reason == "ChangeRefused"]
    assert {note.type for note in warnings} <= {"Warning"}
    return [note.message for note in warnings]


def refusal(cluster: SimulatedCluster) -> str:
    """The message of the condition; "" without it. The status message has no word of it."""
    assert "refused" not in (cluster.status.message or "")
    condition = cluster.status.condition("ChangeRefused")
    return condition.message if condition is not None else ""


def to_the_next_try(cluster: SimulatedCluster) -> None:
    """Let time pass until the operator acts by itself, and let it."""
    assert cluster.timer is not None and cluster.timer > cluster.now
    cluster.api.now = cluster.timer
    cluster.run()


@pytest.mark.parametrize("answer", [WINDOW, (500, "etcd"), (403, "pods is forbidden: cannot delete resource"), (0, "")])
def test_a_gang_that_waits_for_a_pod_that_cannot_be_deleted_says_so_and_fails_in_time(answer: tuple[int, str]) -> None:
    cluster = SimulatedCluster(a_job().set("runPolicy", {"startDeadlineSeconds": 600})).run()
    cluster.api.refusals["DELETE pod/mnist-worker-0"] = answer
    cluster.exit("worker-1").run()
    assert cluster.status.phase == "Restarting"
    assert f"DELETE pod/mnist-worker-0 was refused: {answer[1]}" in refusal(cluster)
    assert cluster.pods == ["worker-0"], "the other one is deleted"
    began = cluster.now
    while cluster.status.phase == "Restarting" and (cluster.now - began).total_seconds() < 10_000:
        to_the_next_try(cluster)
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert 595 <= (cluster.now - began).total_seconds() <= 720
    assert len(told(cluster)) == 1, "a Warning once"


def test_the_restart_goes_on_when_the_deletion_is_allowed() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.refusals["DELETE pod/mnist-worker-0"] = WINDOW
    cluster.exit("worker-1").run()
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.message) == ("Running", "2 replicas training")


def test_a_refused_deletion_is_tried_again_less_and_less_often() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.refusals["DELETE pod/mnist-worker-0"] = WINDOW
    cluster.exit("worker-1").run()
    waits = []
    for _ in range(8):
        before = cluster.now
        to_the_next_try(cluster)
        waits.append((cluster.now - before).total_seconds())
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_annotation_that_is_refused_keeps_no_pod_from_being_made() -> None:
    cluster = SimulatedCluster(a_launched_job().workers(2)).run()
    cluster.api.refusals["PATCH pod/mnist-worker-0"] = WINDOW
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run()
    assert cluster.pods == ["worker-0", "worker-1", "worker-2"]
    assert refusal(cluster) == f"PATCH pod/mnist-worker-0 {REFUSED}"
    assert len(told(cluster)) == 1
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert "refused" not in (cluster.status.message or "")


def test_a_refused_deletion_at_the_end_is_told_with_the_end() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.refusals |= {"DELETE service/mnist": WINDOW, "DELETE pod/mnist-worker-1": WINDOW}
    cluster.exit("worker-0", code=0).run()
    said = cluster.status.message
    assert cluster.status.phase == "Succeeded" and f"DELETE pod/mnist-worker-1 {REFUSED}" in refusal(cluster)
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert cluster.pods == ["worker-0"] and not cluster.api.services
    assert cluster.status.message == said and not refusal(cluster)


def test_the_service_is_asked_for_again_when_that_is_due_and_not_before() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.refusals["DELETE service/mnist"] = WINDOW
    cluster.exit("worker-0", "worker-1", code=0).run().run()
    assert cluster.refused_changes["DELETE service/mnist"].tries == 1
    to_the_next_try(cluster)
    assert cluster.refused_changes["DELETE service/mnist"].tries == 2
    cluster.api.refusals.clear()
    assert not cluster.run_timers().api.services


def test_what_stands_beside_the_pods_is_deleted_at_last_also_if_that_was_refused_first() -> None:
    cluster = SimulatedCluster(a_launched_job())
    cluster.operator_selector = OperatorSelector("system", {"app": "operator"})
    cluster.run()
    (policy,) = cluster.api.auxiliary_objects
    cluster.api.refusals[f"DELETE {policy}"] = WINDOW
    cluster.launchers.end("Succeeded", "ChiefSucceeded", "worker-0 has succeeded", {})
    cluster.run()
    assert f"DELETE {policy} {REFUSED}" in refusal(cluster)
    assert list(cluster.api.services) == ["mnist"]
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert not cluster.api.auxiliary_objects and not cluster.api.services


def test_one_refused_deletion_beside_the_pods_keeps_the_service_and_no_other_object() -> None:
    cluster = SimulatedCluster(a_launched_job().set("runPolicy.scheduling.podGroup", {"apiVersion": VOLCANO}))
    cluster.operator_selector = OperatorSelector("system", {"app": "operator"})
    policy, _ = cluster.run().api.auxiliary_objects
    cluster.api.refusals[f"DELETE {policy}"] = WINDOW
    cluster.launchers.end("Succeeded", "ChiefSucceeded", "worker-0 has succeeded", {})
    for _ in range(5):
        cluster.step()
    assert (list(cluster.api.auxiliary_objects), list(cluster.api.services)) == ([policy], ["mnist"])


def test_the_end_of_a_lost_pod_in_a_queue_is_asked_for_again_when_that_is_due_and_not_before() -> None:
    cluster = SimulatedCluster(queued())
    cluster.nodes.add("node-b")
    cluster.run().nodes.power_off("node-b")
    (lost,) = [name for name, pod in cluster.api.pods.items() if pod["spec"]["nodeName"] == "node-b"]
    write = f"PATCH pod/{lost}/status"
    cluster.api.refusals[write] = WINDOW
    cluster.run().wait(61).run().run()
    assert cluster.refused_changes[write].tries == 1
    to_the_next_try(cluster)
    assert cluster.refused_changes[write].tries == 2


def test_a_suspended_job_says_which_pod_cannot_be_deleted() -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.refusals["DELETE pod/mnist-worker-1"] = WINDOW
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run()
    assert cluster.status.message == "suspended: waiting for worker-1 to stop"
    assert refusal(cluster) == f"DELETE pod/mnist-worker-1 {REFUSED}"
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert cluster.status.condition("ChangeRefused") is None and cluster.pods == []


def test_a_finished_job_that_cannot_be_deleted_says_so() -> None:
    cluster = SimulatedCluster(a_job().set("runPolicy", {"ttlSecondsAfterFinished": 60})).run()
    cluster.api.refusals["DELETE tftrainingjob/mnist"] = WINDOW
    cluster.exit("worker-0", code=0).run()
    cluster.wait(60).run()
    assert refusal(cluster) == f"DELETE tftrainingjob/mnist {REFUSED}"
    assert not cluster.api.gone and len(told(cluster)) == 1
    cluster.api.refusals.clear()
    cluster.wait(5).run()
    assert cluster.api.gone


def test_a_restart_keeps_no_word_of_a_change_that_was_refused_before() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.api.refusals["PATCH pod/mnist-worker-0"] = WINDOW
    cluster.api.edit("replicaSpecs.worker.replicas", 3)
    cluster.run()
    for _ in range(3):
        cluster.launchers.crash("worker-1")
        cluster.run()
        to_the_next_try(cluster)
        assert refusal(cluster).count("was refused") == 1


def test_the_words_of_a_program_are_never_taken_for_the_operators() -> None:
    said = "worker-1: GoogleAPIError: upload; DELETE gs://b/x was refused: 403"
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.launchers.end("Failed", "SameFailure", said, {})
    cluster.run()
    assert cluster.settle().status.message == said

"""Deletions and changes that the API server refuses: told in every phase, tried again, and in nobody else's way."""

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.manifests.network_policy import OperatorSelector

WINDOW = (403, 'admission webhook "w.example" denied the request: maintenance window')
REFUSED = f"was refused: {WINDOW[1]}"


def told(world: World) -> list[str]:
    """The events of refused changes."""
    warnings = [note for note in world.events if note.reason == "ChangeRefused"]
    assert {note.type for note in warnings} <= {"Warning"}
    return [note.message for note in warnings]


def to_the_next_try(world: World) -> None:
    """Let time pass until the operator acts by itself, and let it."""
    assert world.timer is not None and world.timer > world.now
    world.api.now = world.timer
    world.run()


@pytest.mark.parametrize("answer", [WINDOW, (500, "etcd"), (403, "pods is forbidden: cannot delete resource"), (0, "")])
def test_a_gang_that_waits_for_a_pod_that_cannot_be_deleted_says_so_and_fails_in_time(answer: tuple[int, str]) -> None:
    world = World(a_job().set("runPolicy", {"startDeadlineSeconds": 600})).run()
    world.api.refusals["DELETE pod/mnist-worker-0"] = answer
    world.exit("worker-1").run()
    assert world.status.phase == "Restarting"
    assert f"DELETE pod/mnist-worker-0 was refused: {answer[1]}" in (world.status.message or "")
    assert world.pods == ["worker-0"], "the other one is deleted"
    began = world.now
    while world.status.phase == "Restarting" and (world.now - began).total_seconds() < 10_000:
        to_the_next_try(world)
    assert (world.status.phase, world.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert 595 <= (world.now - began).total_seconds() <= 720
    assert len(told(world)) == 1, "a Warning once"


def test_the_restart_goes_on_when_the_deletion_is_allowed() -> None:
    world = World(a_job()).run()
    world.api.refusals["DELETE pod/mnist-worker-0"] = WINDOW
    world.exit("worker-1").run()
    world.api.refusals.clear()
    world.run_timers()
    assert (world.status.phase, world.status.message) == ("Running", "2 replicas training")


def test_a_refused_deletion_is_tried_again_less_and_less_often() -> None:
    world = World(a_job()).run()
    world.api.refusals["DELETE pod/mnist-worker-0"] = WINDOW
    world.exit("worker-1").run()
    waits = []
    for _ in range(8):
        before = world.now
        to_the_next_try(world)
        waits.append((world.now - before).total_seconds())
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_annotation_that_is_refused_keeps_no_pod_from_being_made() -> None:
    world = World(a_launched_job().workers(2)).run()
    world.api.refusals["PATCH pod/mnist-worker-0"] = WINDOW
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run()
    assert world.pods == ["worker-0", "worker-1", "worker-2"]
    assert (world.status.message or "").endswith(f"; PATCH pod/mnist-worker-0 {REFUSED}")
    assert len(told(world)) == 1
    world.api.refusals.clear()
    world.run_timers()
    assert "refused" not in (world.status.message or "")


def test_a_refused_deletion_at_the_end_is_told_with_the_end() -> None:
    world = World(a_job()).run()
    world.api.refusals |= {"DELETE service/mnist": WINDOW, "DELETE pod/mnist-worker-1": WINDOW}
    world.exit("worker-0", code=0).run()
    said = world.status.message or ""
    assert world.status.phase == "Succeeded" and f"; DELETE pod/mnist-worker-1 {REFUSED}" in said
    world.api.refusals.clear()
    world.run_timers()
    assert world.pods == ["worker-0"] and not world.api.services
    assert world.status.message == said.partition("; DELETE")[0]


def test_the_service_is_asked_for_again_when_that_is_due_and_not_before() -> None:
    world = World(a_job()).run()
    world.api.refusals["DELETE service/mnist"] = WINDOW
    world.exit("worker-0", "worker-1", code=0).run().run()
    assert world.refused_changes["DELETE service/mnist"].tries == 1
    to_the_next_try(world)
    assert world.refused_changes["DELETE service/mnist"].tries == 2
    world.api.refusals.clear()
    assert not world.run_timers().api.services


def test_what_stands_beside_the_pods_is_deleted_at_last_also_if_that_was_refused_first() -> None:
    world = World(a_launched_job())
    world.operator_selector = OperatorSelector("system", {"app": "operator"})
    world.run()
    (policy,) = world.api.auxiliary_objects
    world.api.refusals[f"DELETE {policy}"] = WINDOW
    world.launchers.end("Succeeded", "ChiefSucceeded", "worker-0 has succeeded", {})
    world.run()
    assert f"DELETE {policy} {REFUSED}" in (world.status.message or "")
    world.api.refusals.clear()
    world.run_timers()
    assert not world.api.auxiliary_objects and not world.api.services


def test_a_suspended_job_says_which_pod_cannot_be_deleted() -> None:
    world = World(a_job()).run()
    world.api.refusals["DELETE pod/mnist-worker-1"] = WINDOW
    world.api.edit("runPolicy.suspend", True)
    world.run()
    assert world.status.message == f"suspended: waiting for worker-1 to stop; DELETE pod/mnist-worker-1 {REFUSED}"
    world.api.refusals.clear()
    world.run_timers()
    assert "refused" not in (world.status.message or "") and world.pods == []


def test_a_finished_job_that_cannot_be_deleted_says_so() -> None:
    world = World(a_job().set("runPolicy", {"ttlSecondsAfterFinished": 60})).run()
    world.api.refusals["DELETE tftrainingjob/mnist"] = WINDOW
    world.exit("worker-0", code=0).run()
    world.wait(60).run()
    assert (world.status.message or "").endswith(f"; DELETE tftrainingjob/mnist {REFUSED}")
    assert not world.api.gone and len(told(world)) == 1
    world.api.refusals.clear()
    world.wait(5).run()
    assert world.api.gone


def test_a_restart_keeps_no_word_of_a_change_that_was_refused_before() -> None:
    world = World(a_launched_job()).run()
    world.api.refusals["PATCH pod/mnist-worker-0"] = WINDOW
    world.api.edit("replicaSpecs.worker.replicas", 3)
    world.run()
    for _ in range(3):
        world.launchers.crash("worker-1")
        world.run()
        to_the_next_try(world)
        assert (world.status.message or "").count("was refused") == 1

"""What a cluster denies that has changed its mind: a job that it has accepted before waits for it, while it may."""

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import World

WINDOW = (422, "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: maintenance")
RESTRICTED = (403, 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true')
UNKNOWN = (400, 'strict decoding error: unknown field "spec.x"')
DENIED = {"pod/mnist-worker-0", "pod/mnist-worker-1"}


@pytest.mark.parametrize("answer", [WINDOW, RESTRICTED, UNKNOWN])
def test_a_gang_that_has_trained_outlasts_a_denial_also_of_an_operator_that_was_restarted(
    answer: tuple[int, str],
) -> None:
    world = World(a_job()).run()
    world.api.refusals |= dict.fromkeys(DENIED, answer)
    world.delete("worker-1").kubelet.remove_deleted()
    for _ in range(3):
        world.run().forget()
        world.wait(61).run()
    assert (world.status.phase, world.status.reason) == ("Restarting", "CreationRefused")
    assert answer[1] in (world.status.message or "")
    world.api.refusals.clear()
    assert world.run_timers().status.phase == "Running"


def test_a_denial_of_the_first_pod_is_waited_for_until_the_deadline() -> None:
    world = World(a_job().set("runPolicy", {"startDeadlineSeconds": 600}))
    world.api.refusals["pod/mnist-worker-1"] = WINDOW
    assert world.run().status.reason == "CreationRefused"
    world.run_timers()
    assert (world.status.phase, world.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert "maintenance" in (world.status.message or "")
    assert 600 <= (world.now - world.status.start_time).total_seconds() <= 661  # type: ignore[operator]


def test_a_pod_that_joins_launchers_outlasts_a_denial() -> None:
    world = World(a_launched_job()).run()
    world.api.refusals |= dict.fromkeys(DENIED, RESTRICTED)
    world.delete("worker-1").kubelet.remove_deleted()
    assert world.run().status.reason == "CreationRefused"
    world.api.refusals.clear()
    assert world.run_timers().status.phase == "Running"


def test_what_one_role_was_accepted_with_says_nothing_of_another() -> None:
    world = World(a_job().chief())
    world.api.refusals |= dict.fromkeys(DENIED, RESTRICTED)
    assert world.settle().status.reason == "InvalidPodTemplate"


@pytest.mark.parametrize(("changed", "reason"), [(True, "InvalidPodTemplate"), (False, "CreationRefused")])
def test_after_a_suspension_only_a_changed_template_has_to_be_accepted_anew(changed: bool, reason: str) -> None:
    world = World(a_job()).run()
    world.api.edit("runPolicy.suspend", True)
    world.run_timers()
    world.api.refusals |= dict.fromkeys(DENIED, RESTRICTED)
    if changed:
        world.api.edit("template.spec.hostNetwork", True)
    world.api.edit("runPolicy.suspend", False)
    assert world.run().status.reason == reason

"""What a cluster denies that has changed its mind: a job that it has accepted before waits for it, while it may."""

import pytest

from tests.support.simulated_cluster.builders import a_job, a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster

WINDOW = (422, "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: maintenance")
RESTRICTED = (403, 'pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true')
UNKNOWN = (400, 'strict decoding error: unknown field "spec.x"')
DENIED = {"pod/mnist-worker-0", "pod/mnist-worker-1"}


@pytest.mark.parametrize("answer", [WINDOW, RESTRICTED, UNKNOWN])
def test_a_gang_that_has_trained_outlasts_a_denial_also_of_an_operator_that_was_restarted(
    answer: tuple[int, str],
) -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.refusals |= dict.fromkeys(DENIED, answer)
    cluster.delete("worker-1").kubelet.remove_deleted()
    for _ in range(3):
        cluster.run().forget()
        cluster.wait(61).run()
    assert (cluster.status.phase, cluster.status.reason) == ("Restarting", "CreationRefused")
    assert answer[1] in (cluster.status.message or "")
    cluster.api.refusals.clear()
    assert cluster.run_timers().status.phase == "Running"


def test_a_denial_of_the_first_pod_is_waited_for_until_the_deadline() -> None:
    cluster = SimulatedCluster(a_job().set("runPolicy", {"startDeadlineSeconds": 600}))
    cluster.api.refusals["pod/mnist-worker-1"] = WINDOW
    assert cluster.run().status.reason == "CreationRefused"
    cluster.run_timers()
    assert (cluster.status.phase, cluster.status.reason) == ("Failed", "StartDeadlineExceeded")
    assert "maintenance" in (cluster.status.message or "")
    assert 600 <= (cluster.now - cluster.status.start_time).total_seconds() <= 661  # type: ignore[operator]


def test_a_pod_that_joins_launchers_outlasts_a_denial() -> None:
    cluster = SimulatedCluster(a_launched_job()).run()
    cluster.api.refusals |= dict.fromkeys(DENIED, RESTRICTED)
    cluster.delete("worker-1").kubelet.remove_deleted()
    assert cluster.run().status.reason == "CreationRefused"
    cluster.api.refusals.clear()
    assert cluster.run_timers().status.phase == "Running"


def test_what_one_role_was_accepted_with_says_nothing_of_another() -> None:
    cluster = SimulatedCluster(a_job().chief())
    cluster.api.refusals |= dict.fromkeys(DENIED, RESTRICTED)
    assert cluster.settle().status.reason == "InvalidPodTemplate"


@pytest.mark.parametrize(("changed", "reason"), [(True, "InvalidPodTemplate"), (False, "CreationRefused")])
def test_after_a_suspension_only_a_changed_template_has_to_be_accepted_anew(changed: bool, reason: str) -> None:
    cluster = SimulatedCluster(a_job()).run()
    cluster.api.edit("runPolicy.suspend", True)
    cluster.run_timers()
    cluster.api.refusals |= dict.fromkeys(DENIED, RESTRICTED)
    if changed:
        cluster.api.edit("template.spec.hostNetwork", True)
    cluster.api.edit("runPolicy.suspend", False)
    assert cluster.run().status.reason == reason

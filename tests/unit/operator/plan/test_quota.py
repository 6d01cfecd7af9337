"""What a job costs that a quota holds: it asks for one pod at a time, and a change of the use alone is no news."""

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import SimulatedCluster
from tftraining_api.manifests.network_policy import OperatorSelector


def full(used: int) -> tuple[int, str]:
    """The API server's words."""
    why = f"exceeded quota: q, requested: cpu=1,pods=1, used: cpu=4,pods={used}, limited: cpu=4,pods=9"
    return 403, f'pods "x" is forbidden: {why}'


def held(used: int = 9) -> SimulatedCluster:
    """A job of 20 workers with all that stands beside its pods, none of which a quota allows."""
    cluster = SimulatedCluster(a_launched_job().workers(20))
    cluster.operator_selector = OperatorSelector("system", {"app": "operator"})
    hold(cluster, used)
    return cluster.run()


def hold(cluster: SimulatedCluster, used: int) -> None:
    cluster.api.refusals |= {f"pod/mnist-worker-{index}": full(used) for index in range(20)}


def test_a_try_is_one_pod_and_nothing_that_was_there_at_the_last_one() -> None:
    cluster = held()
    assert cluster.status.reason == "CreationRefused"
    for _ in range(8):
        assert cluster.timer is not None
        cluster.api.now = cluster.timer
        step = cluster.plan()
        assert len(step.create_pods) == 1
        assert (step.create_service, step.create_secret, step.verify_secret, step.auxiliary_objects) == (
            None,
            None,
            None,
            (),
        )
        cluster.run()
    assert cluster.timer is not None and (cluster.timer - cluster.now).total_seconds() == 60


def test_what_others_use_of_the_quota_is_no_news() -> None:
    cluster = held()
    before, events = cluster.status, len(cluster.events)
    for used in (8, 7, 6):
        hold(cluster, used)
        assert cluster.timer is not None
        cluster.api.now = cluster.timer
        cluster.run()
    assert cluster.status == before and len(cluster.events) == events


def test_all_the_others_are_made_as_soon_as_one_is_allowed() -> None:
    cluster = held()
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert len(cluster.pods) == 20 and cluster.status.phase == "Running"


def test_a_secret_that_was_deleted_meanwhile_is_made_anew() -> None:
    cluster = held()
    (secret,) = cluster.api.secrets
    cluster.api.secrets.clear()
    cluster.api.refusals.clear()
    cluster.run_timers()
    assert list(cluster.api.secrets) == [secret] and len(cluster.pods) == 20

"""What a job costs that a quota holds: it asks for one pod at a time, and a change of the use alone is no news."""

from tests.support.simulated_cluster.builders import a_launched_job
from tests.support.simulated_cluster.simulation import World
from tftraining_api.manifests.network_policy import OperatorSelector


def full(used: int) -> tuple[int, str]:
    """The API server's words."""
    why = f"exceeded quota: q, requested: cpu=1,pods=1, used: cpu=4,pods={used}, limited: cpu=4,pods=9"
    return 403, f'pods "x" is forbidden: {why}'


def held(used: int = 9) -> World:
    """A job of 20 workers with all that stands beside its pods, none of which a quota allows."""
    world = World(a_launched_job().workers(20))
    world.operator_selector = OperatorSelector("system", {"app": "operator"})
    hold(world, used)
    return world.run()


def hold(world: World, used: int) -> None:
    world.api.refusals |= {f"pod/mnist-worker-{index}": full(used) for index in range(20)}


def test_a_try_is_one_pod_and_nothing_that_was_there_at_the_last_one() -> None:
    world = held()
    assert world.status.reason == "CreationRefused"
    for _ in range(8):
        assert world.timer is not None
        world.api.now = world.timer
        step = world.plan()
        assert len(step.create_pods) == 1
        assert (step.create_service, step.create_secret, step.verify_secret, step.auxiliary_objects) == (
            None,
            None,
            None,
            (),
        )
        world.run()
    assert world.timer is not None and (world.timer - world.now).total_seconds() == 60


def test_what_others_use_of_the_quota_is_no_news() -> None:
    world = held()
    before, events = world.status, len(world.events)
    for used in (8, 7, 6):
        hold(world, used)
        assert world.timer is not None
        world.api.now = world.timer
        world.run()
    assert world.status == before and len(world.events) == events


def test_all_the_others_are_made_as_soon_as_one_is_allowed() -> None:
    world = held()
    world.api.refusals.clear()
    world.run_timers()
    assert len(world.pods) == 20 and world.status.phase == "Running"


def test_a_secret_that_was_deleted_meanwhile_is_made_anew() -> None:
    world = held()
    (secret,) = world.api.secrets
    world.api.secrets.clear()
    world.api.refusals.clear()
    world.run_timers()
    assert list(world.api.secrets) == [secret] and len(world.pods) == 20

"""Under random faults all members of a round begin with one state: of a copy that each holds or fetches, or of none."""

from __future__ import annotations

import pytest

from tests.support.random_seeds import seeds
from tests.support.simulated_gang.copying_gang import LEAVING_SECONDS, CopyingGang

FAULTS = (
    "fail_program",
    "kill_program",
    "kill_launcher",
    "end_launcher",
    "close_connection",
    "partition",
    "replace",
    "leave",
)
SEEDS = seeds(8, 40)


def survive(world: CopyingGang) -> None:
    world.run_until(world.is_settled)
    for _ in range(20):
        for _ in range(world.random.randint(0, 12)):
            world.advance(world.random.uniform(0.02, 0.5))
            world.check_invariants()
        for _ in range(world.random.randint(1, 2)):
            getattr(world, world.random.choice(FAULTS))(world.random.choice(world.names))
        world.heal_network()
        world.run_until(world.is_settled)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_members_of_a_round_begin_with_the_same_state(seed: int) -> None:
    world = CopyingGang(size=2 + seed % 4, seed=seed)
    survive(world)
    assert {"Memory", "Peer"} & set(world.restorations)


def test_all_sources_occur() -> None:
    seen: set[str] = set()
    for seed in range(4):
        world = CopyingGang(size=3, seed=seed)
        survive(world)
        seen |= set(world.restorations)
    assert seen == {"Memory", "Peer", "Start"}


@pytest.mark.parametrize("seed", range(8))
def test_a_member_that_leaves_costs_no_step(seed: int) -> None:
    world = CopyingGang(size=3, seed=seed, termination_grace_seconds=60.0)

    def has_trained() -> bool:
        return all(memory.step > 6 for memory in world.at_work())

    def has_begun() -> bool:
        return world.is_settled() and all(memory.state is not None for memory in world.at_work())

    for name in ("worker-1", "worker-2", "worker-1"):
        world.run_until(has_begun)
        world.run_until(has_trained)
        world.leave(name)
        made = max(memory.step for memory in world.at_work())
        world.run_until(has_begun)
        assert {memory.resumed[1] for memory in world.at_work() if memory.resumed is not None} == {made}
    assert max(world.left_after) < LEAVING_SECONDS

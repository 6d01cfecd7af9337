"""Under random faults no two rounds run at once, and all members end in the same round."""

from __future__ import annotations

import pytest

from tests.support.random_seeds import seeds
from tests.support.simulated_gang.simulation import SimulatedGang

FAULTS = ("kill_program", "kill_launcher", "end_launcher", "close_connection", "partition", "replace")

SEEDS = seeds(8, 40)


def survive(world: SimulatedGang) -> None:
    """Random faults, and after each handful of them all run again."""
    world.run_until(world.is_settled)
    for _ in range(25):
        for _ in range(world.random.randint(1, 3)):
            getattr(world, world.random.choice(FAULTS))(world.random.choice(world.names))
            for _ in range(world.random.randint(0, 12)):
                world.advance(world.random.uniform(0.02, 0.5))
                world.check_invariants()
        world.heal_network()
        world.run_until(world.is_settled)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_end_with_all_members_in_one_round(seed: int) -> None:
    survive(SimulatedGang(size=2 + seed % 4, seed=seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_under_scope_pod_end_with_all_members_running(seed: int) -> None:
    names = ("chief-0", *(f"worker-{index}" for index in range(1 + seed % 3)), "ps-0")
    survive(SimulatedGang(size=0, seed=seed, names=names, scope="Pod"))


def test_a_partitioned_launcher_kills_its_program_before_its_successor_starts() -> None:
    world = SimulatedGang(size=2, seed=0)
    world.run_until(world.is_settled)
    old = world.launchers["worker-1"]
    world.replace("worker-1")
    world.run_until(world.is_settled)
    assert old.program is None
    assert world.launchers["worker-1"].program == 2

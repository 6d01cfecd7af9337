"""Whatever is killed, lost, cut off or recreated: never two rounds at once, and all members end up in the same one."""

from __future__ import annotations

import pytest

from tests.support.simulated_gang.simulation import World

FAULTS = ("kill_program", "kill_launcher", "end_launcher", "close_connection", "partition", "replace")

SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow_fault) for seed in range(12, 40))]


def survive(world: World) -> None:
    """Random faults, and after each handful of them all run again."""
    world.until(world.settled)
    for _ in range(25):
        for _ in range(world.random.randint(1, 3)):
            getattr(world, world.random.choice(FAULTS))(world.random.choice(world.names))
            for _ in range(world.random.randint(0, 12)):
                world.step(world.random.uniform(0.02, 0.5))
                world.hold_invariants()
        world.heal()
        world.until(world.settled)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_always_end_with_all_members_in_one_round(seed: int) -> None:
    survive(World(size=2 + seed % 4, seed=seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults_where_workers_restart_alone(seed: int) -> None:
    names = ("chief-0", *(f"worker-{index}" for index in range(1 + seed % 3)), "ps-0")
    survive(World(size=0, seed=seed, names=names, scope="Pod"))


def test_a_launcher_in_the_dark_kills_its_program_before_its_successor_starts() -> None:
    world = World(size=2, seed=0)
    world.until(world.settled)
    old = world.launchers["worker-1"]
    world.replace("worker-1")
    world.until(world.settled)
    assert old.program is None
    assert world.launchers["worker-1"].program == 2

"""The jobs and the faults of a campaign, from its seed alone. Pure.

Several strikers strike at once: one for each lane, whose faults are on jobs, CLUSTER, whose faults are on nodes,
servers and operators, and AROUND, whose faults are what other clients and the network do. The plan of each is endless:
the minutes of a campaign only say where it ends, so that a longer one with the same seed begins with the shorter one.
With each striker every kind comes once before any comes again.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.campaign.kinds import BASIC, JOBS, KINDS, Kind

CLUSTER, AROUND = "c", "a"


@dataclass(frozen=True)
class Strike:
    """One fault: `after` seconds since the striker's one before, on a job of a lane, one of its members, one node.

    `aim` chooses among what is there when the fault strikes: 0 the first, just below 1 the last.
    """

    number: str  # that of the striker, and of its fault
    kind: str
    after: float
    lane: int
    aim: float
    seconds: float


def jobs(seed: int, lane: int) -> Iterator[str]:
    """The kinds of the jobs of a lane, which run one after the other."""
    return _decks(random.Random(f"{seed} jobs {lane}"), sorted(JOBS))


def strikers(lanes: int) -> list[str]:
    """Who strikes at the same time."""
    return [*map(str, range(lanes)), CLUSTER, AROUND]


def strikes(seed: int, striker: str, lanes: int, kinds: Sequence[str] = ()) -> Iterator[Strike]:
    """The faults of a striker, of these kinds or of all of them; the basic ones come first."""
    draw = random.Random(f"{seed} faults {striker}")
    chosen = sorted(name for name in kinds or KINDS if strikes_by(striker, KINDS[name]))
    if not chosen:
        return
    basic = [name for name in BASIC if name in chosen]
    first = draw.sample(basic, len(basic)) + draw.sample(rest := sorted({*chosen} - {*basic}), len(rest))
    for number, name in enumerate(itertools.chain(first, _decks(draw, chosen)), 1):
        after = draw.choice([0.3, draw.uniform(1, 4), draw.uniform(2, 8)])
        lane = draw.randrange(lanes) if striker in (CLUSTER, AROUND) else int(striker)
        aim, seconds = draw.random(), draw.uniform(*KINDS[name].seconds)
        yield Strike(f"{striker}-{number}", name, round(after, 2), lane, aim, round(seconds, 2))


def strikes_by(striker: str, kind: Kind) -> bool:
    """Whether a fault of this kind is a matter of this striker."""
    return (kind.all_jobs, kind.around) == (striker in (CLUSTER, AROUND), striker == AROUND)


def _decks(draw: random.Random, names: Sequence[str]) -> Iterator[str]:
    while True:
        yield from draw.sample(names, len(names))

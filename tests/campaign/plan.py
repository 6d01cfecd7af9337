"""The jobs and the faults of a campaign, from its seed alone. Pure.

Both are endless: the minutes of a campaign only say where it ends, so that a longer one with the same seed begins with
the shorter one. Each kind comes once before any kind comes again.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.campaign.kinds import BASIC, JOBS, KINDS


@dataclass(frozen=True)
class Strike:
    """One fault: `after` seconds since the end of the one before, on a job of a lane, one of its members, one node.

    `aim` chooses among what is there when the fault strikes: 0 the first, just below 1 the last.
    """

    number: int
    kind: str
    after: float
    lane: int
    aim: float
    seconds: float


def jobs(seed: int, lane: int) -> Iterator[str]:
    """The kinds of the jobs of a lane, which run one after the other."""
    return _decks(random.Random(f"{seed} jobs {lane}"), sorted(JOBS))


def strikes(seed: int, lanes: int, kinds: Sequence[str] = ()) -> Iterator[Strike]:
    """The faults, of these kinds or of all of them; the basic ones come first."""
    draw = random.Random(f"{seed} faults")
    chosen = sorted(kinds or KINDS)
    basic = [name for name in BASIC if name in chosen]
    first = draw.sample(basic, len(basic)) + draw.sample(rest := sorted({*chosen} - {*basic}), len(rest))
    for number, name in enumerate(itertools.chain(first, _decks(draw, chosen)), 1):
        after = draw.choice([0.3, draw.uniform(1, 5), draw.uniform(3, 12)])
        lane, aim, seconds = draw.randrange(lanes), draw.random(), draw.uniform(*KINDS[name].seconds)
        yield Strike(number, name, round(after, 2), lane, aim, round(seconds, 2))


def _decks(draw: random.Random, names: Sequence[str]) -> Iterator[str]:
    while True:
        yield from draw.sample(names, len(names))

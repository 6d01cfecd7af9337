"""The seeds with which a campaign has once found something wrong; `python -m tests.campaign.seeds` runs them again.

A seed decides what is struck and in which order. The moment within the job differs with the speed of the machine, so a
seed is a likely, not a sure way to what it has found.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """A seed, for how many minutes it needs to strike, and what it has found."""

    seed: int
    minutes: float
    wrong: str


SEEDS: Sequence[Found] = ()


def main() -> int:
    """Run all seeds; 1 if any job of any of them has complaints."""
    failed = []
    for each in SEEDS:
        print(f"== seed {each.seed}: {each.wrong}", file=sys.stderr, flush=True)
        words = ["--seed", str(each.seed), "--minutes", str(each.minutes)]
        if subprocess.run([sys.executable, "-m", "tests.campaign", *words], check=False).returncode:
            failed.append(each.seed)
    if failed:
        print(f"seeds that fail: {', '.join(map(str, failed))}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

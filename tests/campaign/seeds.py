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
    kinds: Sequence[str] = ()  # only these kinds of faults; empty: all


SEEDS: Sequence[Found] = (
    Found(1001, 10, "a full /dev/shm: one member's vote failed, and then the collectives of all"),
    Found(1007, 10, "the same"),
    Found(1012, 10, "a member did not reach the chief's launcher for ten minutes, and said only that it timed out"),
    Found(3502, 10, "a recreated Secret: a kubelet gave new pods the old key, and the gang waited for ever"),
    Found(2001, 3, "a full /dev/shm, as above", ("shm-filled",)),
)


def main() -> int:
    """Run all seeds; 1 if any job of any of them has complaints."""
    failed = []
    for each in SEEDS:
        print(f"== seed {each.seed}: {each.wrong}", file=sys.stderr, flush=True)
        words = ["--seed", str(each.seed), "--minutes", str(each.minutes)]
        words += ["--kinds", *each.kinds] if each.kinds else []
        if subprocess.run([sys.executable, "-m", "tests.campaign", *words], check=False).returncode:
            failed.append(each.seed)
    if failed:
        print(f"seeds that fail: {', '.join(map(str, failed))}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())

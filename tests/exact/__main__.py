"""Programs and kills, each compared with the undisturbed run: is a resumed training the undisturbed one, or is it said?

    python -m tests.exact cell '{"input": "shuffled", "kills": [{"epoch": 2, "batch": 7}]}'    one cell: what differs
    python -m tests.exact --seed 7 --kills 500                                                 a campaign

The progress goes to standard error, and the last line of a campaign's output is JSON. The exit status is 1 if any
difference is silent. `--keep DIRECTORY` keeps what the programs have left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.exact.cells import Cell
from tests.exact.compare import Verdict, judge
from tests.exact.direct import Direct, Interpreter


class Runs:
    """Runs cells in a directory; each undisturbed run is made once."""

    def __init__(self, place: Path, direct: Direct) -> None:
        self._place, self._direct = place, direct
        self._undisturbed: dict[Cell, Path] = {}
        self._number = 0

    def verdict(self, cell: Cell) -> Verdict:
        """Run the cell, and judge it. RuntimeError if it fails undisturbed."""
        undisturbed = self._run_undisturbed(replace(cell, kills=(), exactness="Preferred"))
        self._number += 1
        place = self._place / f"{self._number}"
        failed = self._direct.run(cell, place, backups=True)
        return judge(cell, undisturbed, place / "job", failed)

    def _run_undisturbed(self, cell: Cell) -> Path:
        if cell not in self._undisturbed:
            place = self._place / f"undisturbed-{len(self._undisturbed)}"
            if failed := self._direct.run(cell, place, backups=False):
                raise RuntimeError(f"undisturbed: {failed}\n{(place / 'output').read_text()[-3000:]}")
            self._undisturbed[cell] = place / "job"
        return self._undisturbed[cell]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exact")
    parser.add_argument("what", nargs="*", help="cell JSON …")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    bad = 0
    with ExitStack() as stack:
        place = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exact-")))
        place.mkdir(parents=True, exist_ok=True)
        runs = Runs(place, Direct(stack.enter_context(Interpreter(place))))
        for text in arguments.what[1:]:
            try:
                verdict = runs.verdict(Cell.from_json(text))
            except RuntimeError as error:
                print(f"NOT RUN {text}: {error}", flush=True)
                bad += 1
                continue
            print(text, *verdict.lines(), sep="\n", flush=True)
            bad += not verdict.good
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

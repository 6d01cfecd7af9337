"""Programs and kills, each compared with the undisturbed run: is a resumed training the undisturbed one, or is it said?

    python -m tests.exact cell '{"input": "shuffled", "kills": [{"epoch": 2, "batch": 7}]}'    one cell: what differs
    python -m tests.exact page                                                                 writes docs/exact.md
    python -m tests.exact --seed 7 --kills 500 [--keras-3] [--gangs]                           a campaign

The progress goes to standard error, and the last line of a campaign's output is JSON. The exit status is 1 if any
difference is silent. `--keep DIRECTORY` keeps what the programs have left.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.exact import page
from tests.exact.cells import JUST_PROGRAM, PARTS, Cell
from tests.exact.compare import Verdict, judge
from tests.exact.direct import Direct, Interpreter
from tests.exact.draw import cells, gangs, of_keras_3
from tests.exact.launched import Launched


class Runs:
    """Runs cells in a directory; each undisturbed run is made once."""

    def __init__(self, place: Path, direct: Direct) -> None:
        self._place, self._direct, self._launched = place, direct, Launched()
        self._undisturbed: dict[Cell, Path] = {}
        self._number = 0

    def verdict(self, cell: Cell) -> Verdict:
        """Run the cell, and judge it. RuntimeError if it fails undisturbed."""
        undisturbed = self._run_undisturbed(_calm(cell))
        self._number += 1
        place = self._place / f"{self._number}"
        failed = self._driver(cell).run(cell, place, backups=True)
        return judge(cell, undisturbed, place / "job", failed)

    def _driver(self, cell: Cell) -> Direct | Launched:
        in_pods = max(cell.workers, cell.scaled_to) > 1 or any(kill.what != JUST_PROGRAM for kill in cell.kills)
        return self._launched if in_pods else self._direct

    def _run_undisturbed(self, cell: Cell) -> Path:
        if cell not in self._undisturbed:
            self._number += 1
            place = self._place / f"{self._number}-undisturbed"
            if failed := self._driver(cell).run(cell, place, backups=False):
                raise RuntimeError(f"undisturbed: {failed}\n{_output(place)[-3000:]}")
            rounds = (place / "job" / "resumed-0").read_text().count("\n")
            if rounds != PARTS.get(cell.shape, 1):
                raise RuntimeError(f"undisturbed: something has restarted it\n{_output(place)[-3000:]}")
            self._undisturbed[cell] = place / "job"
        return self._undisturbed[cell]


def _calm(cell: Cell) -> Cell:
    """The cell without anything that disturbs it."""
    strategy = cell.strategy or "multi-worker" * bool(cell.scaled_to)
    return replace(cell, kills=(), exactness="Preferred", scaled_to=0, strategy=strategy)


def _output(place: Path) -> str:
    return "\n".join(path.read_text() for path in [*place.glob("output"), *place.glob("log-*")])


@dataclass
class Tally:
    """What a campaign has found so far."""

    seed: int
    cells: int = 0
    kills: int = 0
    exact: int = 0
    said: int = 0  # cells with other values, as they were told
    silent: int = 0  # cells with a difference that nobody was told about
    kinds: int = 0  # cells that were told a lesser kind than the design promises
    failed: list[str] = field(default_factory=list)  # what could not be run undisturbed

    def add(self, verdict: Verdict) -> None:
        """Count the verdict on a cell."""
        self.cells += 1
        self.kills += verdict.kills
        self.exact += verdict.exact
        self.said += not verdict.exact and not verdict.silent
        self.silent += bool(verdict.silent)
        self.kinds += bool(verdict.kinds)

    @property
    def good(self) -> bool:
        return not (self.silent or self.kinds or self.failed)


def campaign(runs: Runs, cells: Iterable[Cell], tally: Tally, kills: int) -> None:
    """Run cells until so many programs were killed."""
    for cell in cells:
        if tally.kills >= kills:
            return
        try:
            verdict = runs.verdict(cell)
        except RuntimeError as error:
            tally.failed.append(cell.to_json())
            print(f"NOT RUN {cell.to_json()}\n{error}", flush=True)
            continue
        tally.add(verdict)
        if not verdict.good:
            print(cell.to_json(), *verdict.lines(), sep="\n", flush=True)
        what = "exact" if verdict.exact else "said" if verdict.good else "NOT OK"
        print(
            f"{tally.cells} cells, {tally.kills} kills, {tally.silent} silent: {what} {cell.to_json()}", file=sys.stderr
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exact")
    parser.add_argument("what", nargs="*", help="cell JSON …")
    parser.add_argument("--seed", type=int, default=None, help="of a campaign; drawn by default")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--keras-3", action="store_true", help="a campaign with programs of Keras 3")
    parser.add_argument("--gangs", action="store_true", help="a campaign with gangs alone")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.what[:1] == ["page"]:
        page.PAGE.write_text(page.page(), encoding="utf-8")
        return 0
    given = [Cell.from_json(text) for text in arguments.what[1:]]
    seed = secrets.randbelow(10**6) if arguments.seed is None else arguments.seed
    tally = Tally(seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is in memory is removed
    with ExitStack() as stack:
        place = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="exact-")))
        place.mkdir(parents=True, exist_ok=True)
        runs = Runs(place, Direct(stack.enter_context(Interpreter(place))))
        if given:
            for cell in given:
                verdict = runs.verdict(cell)
                tally.add(verdict)
                print(cell.to_json(), *verdict.lines(), sep="\n", flush=True)
        else:
            drawn = gangs(cells(seed)) if arguments.gangs else cells(seed)
            campaign(runs, of_keras_3(drawn) if arguments.keras_3 else drawn, tally, arguments.kills)
            print(json.dumps(asdict(tally)))
    return int(not tally.good)


if __name__ == "__main__":
    sys.exit(main())

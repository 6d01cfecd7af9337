"""A gang of workers under real launchers, whose programs kill themselves at the points of the cell.

Each worker has a store of its own, as a pod has. It must leave no process, and no file in memory.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.exact.cells import Cell
from tests.exact.direct import PROGRAM, SHM, environment
from tests.support.launchers.gang import LocalGang

START_SECONDS, ROUND_SECONDS = 120.0, 60.0


class Gang(LocalGang):
    """The launchers of a cell; `started` are the variables of its programs."""

    def __init__(self, place: Path, cell: Cell, **options: Any) -> None:
        super().__init__(place, {"worker": cell.workers}, terminationGraceSeconds=60, **options)
        self.command = [sys.executable, str(PROGRAM)]
        self.started = environment() | {"TFTRAINING_DIR": str(self.directory), "EXACT_CELL": str(place / "cell.json")}

    def environment(self, name: str, **options: Any) -> dict[str, str]:
        """The environment of a launcher."""
        return super().environment(name, **options) | self.started


class Launched:
    """Runs cells of a gang."""

    def run(self, cell: Cell, place: Path, *, backups: bool) -> str:
        """As `Direct.run` does."""
        place.mkdir(parents=True)
        (place / "cell.json").write_text(replace(cell, kills=cell.kills if backups else ()).to_json())
        memory = Path(tempfile.mkdtemp(prefix="exact-", dir=SHM))
        told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 200 << 20, "directory": str(memory)}
        told |= {"exactness": cell.exactness} if cell.exactness != "Preferred" else {}
        try:
            with Gang(place, cell, **({"memoryBackup": told, "warmStart": True} if backups else {})) as gang:
                gang.start()
                ended = gang.wait(START_SECONDS + ROUND_SECONDS * len(cell.kills))
                return "" if not any(ended.values()) else f"the launchers have ended with {ended}"
        except AssertionError as error:
            return str(error).splitlines()[0]
        finally:
            shutil.rmtree(memory, ignore_errors=True)

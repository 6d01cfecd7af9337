"""A gang of workers under real launchers, whose programs kill themselves at the points of the cell.

Each worker has a store of its own, as a pod has. It must leave no process, and no file in memory.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.exact.cells import JUST_PROGRAM, POD, Cell
from tests.exact.direct import PROGRAM, SHM, environment
from tests.support.launchers.gang import LocalGang
from tests.support.ports import free_ports

START_SECONDS, ROUND_SECONDS, LOOK_SECONDS = 120.0, 60.0, 0.3


class Gang(LocalGang):
    """The launchers of a cell; `started` are the variables of its programs."""

    def __init__(self, place: Path, cell: Cell, **options: Any) -> None:
        pattern = f"127.0.0.1:{_free_decade()}%d"
        sized = {"orders": str(place / "orders"), "workerAddress": pattern, "minReplicas": 1} if cell.scaled_to else {}
        most = max(cell.workers, cell.scaled_to)
        super().__init__(place, {"worker": most}, terminationGraceSeconds=60, **options, **sized)
        self.command = [sys.executable, str(PROGRAM)]
        told = {"TFTRAINING_DIR": str(self.directory), "EXACT_CELL": str(place / "cell.json")}
        self.started = environment(place) | told
        self.compared, self.differ, self._looked_at = 0, "", 0.0
        self.addresses = [pattern.replace("%d", str(index)) for index in range(most)]
        if cell.scaled_to:
            self.order_size(cell.workers)

    def environment(self, name: str, **options: Any) -> dict[str, str]:
        """The environment of a launcher."""
        return super().environment(name, **options) | self.started

    def order_size(self, workers: int) -> None:
        """Change the number of workers, as the operator does."""
        self.cluster = {"worker": self.addresses[:workers]}
        path = self.place / "orders"
        path.with_suffix(".new").write_text(json.dumps({"workers": workers}))
        path.with_suffix(".new").rename(path)

    def replace_pods(self, cell: Cell, memory: Path, patience: float) -> None:
        """Until all launchers have ended: end the pods of the members whose kills ask for it, and start others."""
        due = {number: kill for number, kill in enumerate(cell.kills) if kill.what != JUST_PROGRAM}
        ending: set[str] = set()

        def ended() -> bool:
            self._look_at_replicas()
            for number in [each for each in due if (self.directory / f"killed-{each}").exists()]:
                kill = due.pop(number)
                ending.add(name := self.names[kill.member])
                self.launchers[name].send_signal(signal.SIGKILL if kill.what == POD else signal.SIGTERM)
            for name in [each for each in ending if self.launchers[each].poll() is not None]:
                ending.remove(name)
                self._start_again(name, memory)
            return all(launcher.poll() is not None for launcher in self.launchers.values())

        self.wait_for(ended, patience)

    def _look_at_replicas(self) -> None:
        """Note now and then what the chief's launcher says of the replicas: none of a cell may differ."""
        if time.monotonic() < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at, backup = time.monotonic(), self.status().get("backup") or {}
        self.compared = max(self.compared, backup.get("replicasCompared", 0))
        self.differ = self.differ or backup.get("replicas", "")

    def _start_again(self, name: str, memory: Path) -> None:
        """Start the launcher of a new pod, without the copies of the one before."""
        if self.launchers[name].returncode == 0:
            return  # the training has ended before
        for left in memory.glob(f"*-{name}"):
            shutil.rmtree(left)
        self.start(name)

    def scale(self, cell: Cell) -> None:
        """Scale the gang when it has made the batch of the cell's first kill, which no program makes itself."""
        point = (cell.kills[0].part, cell.kills[0].epoch, cell.kills[0].batch)
        steps = self.directory / "steps-0"

        def reached() -> bool:  # with steps_per_execution not each batch is noted
            lines = steps.read_text().splitlines() if steps.exists() else []
            return any(tuple(map(int, line.split())) >= point for line in lines)

        self.wait_for(reached, START_SECONDS)
        self.order_size(cell.scaled_to)
        if new := self.names[cell.workers : cell.scaled_to]:
            self.start(*new)
        self.retired += [self.launchers.pop(name) for name in self.names[cell.scaled_to :]]


def _free_decade() -> int:
    """Ten ports in a row, by their number without its last digit."""
    return next(port for port in free_ports(19) if port % 10 == 0) // 10


class Launched:
    """Runs cells of a gang."""

    def run(self, cell: Cell, place: Path, *, backups: bool) -> str:
        """As `Direct.run` does; a cell that is `scaled_to` another size is scaled once and not killed."""
        place.mkdir(parents=True)
        scaled = backups and cell.scaled_to > 0
        known = cell if scaled else replace(cell, scaled_to=0, kills=cell.kills if backups else ())
        (place / "cell.json").write_text(known.to_json())
        memory = Path(tempfile.mkdtemp(prefix="exact-", dir=SHM))
        told = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 200 << 20, "directory": str(memory)}
        told |= {"exactness": cell.exactness} if cell.exactness != "Preferred" else {}
        options = {"memoryBackup": told, "warmStart": True} if backups else {}
        try:
            with Gang(place, known, **options) as gang:
                gang.start(*gang.names[: cell.workers])
                if scaled:
                    gang.scale(cell)
                gang.replace_pods(known, memory, START_SECONDS + ROUND_SECONDS * len(cell.kills))
                ended = gang.wait()
                (place / "compared").write_text(f"{gang.compared}")
                if gang.differ:
                    return f"replicas differ: {gang.differ}"
                return "" if not any(ended.values()) else f"the launchers have ended with {ended}"
        except AssertionError as error:
            return str(error).splitlines()[0]
        finally:
            shutil.rmtree(memory, ignore_errors=True)

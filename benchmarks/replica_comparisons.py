"""How often the comparison of replicas tells a difference where there is none: lessons and examples that make copies.

`python -m benchmarks.replica_comparisons --comparisons 10000` trains each program of PROGRAMS once, in a real gang of
two workers under their launchers, with copies as often as launchers allow, and counts what the launcher of the chief
has compared and told. `alarms` are differences beyond the tolerance; `rounded` are gangs whose replicas differ in their
last bits. The last line is JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.error
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.launchers.gang import LocalGang

LOOK_SECONDS = 0.2
PATIENCE = 180.0  # for the first comparison
EXAMPLE = ["-m", "tftraining.examples.multi_worker_mnist", "--epochs", "100000"]
LESSON = """
import importlib.util, sys
path = importlib.util.find_spec("tftraining.lessons.{name}").origin
text = open(path).read().replace("EPOCHS, STEPS_PER_EPOCH = 10, 40", "EPOCHS, STEPS_PER_EPOCH = 100_000, 400")
exec(compile(text, path, "exec"), {{"__name__": "__main__", "__file__": path}})
"""
PROGRAMS: dict[str, list[str]] = {
    "lesson multi_worker_fit": ["-c", LESSON.format(name="multi_worker_fit")],
    "example multi_worker_mnist": [*EXAMPLE, "--steps-per-epoch", "200"],
    "example multi_worker_mnist, custom loop": [*EXAMPLE, "--steps-per-epoch", "200", "--loop", "custom"],
}


def compared(gang: LocalGang) -> dict[str, Any]:
    """What the chief's launcher says of the replicas; empty before it listens."""
    try:
        return gang.status().get("backup") or {}
    except (OSError, urllib.error.URLError, ValueError):
        return {}


def train(program: Sequence[str], wanted: int, seconds: float) -> dict[str, Any]:
    """Train until so many copies were compared, or a difference was told, or for so long behind the first one."""
    backups = {"mode": "Auto", "maxOverheadPercent": 100, "sizeLimit": 1 << 30}
    with tempfile.TemporaryDirectory() as place:
        os.environ["TFTRAINING_DIR"] = f"{place}/job"
        with LocalGang(Path(place), {"worker": 2}, memoryBackup=backups, maxRestarts=0) as gang:
            gang.command = [sys.executable, *program]
            gang.start()
            end, found = time.monotonic() + PATIENCE, dict[str, Any]()
            while time.monotonic() < end and found.get("replicasCompared", 0) < wanted:
                time.sleep(LOOK_SECONDS)
                before, found = found.get("replicasCompared", 0), compared(gang) or found
                if not before and found.get("replicasCompared"):
                    end = time.monotonic() + seconds
                if found.get("replicasDiffer") or any(each.poll() is not None for each in gang.launchers.values()):
                    break
            ended = {each.poll() for each in gang.launchers.values()} - {None}
            if ended or not found.get("replicasCompared"):
                sys.exit(f"{program}: ended with {ended}, compared {found}\n{gang.log('worker-0')[-2000:]}")
    told = {name: found[name] for name in ("replicasCompared", "replicasDiffer", "replicas")}
    return {"comparisons": told["replicasCompared"], "alarm": told["replicasDiffer"], "told": told["replicas"]}


def main() -> int:
    """Train each program in turn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=10_000, help="of all programs together")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one program at most")
    arguments = parser.parse_args()
    found = {}
    for name, program in PROGRAMS.items():
        found[name] = train(program, -(-arguments.comparisons // len(PROGRAMS)), arguments.seconds)
        print(name, found[name], flush=True)
    every = found.values()
    total = {
        "comparisons": sum(each["comparisons"] for each in every),
        "alarms": sum(each["alarm"] for each in every),
        "rounded": sum(bool(each["told"]) and not each["alarm"] for each in every),
    }
    print(json.dumps({**total, "programs": {name: each["comparisons"] for name, each in found.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

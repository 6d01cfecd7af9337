"""How often the comparison of replicas tells a difference where there is none: lessons and examples that make copies.

`python -m benchmarks.replica_comparisons --comparisons 10000` trains each program of PROGRAMS once, in a real gang of
two workers under their launchers, with copies and heartbeats as often as launchers allow, and counts what the launcher
of the chief has compared and told. `alarms` are differences beyond the tolerance; `rounded` are gangs whose replicas
differ in their last bits. The other lessons make no copies. The last line is JSON.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.launchers.gang import LocalGang

LOOK_SECONDS = 0.2
PATIENCE = 180.0  # for the first comparison
TIMEOUT = 1  # memberTimeoutSeconds: a heartbeat, which brings some comparisons, every sixth of it
EXAMPLE = ["-m", "tftraining.examples.multi_worker_mnist", "--epochs", "100000", "--steps-per-epoch", "200"]
LESSON = """
import importlib.util
path = importlib.util.find_spec("tftraining.lessons.multi_worker_fit").origin
text = open(path).read()
for old, new in {changes}:
    assert old in text, old
    text = text.replace(old, new)
exec(compile(text, path, "exec"), {{"__name__": "__main__", "__file__": path}})
"""
LONG = ("EPOCHS, STEPS_PER_EPOCH = 10, 40", "EPOCHS, STEPS_PER_EPOCH = 100_000, 400")
KERAS_3 = ("import tf_keras as keras", "import keras")


def lesson(*changes: tuple[str, str]) -> list[str]:
    """The arguments of Python for the lesson with `fit`, with these changes of its text."""
    return ["-c", LESSON.format(changes=list(changes))]


PROGRAMS: dict[str, list[str]] = {
    "lesson multi_worker_fit": lesson(LONG),
    "lesson multi_worker_fit, Keras 3": lesson(LONG, KERAS_3),
    "example multi_worker_mnist": EXAMPLE,
    "example multi_worker_mnist, Keras 3": [*EXAMPLE, "--keras", "3"],
    "example multi_worker_mnist, custom loop": [*EXAMPLE, "--loop", "custom"],
    "example multi_worker_mnist, custom loop, Keras 3": [*EXAMPLE, "--loop", "custom", "--keras", "3"],
}
starting = threading.Lock()  # the environment is that of the process


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
        options = {"memoryBackup": backups, "memberTimeoutSeconds": TIMEOUT, "maxRestarts": 0}
        with LocalGang(Path(place), {"worker": 2}, **options) as gang:
            gang.command = [sys.executable, *program]
            with starting:
                os.environ["TFTRAINING_DIR"] = f"{place}/job"
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
    """Train each program, some of them at once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=10_000, help="of all programs together")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one program at most")
    parser.add_argument("--at-once", type=int, default=1, help="programs that train at the same time")
    parser.add_argument("--only", default="", help="programs with this text in their names")
    arguments = parser.parse_args()
    programs = {name: each for name, each in PROGRAMS.items() if arguments.only in name}
    found: dict[str, dict[str, Any]] = {}

    def measure(name: str) -> None:
        found[name] = train(programs[name], -(-arguments.comparisons // len(programs)), arguments.seconds)
        print(name, found[name], flush=True)

    with ThreadPoolExecutor(arguments.at_once) as pool:
        list(pool.map(measure, programs))
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

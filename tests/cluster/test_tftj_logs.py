"""`tftj logs --follow` beside real kubelets: over restarts in place and new pods each line comes once, or is told lost.

The program numbers its lines. It notes the number of each line in the shared directory before it prints the line, so
the notes have at most one line more than each program has printed.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from tests.support.cluster.training import Training, example

START_SECONDS = 120
MISSED = "may be missing|last lines with it|could not be read to its end"
# Each program of a worker has the next number, and its lines are `<worker>.<program>.<line>`.
PROGRAM = """
import json, os, pathlib, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
place = pathlib.Path(os.environ["TFTRAINING_DIR"])
place.mkdir(parents=True, exist_ok=True)
number = len(list(place.glob(f"noted-{task}-*")))
with open(place / f"noted-{task}-{number}", "w", buffering=1) as noted:
    line = 0
    while not (place / "end").exists():
        line += 1
        noted.write(f"{line}\\n")
        print(f"{task}.{number}.{line}", flush=True)
        time.sleep(0.005)
"""


@pytest.mark.slow_fault
def test_each_line_comes_once(
    cluster: Cluster, operator: object, namespace: str, directory: Path, tmp_path: Path
) -> None:
    training = _start(cluster, namespace)
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        command = [sys.executable, "-m", "tftraining_client", "logs", "digits", "--namespace", namespace, "--follow"]
        environment = {**os.environ, "KUBECONFIG": str(cluster.kube.kubeconfig)}
        with subprocess.Popen(command, stdout=out, stderr=err, env=environment) as follower:
            for number, disturb in enumerate((training.kill_program, training.kill_program, training.delete), 1):
                time.sleep(3)
                disturb(f"worker-{number % 2}")
                _wait_for_program(directory / "digits", number)
            time.sleep(3)
            (directory / "digits" / "end").touch()
            training.wait_for_phase("Succeeded", START_SECONDS)
            assert follower.wait(START_SECONDS) == 0, (tmp_path / "err").read_text()
    seen = Counter(re.findall(r"^worker-\d +\| (\d\.\d+\.\d+)$", (tmp_path / "out").read_text(), re.MULTILINE))
    assert max(seen.values()) == 1, seen.most_common(3)
    told = (tmp_path / "err").read_text()
    for path in sorted((directory / "digits").glob("noted-*")):
        _, task, program = path.name.split("-")
        noted = len(path.read_text().split())
        lines = [each for each in range(1, noted + 1) if f"{task}.{program}.{each}" not in seen]
        assert lines in ([], [noted]) or re.search(f"worker-{task}.*({MISSED})", told), (path.name, noted, lines, told)


def _start(cluster: Cluster, namespace: str) -> Training:
    manifest = example(cluster.images[1], restartPolicy={"maxRestarts": 10})
    manifest["metadata"]["namespace"] = namespace
    manifest["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-c", PROGRAM]
    cluster.kube.apply(manifest)
    training = Training(cluster.kube, namespace, "digits")
    training.wait_for_line("worker-1", r"^1\.0\.\d+$", START_SECONDS)
    return training


def _wait_for_program(directory: Path, number: int) -> None:
    """Wait until both workers run their program of this number."""
    deadline = time.monotonic() + START_SECONDS
    while not all((directory / f"noted-{task}-{number}").exists() for task in (0, 1)):
        assert time.monotonic() < deadline, sorted(path.name for path in directory.iterdir())
        time.sleep(0.1)

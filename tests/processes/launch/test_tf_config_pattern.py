"""Launchers build TF_CONFIG of any length from the pattern of the addresses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.processes.launch.test_elastic import order
from tests.support.launchers.gang import LocalGang
from tftraining.launch.in_user_process.shared.tf_config import LONGEST, size

# What a program was told, in a file of its round; and what a process that it has started was.
SCRIPT = """
import json, os, subprocess, sys, time
command = [sys.executable, "-c", "import os; print(len(os.environ.get('TF_CONFIG', '')))"]
child = int(subprocess.run(command, env=dict(os.environ), stdout=subprocess.PIPE, check=True).stdout)
path = os.path.join(sys.argv[1], "told-{STANDIN}-{TFTRAINING_ROUND}".format(**os.environ))
with open(path + ".new", "w") as file:
    json.dump({"own": os.environ["TF_CONFIG"], "child": child}, file)
os.rename(path + ".new", path)
time.sleep(600)
"""
# Three members with such names stand for thousands.
PATTERN = f"w%d.{'x' * 45_000}:1"


class Described(LocalGang):
    """Launchers as the operator tells those of a large gang."""

    def environment(self, name: str, **options: Any) -> dict[str, str]:
        """TF_CONFIG is not in it; one of the image's own changes nothing."""
        told = super().environment(name, **options)
        cluster = {role: [len(addresses), PATTERN] for role, addresses in self.cluster.items()}
        task = json.loads(told["TF_CONFIG"])["task"]
        settings = {**json.loads(told["TFTRAINING_LAUNCHER"]), "cluster": cluster, "task": task}
        return {**told, "TF_CONFIG": "of the image", "TFTRAINING_LAUNCHER": json.dumps(settings)}


def a_gang(place: Path, now: int, most: int) -> Described:
    gang = Described(place, {"worker": most}, orders=str(place / "orders"), workerAddress=PATTERN, minReplicas=1)
    gang.cluster["worker"] = gang.cluster["worker"][:now]
    script = place / "script.py"
    script.write_text(SCRIPT)
    gang.command = [gang.command[0], str(script), str(gang.directory)]
    order(gang, workers=now)
    return gang


def told(gang: LocalGang, name: str, number: int) -> tuple[dict[str, Any], int, int]:
    """TF_CONFIG of a member's program in a round, its size, and the length of the one that a child of it got."""
    path = gang.directory / f"told-{name}-{number}"
    gang.wait_for(path.exists)
    found = json.loads(path.read_text())
    return json.loads(found["own"]), size(found["own"]), found["child"]


def config(index: int, *workers: int) -> dict[str, Any]:
    cluster = {"worker": [PATTERN.replace("%d", str(each)) for each in workers]}
    return {"cluster": cluster, "task": {"type": "worker", "index": index}}


def test_a_gang_grows_beyond_the_longest_tf_config_and_shrinks_again(tmp_path: Path) -> None:
    with a_gang(tmp_path, 1, 3) as gang:
        gang.start("worker-0")
        own, length, child = told(gang, "worker-0", 1)
        assert own == config(0, 0)
        assert child < length < LONGEST and child, "an ordinary variable"
        order(gang, workers=3)
        gang.cluster["worker"] = [""] * 3
        gang.start("worker-1", "worker-2")
        for index in range(3):
            own, length, child = told(gang, f"worker-{index}", 2)
            assert own == config(index, 0, 1, 2)
            assert child == 0 and length > LONGEST
        gang.kill("worker-1")
        for index, name in enumerate(("worker-0", "worker-2")):
            own, length, child = told(gang, name, 3)
            assert own == config(index, 0, 2)
            assert child < length < LONGEST and child


def test_a_command_that_is_no_python_fails_with_a_long_tf_config(tmp_path: Path) -> None:
    with a_gang(tmp_path, 3, 3) as gang:
        gang.command = ["bash", "-c", "true"]
        gang.start()
        assert 126 in gang.wait().values()
        message = gang.message("worker-0")
        assert (message["verdict"], message["reason"], message["exitCode"]) == ("Failed", "NotFound", 126)
        assert "TF_CONFIG is longer than the 131072 bytes" in message["message"]

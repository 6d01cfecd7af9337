"""`tftj run --code` and functions on this machine, with programs that only pretend to train."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.support.client.local_run import PATIENCE, Run, manifest
from tftraining_client import JobFailed, distributed

PROGRAM = """
import json, os, sys
from pathlib import Path
from lib.model import NAME
source, member = Path(sys.argv[1]), json.loads(os.environ["TF_CONFIG"])["task"]["index"]
print(NAME, Path.cwd() == Path(__file__).parent, os.environ["PYTHONPATH"].split(os.pathsep)[-1])
if os.environ["TFTRAINING_ROUND"] == "1":
    (source / "lib" / "model.py").write_text("NAME = 'changed'")
    sys.exit(1 - member)
"""


def program(directory: Path) -> Path:
    (directory / "lib").mkdir(parents=True)
    (directory / "train.py").write_text(PROGRAM)
    (directory / "lib" / "model.py").write_text("NAME = 'submitted'")
    return directory


def test_a_restart_runs_the_submitted_code_though_the_directory_has_changed(tmp_path: Path) -> None:
    source = program(tmp_path / "work" / "source")
    job = manifest()
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "train.py", str(source)]
    with Run(tmp_path, job, "--code", str(source), "--env", "PYTHONPATH=/of/the/image") as run:
        assert run.wait() == 0, run.log
        lines = [line for line in run.log.splitlines() if re.search(r"^worker-. +\| (submitted|changed)", line)]
    assert (source / "lib" / "model.py").read_text() == "NAME = 'changed'"
    # In round 1 the second worker may end before it has printed.
    assert len(lines) >= 3 and all("submitted True" in line for line in lines), run.log
    assert all(line.endswith(" /of/the/image") for line in lines), run.log


NUMBER = 40


def train(more: int) -> None:
    """Fails if there is nothing more."""
    print("the answer is", NUMBER + more, os.environ["TFTRAINING_DIR"])
    if not more:
        raise ValueError("nothing more")


def test_a_function_runs_on_this_machine_beside_an_event_loop(tmp_path: Path) -> None:
    # Without AllWorkers worker-1 is stopped when the chief has ended, whether it has printed its line or not.
    spec = {"launcher": {"warmStart": False}, "restartPolicy": {"maxRestarts": 0}, "successPolicy": "AllWorkers"}
    job = distributed(workers=2, where="local", workdir=tmp_path, name="job", spec=spec)(train)

    async def notebook() -> list[str]:
        handle = job(2)
        lines = list(handle.logs())
        handle.wait()
        return lines

    lines = asyncio.run(notebook())
    assert {f"worker-{index} | the answer is 42 {tmp_path / 'job'}" for index in range(2)} <= set(lines), lines
    with pytest.raises(JobFailed) as failed:
        job(0).wait(timeout=PATIENCE)
    assert failed.value.reason == "MaxRestartsExceeded"
    assert "ValueError: nothing more" in failed.value.log_tail

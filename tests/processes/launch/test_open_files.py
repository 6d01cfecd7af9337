"""The chief's launcher needs a file for each member; the program keeps its own limit."""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.processes.launch.test_rendezvous_server import dialled, hello
from tests.support.launchers.gang import LocalGang

MEMBERS = 100
PROGRAM = """
import json, os, pathlib, resource, sys, time
told = pathlib.Path(sys.argv[1])
told.with_suffix(".new").write_text(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
told.with_suffix(".new").rename(told)
time.sleep(600)
"""


def chief(tmp_path: Path, soft: int, hard: int, **options: Any) -> LocalGang:
    """A gang whose chief's launcher may open so many files."""
    (tmp_path / "train.py").write_text(PROGRAM)
    gang = LocalGang(tmp_path, {"worker": MEMBERS}, memberTimeoutSeconds=60, **options)  # members that do not beat
    gang.command = [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "limits")]
    gang.wrappers["worker-0"] = ["prlimit", f"--nofile={soft}:{hard}"]
    return gang


@pytest.mark.parametrize("warm", [False, True])
async def test_more_members_than_the_soft_limit_can_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    """A program may use select(2), which knows no descriptor over 1,023, or close all that there may be."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "tensorflow.py").touch()  # what the warm interpreter imports
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"), prepend=":")
    with chief(tmp_path, 64, 4096, warmStart=warm) as gang:
        gang.start("worker-0")
        gang.wait_for(lambda: gang.status("worker-0").get("state") == "ready")
        async with AsyncExitStack() as members:
            for name in gang.names[1:]:
                _, answer = await members.enter_async_context(dialled(gang, hello(name)))
                assert answer["type"] == "welcome", name
            gang.wait_for((tmp_path / "limits").exists)
            assert gang.status("worker-0")["mode"].partition(":")[0] == ("warm" if warm else "plain")
    assert json.loads((tmp_path / "limits").read_text()) == [64, 4096]
    assert "limit of open files" not in gang.log("worker-0")


def test_a_hard_limit_too_low_for_the_gang_is_reported(tmp_path: Path) -> None:
    with chief(tmp_path, 64, 80) as gang:
        gang.start("worker-0")
        words = "the limit of open files is 80, and the rendezvous of 100 members needs 356: not all members can"
        gang.wait_for(lambda: words in gang.log("worker-0"))

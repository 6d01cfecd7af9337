"""A result or an order of the chief interrupts a start that takes minutes."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from tests.support.launchers.gang import LocalGang

ENDLESS = ("--epochs", "100000", "--steps", "10")
# Worker 1's warm interpreter is held in its import, as by a storage that is slow; its program waits for that.
SLOW = """
import os, time
if os.environ["STANDIN"] == "worker-1":
    time.sleep(1000)
"""


@pytest.fixture
def gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalGang:
    package = tmp_path / "packages" / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SLOW)
    paths = [str(package.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return LocalGang(tmp_path, {"worker": 2}, *ENDLESS, warmStart=True, maxRestarts=1)


def has_started(gang: LocalGang, number: int) -> bool:
    return ("worker-0", number) in {each[:2] for each in gang.starts()}


@pytest.mark.parametrize(("code", "verdict"), [(0, "Succeeded"), (3, "Failed")])
def test_a_result_interrupts_a_start(gang: LocalGang, code: int, verdict: str) -> None:
    with gang:
        gang.start()
        gang.wait_for(lambda: gang.status("worker-1").get("state") == "running")
        for number in (1, 2) if code else (1,):
            gang.wait_for(partial(has_started, gang, number))
            gang.order("worker-0", f"exit {code}")
        assert gang.wait(20) == {"worker-0": code, "worker-1": 1 if code else 0}
        assert gang.message("worker-1")["verdict"] == verdict
        assert {name for name, *_ in gang.starts()} == {"worker-0"}

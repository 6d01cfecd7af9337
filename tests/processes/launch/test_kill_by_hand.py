"""The commands by which docs/launcher.md says that a program can be found and killed, as they are written there.

Real launchers with warm interpreters; the program has a name of its own, so that nobody else's is ever hit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from testbed.packages import need
from tests.support.launchers.gang import STANDIN, LocalGang

DOCUMENT = Path(__file__).parents[3] / "docs/launcher.md"
POD = "kubectl exec digits-worker-1 -- "
PROGRAM = "tftraining.examples"


def commands() -> list[str]:
    """What the page tells people to type."""
    page = DOCUMENT.read_text().partition("## Killing the program by hand\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a module that is the stand-in, beside a TensorFlow that is imported at once."""
    need("pgrep", "pkill")
    name, modules = f"standin_{uuid.uuid4().hex}", tmp_path / "modules"
    modules.mkdir()
    (modules / f"{name}.py").write_text(STANDIN.read_text())
    for library in ("tensorflow", "tf_keras"):
        (modules / f"{library}.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    return name


def gang_of(place: Path, python: str, name: str) -> LocalGang:
    gang = LocalGang(place, {"worker": 2}, warmStart=True, maxRestarts=10)
    gang.command = [python, "-m", name, str(gang.directory), "--epochs", "100000"]
    return gang


def type_in(command: str) -> str:
    return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout


def test_the_documented_commands_in_a_pod(tmp_path: Path, name: str) -> None:
    by_launcher, by_name, _ = commands()
    with gang_of(tmp_path, "python", name) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        both = {gang.pid("worker-0"), gang.pid("worker-1")}
        pattern = by_name.removeprefix(POD).replace(PROGRAM, name)
        # On this machine it would hit both programs: here it only says whom it would hit.
        told = type_in(pattern.replace("pkill -KILL", "pgrep"))
        assert {int(pid) for pid in told.split()} == both
        assert by_launcher.startswith(POD)
        type_in(by_launcher.removeprefix(POD).replace("8472", str(gang.ports["worker-1"])))
        status = gang.wait_for_phase("Training", 2)
        assert (status["lastRestart"]["member"], status["lastRestart"]["signal"]) == ("worker-1", 9)
        assert status["members"]["worker-1"]["mode"] == "warm"
        type_in(pattern)
        assert gang.wait_for_phase("Training", 3)["ledger"]["processFailures"] == 2
        assert {launcher.poll() for launcher in gang.launchers.values()} == {None}


def test_the_documented_commands_on_this_machine(tmp_path: Path, name: str) -> None:
    *_, listing = commands()
    with gang_of(tmp_path, f"{Path(sys.executable).parent}/python", name) as gang:
        gang.start()
        gang.wait_for_phase("Training")
        told = [line.partition(" ") for line in type_in(listing.replace(PROGRAM, name)).splitlines()]
        assert {
            int(pid): f"worker-{json.loads(text.removeprefix('TF_CONFIG='))['task']['index']}" for pid, _, text in told
        } == {gang.pid(each): each for each in gang.names}
